"""Three classification tasks that label themselves, from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on, where no labelled data is at
hand:

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

import pandas as pd

from helpers.cache import cached_table
from helpers.data.silver_treebank import BATCH, pipeline, why_unusable
from helpers.data.text_files import file_fingerprint
from helpers.data.wikipedia import Article, articles, sample_path
from helpers.errors import CorpusError, InputError
from helpers.progress import progress
from helpers.studies.tasks import Pair, Task

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


class Tagged(NamedTuple):
    """A sentence; of each word its Penn tag, its head (1: first word, 0: root) and relation."""

    article: int
    title: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


class _Place(NamedTuple):
    article: int
    first: str
    second: str


def wikipedia_tasks(path: Path | None, *, train: int, test: int, seed: int) -> list[Task]:
    """Return the tasks of a dump or text file (None: gensim's sample).

    ``train`` and ``test`` are numbers of examples (fewer where the text has fewer); labels are
    balanced, and with the same seed the examples are the same.  A task of which the text does not
    have both labels is left out.  Raises CorpusError for a file that cannot be read or has too
    few articles, InputError for counts below 2.
    """
    if min(train, test) < 2:
        raise InputError(f"tasks of {train} train and {test} test examples; ask for 2 or more")
    path = sample_path() if path is None else path
    read = progress(articles(path), f"Reading {path.name}", unit=" articles")
    found = [article for article in read if len(article.paragraphs) > 1]
    if len(found) < 4:
        raise CorpusError(
            path,
            f"{len(found)} articles with two paragraphs; tasks take 4 (two to train on and two to "
            "test); give a longer text, with blank lines between its documents",
        )
    places = [_Place(n, *two) for n, own in enumerate(found) for two in pairwise(own.paragraphs)]
    sentences = tagged_sentences(path, found, count=train + test, seed=seed)
    makers = {NEXT: (places, partial(_next, found))}
    makers |= {name: (sentences, partial(labelled_pairs, name)) for name in (SHIFT, NUMBER)}
    tasks = []
    for name, (examples, make) in makers.items():
        sizes = Counter(example.article for example in examples)
        held_out = _to_test(sizes, share=test / (train + test), seed=seed)
        parts = [
            make([e for e in examples if (e.article in held_out) == to_test], size, seed)
            for to_test, size in ((False, train), (True, test))
        ]
        if all(parts):
            tasks.append(Task(name, LABELS[name], *parts))
    return tasks


def tagged_sentences(
    path: Path, articles: Sequence[Article], *, count: int, seed: int
) -> list[Tagged]:
    """Return sentences of some articles of ``path``, enough for tasks of ``count`` examples.

    Paragraphs are parsed in random order until there are `SPARE` times enough subjects of either
    number, or to the end.  What was parsed is kept in the cache.
    """
    table = cached_table(
        "tagged-sentences",
        lambda: pd.DataFrame(_parsed(articles, count, seed), columns=Tagged._fields),
        depends_on={"file": file_fingerprint(path), "count": count, "seed": seed},
    )
    return [_from_row(*row) for row in table.itertuples(index=False)]


def tag_words(sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    """Tag and parse sentences that are split into words already, each an article of its own."""
    from spacy.tokens import Doc

    nlp = pipeline()
    docs = (
        Doc(nlp.vocab, words=list(words), sent_starts=[i == 0 for i in range(len(words))])
        for words in sentences
    )
    read = progress(nlp.pipe(docs), "Tagging", unit=" sentences", total=len(sentences))
    return [_tagged(number, "", doc[:]) for number, doc in enumerate(read)]


def labelled_pairs(
    name: str, sentences: Iterable[Tagged], size: int, seed: int
) -> tuple[Pair, ...]:
    """Return at most ``size`` sentences with the labels of `SHIFT` or of `NUMBER`.

    As many of the one label as of the other; no sentence comes twice.
    """
    generator = random.Random(f"{name} {seed}")
    by_label: list[list[Pair]] = [[], []]
    unique = list({sentence.words: sentence for sentence in sentences}.values())
    for number, sentence in enumerate(generator.sample(unique, len(unique))):
        words: Sequence[str] = sentence.words
        if name == NUMBER:
            label = number_of_subject(sentence)
        else:
            swapped = _swapped(words, generator)
            label = number % 2 if swapped else None
            words = swapped if label else words
        if label is not None:
            by_label[label].append(Pair(" ".join(words), None, label, sentence.title))
    each = min(size // 2, *map(len, by_label))
    pairs = [pair for own in by_label for pair in own[:each]]
    return tuple(generator.sample(pairs, len(pairs)))


def number_of_subject(sentence: Tagged) -> int | None:
    """Return the number of the main clause's subject (0: singular); None where it is not plain.

    A subject is one common noun that nothing is joined to with *and*.
    """
    root = sentence.heads.index(0)
    links = list(zip(sentence.heads, sentence.relations, strict=True))
    wanted = [(root + 1, relation) for relation in SUBJECTS]
    subjects = [i for i, link in enumerate(links) if link in wanted]
    if len(subjects) != 1 or (subjects[0] + 1, "conj") in links:
        return None
    return NOUNS.get(sentence.tags[subjects[0]])


def _to_test(sizes: Mapping[int, int], *, share: float, seed: int) -> set[int]:
    """Return the articles to test on: two or more, with ``share`` of all that ``sizes`` counts."""
    order = random.Random(seed).sample(sorted(sizes), len(sizes))
    total = sum(sizes.values())
    cut = 2
    while cut < len(order) - 2 and sum(sizes[a] for a in order[:cut]) < share * total:
        cut += 1
    return set(order[:cut])


def _next(
    found: Sequence[Article], places: Sequence[_Place], size: int, seed: int
) -> tuple[Pair, ...]:
    """Return pairs of which every other is of two articles.

    The wrong paragraph follows some other one too, so that a paragraph alone tells nothing.
    """
    generator = random.Random(f"{NEXT} {seed}")
    pairs = []
    for number, place in enumerate(generator.sample(places, min(size, len(places)))):
        label, after = number % 2, place
        while label == 0 and after.article == place.article:
            after = generator.choice(places)
        pairs.append(Pair(place.first, after.second, label, found[place.article].title))
    return tuple(pairs)


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


def _parsed(articles: Sequence[Article], count: int, seed: int) -> list[tuple]:
    paragraphs = [
        (text, (number, article.title))
        for number, article in enumerate(articles)
        for text in article.paragraphs
    ]
    random.Random(seed).shuffle(paragraphs)
    found, labels = [], Counter()
    docs = pipeline().pipe(paragraphs, as_tuples=True, batch_size=BATCH)
    read = progress(docs, "Parsing for tasks", unit=" paragraphs", total=len(paragraphs))
    usable = (_tagged(*place, s) for doc, place in read for s in doc.sents if not why_unusable(s))
    for sentence in usable:
        found.append(_to_row(sentence))
        labels[number_of_subject(sentence)] += 1
        if min(labels[label] for label in NOUNS.values()) >= SPARE * count / 2:
            break
    return found


def _tagged(article: int, title: str, span: Span) -> Tagged:
    heads = tuple(0 if w.head.i == w.i else w.head.i - span.start + 1 for w in span)
    tags, relations = zip(*((word.tag_, word.dep_.lower()) for word in span), strict=True)
    return Tagged(article, title, tuple(word.text for word in span), tags, heads, relations)


def _to_row(sentence: Tagged) -> tuple:
    joined = (" ".join(map(str, part)) for part in sentence[2:])
    return sentence.article, sentence.title, *joined


def _from_row(article: int, title: str, *parts: str) -> Tagged:
    words, tags, heads, relations = (tuple(str(part).split(" ")) for part in parts)
    return Tagged(article, str(title), words, tags, tuple(map(int, heads)), relations)
