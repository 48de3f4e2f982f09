"""Three classification tasks that need no annotation, made from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on:

- *next paragraph*: is the second text the paragraph after the first, or one of another article?
- *bigram shift*: are two neighbouring words of a sentence swapped?
- *number of the subject*: is the subject of the main clause singular or plural?

The last two are made from parsed sentences in the manner of SentEval (Conneau et al. 2018, *What
you can cram into a single vector*).  The parses are spaCy's and have errors.  No article is in
both the training and the test examples, and labels are balanced.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from beyond.papers.common import CODE
from beyond.papers.common.tasks import Pair, Task
from helpers.cache import cached
from helpers.data.text_files import file_fingerprint
from helpers.data.treebank import BATCH, pipeline, why_unusable
from helpers.data.wikipedia import Article, articles
from helpers.errors import CorpusError
from helpers.progress import progress
from helpers.settings import capped

if TYPE_CHECKING:
    from spacy.tokens import Span

NEXT = "next paragraph"
SHIFT = "bigram shift"
NUMBER = "number of the subject"
LABELS = {
    NEXT: ("another article", "next paragraph"),
    SHIFT: ("as written", "two words swapped"),
    NUMBER: ("singular", "plural"),
}
NOUN_NUMBERS = {"NN": 0, "NNS": 1}  # Penn tag of a subject -> label of `NUMBER`
SUBJECTS = ("nsubj", "nsubjpass")
# Sentences to parse per needed example of a label.  More than one, because all sentences of an
# article go to the same side of the split into training and test examples.
OVERSAMPLING = 1.25
MIN_ARTICLES = 4  # two to train on and two to test on


class ParagraphPair(NamedTuple):
    """A paragraph and the one after it, with their article."""

    article: int
    first: str
    second: str


class ParsedSentence(NamedTuple):
    """A sentence of an article, and the number of its main clause's subject.

    The number is 0 (singular), 1 (plural), or None if it is not clear.
    """

    article: int
    words: Sequence[str]
    number: int | None


Source = TypeVar("Source", ParagraphPair, ParsedSentence)


def wikipedia_tasks(path: Path, *, count: int | None, seed: int) -> list[Task]:
    """Make the tasks from a dump or text file.

    A task is left out if the text does not have both of its labels.

    Parameters
    ----------
    path
        The file.
    count
        The number of training examples of a task, and of test examples (fewer if the text has
        fewer; None: as many as it has).
    seed
        Seed of the split, the samples and the labels.

    Raises
    ------
    CorpusError
        If the file cannot be read or has too few articles.
    """
    documents = progress(articles(path), f"Reading {path.name}", unit=" articles")
    usable = [article for article in documents if len(article.paragraphs) > 1]
    if len(usable) < MIN_ARTICLES:
        raise CorpusError(
            path,
            f"{len(usable)} articles with two paragraphs; tasks need {MIN_ARTICLES}; give a longer "
            "text, with blank lines between articles",
        )
    rows = cached(
        "tagged-sentences",
        lambda: _parse_articles(usable, count, seed),
        inputs={"file": file_fingerprint(path), "count": count, "seed": seed},
        code=CODE,
    )
    sentences = [ParsedSentence(*row) for row in rows]
    sources: dict[str, list] = {NEXT: _paragraph_pairs(usable), SHIFT: sentences, NUMBER: sentences}
    tasks = []
    for name, labels in LABELS.items():
        make_pairs = next_paragraphs if name == NEXT else partial(labelled_pairs, name)
        train_sources, test_sources = split_by_article(sources[name], seed)
        train = make_pairs(train_sources, count, seed)
        test = make_pairs(test_sources, count, seed)
        if train and test:
            tasks.append(Task(name, labels, train, test))
    return tasks


def labelled_pairs(
    name: str, sentences: Iterable[ParsedSentence], size: int | None, seed: int
) -> tuple[Pair, ...]:
    """Make at most ``size`` examples of `SHIFT` or of `NUMBER`, each from another sentence."""
    generator = random.Random(f"{name} {seed}")
    by_label: list[list[Pair]] = [[], []]
    unique = list({tuple(sentence.words): sentence for sentence in sentences}.values())
    for turn, sentence in enumerate(generator.sample(unique, len(unique))):
        words = sentence.words
        label = sentence.number
        if name == SHIFT:
            swapped = _swap_neighbours(words, generator)
            label = turn % 2 if swapped else None
            words = swapped if swapped and label else words
        if label is not None:
            by_label[label].append(Pair((" ".join(words),), label))
    negative, positive = by_label
    rarer = min(map(len, by_label))
    per_label = rarer if size is None else min(size // 2, rarer)
    balanced = negative[:per_label] + positive[:per_label]
    return tuple(generator.sample(balanced, len(balanced)))


def next_paragraphs(
    pairs: Sequence[ParagraphPair], size: int | None, seed: int
) -> tuple[Pair, ...]:
    """Make at most ``size`` examples of `NEXT`; in half of them the texts are of two articles.

    The second text of any example follows some paragraph, so that it alone does not tell the label.
    """
    generator = random.Random(f"{NEXT} {seed}")
    examples = []
    for turn, pair in enumerate(generator.sample(pairs, capped(size, len(pairs)))):
        label = turn % 2
        if label == 1:
            second = pair.second
        else:
            second = _choose_from_other_article(pairs, pair.article, generator).second
        examples.append(Pair((pair.first, second), label))
    return tuple(examples)


def split_by_article(sources: Sequence[Source], seed: int) -> tuple[list[Source], list[Source]]:
    """Split paragraphs or sentences into training and test parts of about the same size.

    No article is in both parts, and each has two articles or more.
    """
    sizes = Counter(source.article for source in sources)
    order = random.Random(seed).sample(sorted(sizes), len(sizes))
    covered = np.cumsum([sizes[article] for article in order])
    half = np.searchsorted(2 * covered, len(sources)) + 1  # so many articles have half or more
    test_articles = set(order[: max(2, min(half, len(order) - 2))])
    train = [source for source in sources if source.article not in test_articles]
    test = [source for source in sources if source.article in test_articles]
    return train, test


def _choose_from_other_article(
    pairs: Sequence[ParagraphPair], article: int, generator: random.Random
) -> ParagraphPair:
    """Choose a random pair of paragraphs of any article but one; there are two articles or more."""
    while True:
        chosen = generator.choice(pairs)
        if chosen.article != article:
            return chosen


def _paragraph_pairs(articles: Sequence[Article]) -> list[ParagraphPair]:
    """List all pairs of neighbouring paragraphs."""
    pairs = []
    for number, article in enumerate(articles):
        for texts in pairwise(article.paragraphs):
            pairs.append(ParagraphPair(number, *texts))
    return pairs


def _swap_neighbours(words: Sequence[str], generator: random.Random) -> list[str] | None:
    """Swap two random neighbours that are different words (no punctuation); None if none are."""
    positions = []
    for position, (first, second) in enumerate(pairwise(words)):
        are_words = first.isalpha() and second.isalpha()
        if are_words and first.lower() != second.lower():
            positions.append(position)
    if not positions:
        return None
    position = generator.choice(positions)
    swapped = list(words)
    swapped[position : position + 2] = reversed(words[position : position + 2])
    return swapped


def _parse_articles(
    articles: Sequence[Article], count: int | None, seed: int
) -> list[ParsedSentence]:
    """Parse sentences, enough for tasks of ``count`` training and ``count`` test examples.

    Paragraphs are parsed in random order until there are `OVERSAMPLING` times ``count`` subjects
    of either number, or to the end (always if ``count`` is None).
    """
    paragraphs = []
    for number, article in enumerate(articles):
        paragraphs += [(text, number) for text in article.paragraphs]
    random.Random(seed).shuffle(paragraphs)
    docs = pipeline().pipe(paragraphs, as_tuples=True, batch_size=BATCH)
    bar = progress(docs, "Parsing for tasks", unit=" paragraphs", total=len(paragraphs))
    sentences = []
    numbers = Counter()
    for doc, article in bar:
        for span in doc.sents:
            if why_unusable(span):
                continue
            number = subject_number(span)
            words = [word.text for word in span]
            sentences.append(ParsedSentence(article, words, number))
            numbers[number] += 1
            rarer = min(numbers[label] for label in NOUN_NUMBERS.values())
            if count is not None and rarer >= OVERSAMPLING * count:
                return sentences
    return sentences


def subject_number(sentence: Span) -> int | None:
    """Find the number of the main clause's only subject, if that is a common noun.

    A subject with a conjunct ("the cat and the dog") has no clear number.
    """
    subjects = [word for word in sentence.root.children if word.dep_ in SUBJECTS]
    if len(subjects) != 1:
        return None
    (subject,) = subjects
    has_conjunct = any(word.dep_ == "conj" for word in subject.children)
    return None if has_conjunct else NOUN_NUMBERS.get(subject.tag_)
