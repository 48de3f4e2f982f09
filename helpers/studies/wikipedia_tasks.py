"""Three classification tasks that label themselves, from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on:

- *next paragraph*: is the second text the paragraph after the first, or one of another article?
- *bigram shift*: are two neighbouring words of a sentence swapped?
- *number of the subject*: is the subject of the main clause singular or plural?

The last two are made of parsed sentences as SentEval makes its own (Conneau et al. 2018, *What
you can cram into a single vector*); the labels are spaCy's, errors included.  No article is in
both train and test; labels are balanced.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helpers.cache import cached
from helpers.data.text_files import file_fingerprint
from helpers.data.treebank import BATCH, parsed_words, pipeline, why_unusable
from helpers.data.wikipedia import Article, articles, sample_path
from helpers.errors import CorpusError
from helpers.settings import capped
from helpers.studies.tasks import Pair, Task
from helpers.work import progress

if TYPE_CHECKING:
    from spacy.tokens import Span

NEXT, SHIFT, NUMBER = "next paragraph", "bigram shift", "number of the subject"
LABELS = {
    NEXT: ("another article", "next paragraph"),
    SHIFT: ("as written", "two words swapped"),
    NUMBER: ("singular", "plural"),
}
NOUNS = {"NN": 0, "NNS": 1}  # the label of a subject's Penn tag
SUBJECTS = ("nsubj", "nsubjpass")
SPARE = 1.25  # sentences of a label for each that a task takes: articles are not split


class Place(NamedTuple):
    """A paragraph and the one after it."""

    article: int
    title: str
    first: str
    second: str


class Tagged(NamedTuple):
    """A sentence with the number of its subject; of each word its Penn tag and its relation."""

    article: int
    title: str
    words: tuple[str, ...]
    number: int | None  # 0: singular, 1: plural, None: it is not plain
    tags: tuple[str, ...]
    relations: tuple[str, ...]


def wikipedia_tasks(path: Path | None, *, count: int | None, seed: int) -> list[Task]:
    """Return the tasks of a dump or text file (None: gensim's sample).

    ``count`` examples (None: all) are to train on and as many to test, or what the text has.  A
    task of which the text does not have both labels is left out.  Raises CorpusError for a file
    that cannot be read or has too few articles.
    """
    path = sample_path() if path is None else path
    read = progress(articles(path), f"Reading {path.name}", unit=" articles")
    found = [article for article in read if len(article.paragraphs) > 1]
    if len(found) < 4:
        problem = f"{len(found)} articles with two paragraphs; tasks take 4, two of them to test"
        raise CorpusError(path, f"{problem}; give a longer text, with blank lines between articles")
    places = [
        Place(number, article.title, *two)
        for number, article in enumerate(found)
        for two in pairwise(article.paragraphs)
    ]
    kept = cached(
        "tagged-sentences",
        lambda: _parsed(found, count, seed),
        inputs={"file": file_fingerprint(path), "count": count, "seed": seed},
        module=__name__,
    )
    sentences = [Tagged(n, title, tuple(words), *facts) for n, title, words, *facts in kept]
    tasks = []
    for name, examples in ((NEXT, places), (SHIFT, sentences), (NUMBER, sentences)):
        make = next_paragraphs if name == NEXT else partial(labelled_pairs, name)
        held_out = _to_test(Counter(example.article for example in examples), seed)
        parts = [
            make([e for e in examples if (e.article in held_out) == to_test], count, seed)
            for to_test in (False, True)
        ]
        if all(parts):
            tasks.append(Task(name, LABELS[name], *parts))
    return tasks


def tag_words(sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    """Tag and parse sentences that are split into words already, each an article of its own."""
    return [_tagged(number, "", doc[:]) for number, doc in enumerate(parsed_words(sentences))]


def labelled_pairs(
    name: str, sentences: Iterable[Tagged], size: int | None, seed: int
) -> tuple[Pair, ...]:
    """Return at most ``size`` sentences with the labels of `SHIFT` or of `NUMBER`, none twice."""
    generator = random.Random(f"{name} {seed}")
    by_label: list[list[Pair]] = [[], []]
    unique = list({sentence.words: sentence for sentence in sentences}.values())
    for turn, sentence in enumerate(generator.sample(unique, len(unique))):
        words, label = sentence.words, sentence.number
        if name == SHIFT:
            swapped = _swapped(words, generator)
            label = turn % 2 if swapped else None
            words = swapped if label else words
        if label is not None:
            by_label[label].append(Pair(" ".join(words), None, label, sentence.title))
    rarer = min(map(len, by_label))
    per_label = rarer if size is None else min(size // 2, rarer)
    pairs = [pair for pairs_of_label in by_label for pair in pairs_of_label[:per_label]]
    return tuple(generator.sample(pairs, len(pairs)))


def next_paragraphs(places: Sequence[Place], size: int | None, seed: int) -> tuple[Pair, ...]:
    """Return at most ``size`` pairs of paragraphs, of which every other is of two articles.

    The wrong paragraph follows some other one too, so that a paragraph alone tells nothing.
    """
    generator = random.Random(f"{NEXT} {seed}")
    pairs = []
    for turn, place in enumerate(generator.sample(places, capped(size, len(places)))):
        label, after = turn % 2, place
        while label == 0 and after.article == place.article:
            after = generator.choice(places)
        pairs.append(Pair(place.first, after.second, label, place.title))
    return tuple(pairs)


def _to_test(sizes: Mapping[int, int], seed: int) -> set[int]:
    """Return the articles to test on: two or more, with half of all that ``sizes`` counts."""
    order, cut = random.Random(seed).sample(sorted(sizes), len(sizes)), 2
    while cut < len(order) - 2 and 2 * sum(sizes[a] for a in order[:cut]) < sum(sizes.values()):
        cut += 1
    return set(order[:cut])


def _swapped(words: Sequence[str], generator: random.Random) -> list[str] | None:
    """Return the words with two neighbours in each other's place; both are words, and differ."""
    places = [
        i
        for i, (one, other) in enumerate(pairwise(words))
        if one.isalpha() and other.isalpha() and one.lower() != other.lower()
    ]
    if not places:
        return None
    place = generator.choice(places)
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]


def _parsed(articles: Sequence[Article], count: int | None, seed: int) -> list[Tagged]:
    """Return sentences of some articles, enough for tasks of ``count`` train and test examples.

    Paragraphs are parsed in random order until there are `SPARE` times enough subjects of either
    number, or to the end.
    """
    paragraphs = [
        (text, (number, article.title))
        for number, article in enumerate(articles)
        for text in article.paragraphs
    ]
    random.Random(seed).shuffle(paragraphs)
    found, numbers = [], Counter()
    docs = pipeline().pipe(paragraphs, as_tuples=True, batch_size=BATCH)
    read = progress(docs, "Parsing for tasks", unit=" paragraphs", total=len(paragraphs))
    usable = (_tagged(*place, s) for doc, place in read for s in doc.sents if not why_unusable(s))
    for sentence in usable:
        found.append(sentence)
        numbers[sentence.number] += 1
        rarer = min(numbers[number] for number in NOUNS.values())
        if count is not None and rarer >= SPARE * count:
            break
    return found


def _tagged(article: int, title: str, sentence: Span) -> Tagged:
    """Return a sentence with the number of its main clause's subject.

    It is plain of one common noun that nothing is joined to with *and*.
    """
    subjects = [word for word in sentence.root.children if word.dep_.lower() in SUBJECTS]
    joined = any(word.dep_.lower() == "conj" for own in subjects for word in own.children)
    number = NOUNS.get(subjects[0].tag_) if len(subjects) == 1 and not joined else None
    facts = ((word.text, word.tag_, word.dep_.lower()) for word in sentence)
    words, tags, relations = zip(*facts, strict=True)
    return Tagged(article, title, words, number, tags, relations)
