"""Three classification tasks that label themselves, from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on, where no labelled data is at
hand:

- *next paragraph*: is the second text the paragraph after the first, or one of another article?
- *order*: do two neighbouring paragraphs come in their order, or swapped?
- *article*: which of up to 20 articles is a sentence from?

In the first two no article is in both train and test; in the third every article must be, and
no paragraph is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from helpers.data.wikipedia import Article, articles, sample_path
from helpers.errors import CorpusError, InputError
from helpers.progress import progress
from helpers.studies.tasks import Pair, Task

NEXT, ORDER, ARTICLE = "next paragraph", "order", "article"
ARTICLES = 20  # to tell apart
WORDS = range(6, 41)  # words of a sentence
# An end of sentence; not one after an initial.
_END = re.compile(r"(?<![\s.][A-Z])([.!?][\"”’')]?)\s+(?=[\"“‘(]?[A-Z])")


class _Place(NamedTuple):
    article: int
    paragraph: int


def wikipedia_tasks(path: Path | None, *, train: int, test: int, seed: int) -> dict[str, Task]:
    """Return the three tasks of a dump or text file (None: gensim's sample), by name.

    ``train`` and ``test`` are numbers of examples (fewer where the text has fewer); labels are
    balanced, and with the same seed the examples are the same.  Raises CorpusError for a file
    that cannot be read or has too few articles, InputError for counts below 2.
    """
    if min(train, test) < 2:
        raise InputError(f"tasks of {train} train and {test} test examples; ask for 2 or more")
    path = sample_path() if path is None else path
    read = progress(articles(path), f"Reading {path.name}", unit=" articles")
    found = [article for article in read if len(article.paragraphs) > 1]
    splits = _split(path, found, test / (train + test), random.Random(seed))
    sizes = (train, test)
    return {
        NEXT: Task(
            NEXT,
            ("another article", "next paragraph"),
            *(_next(found, places, size, seed) for places, size in zip(splits, sizes, strict=True)),
        ),
        ORDER: Task(
            ORDER,
            ("swapped", "in order"),
            *(_order(found, places, n, seed) for places, n in zip(splits, sizes, strict=True)),
        ),
        ARTICLE: _article(path, found, train, test, random.Random(seed)),
    }


def _split(
    path: Path, found: Sequence[Article], test_share: float, generator: random.Random
) -> tuple[list[_Place], list[_Place]]:
    """Return the places where a next paragraph follows: those of train articles, and of test."""
    if len(found) < 4:
        raise CorpusError(
            path,
            f"{len(found)} articles with two paragraphs; tasks take 4 (two to train on and two to "
            "test); give a longer text, with blank lines between its documents",
        )
    order = generator.sample(range(len(found)), len(found))
    pairs = [len(found[index].paragraphs) - 1 for index in order]
    cut = next(n for n in range(2, len(order)) if sum(pairs[:n]) >= test_share * sum(pairs))
    cut = min(cut, len(order) - 2)
    in_test = set(order[:cut])
    places: tuple[list[_Place], list[_Place]] = ([], [])
    for index, article in enumerate(found):
        part = places[index in in_test]
        part.extend(_Place(index, place) for place in range(len(article.paragraphs) - 1))
    return places


def _next(
    found: Sequence[Article], places: Sequence[_Place], size: int, seed: int
) -> tuple[Pair, ...]:
    """Return pairs of which every other is of two articles.

    The wrong paragraph follows some other one too, so that a paragraph alone tells nothing.
    """
    generator = random.Random(f"{NEXT} {seed}")
    pairs = []
    for label, place in _labelled(places, size, generator):
        after = place
        while label == 0 and after.article == place.article:
            after = generator.choice(places)
        first, _ = _neighbours(found, place)
        _, second = _neighbours(found, after)
        pairs.append(Pair(first, second, label))
    return tuple(pairs)


def _order(
    found: Sequence[Article], places: Sequence[_Place], size: int, seed: int
) -> tuple[Pair, ...]:
    """Return neighbouring paragraphs, every other pair of them swapped."""
    generator = random.Random(f"{ORDER} {seed}")
    pairs = []
    for label, place in _labelled(places, size, generator):
        first, second = _neighbours(found, place)
        pairs.append(Pair(first, second, 1) if label else Pair(second, first, 0))
    return tuple(pairs)


def _labelled(
    places: Sequence[_Place], size: int, generator: random.Random
) -> Iterator[tuple[int, _Place]]:
    """Yield places in random order, with the labels 0 and 1 in turn."""
    chosen = generator.sample(places, min(size, len(places)))
    for number, place in enumerate(chosen):
        yield number % 2, place


def _neighbours(found: Sequence[Article], place: _Place) -> tuple[str, str]:
    paragraphs = found[place.article].paragraphs
    return paragraphs[place.paragraph], paragraphs[place.paragraph + 1]


def _article(
    path: Path, found: Sequence[Article], train: int, test: int, generator: random.Random
) -> Task:
    """Return the sentences of the articles with the most, as many of each."""
    by_article = [[sentences(paragraph) for paragraph in a.paragraphs] for a in found]
    sizes = [sum(map(len, paragraphs)) for paragraphs in by_article]
    largest = sorted(range(len(found)), key=lambda index: -sizes[index])[:ARTICLES]
    largest = sorted(index for index in largest if sum(map(bool, by_article[index])) > 1)
    if len(largest) < 2:
        raise CorpusError(path, "fewer than two articles with sentences in two paragraphs")
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for label, index in enumerate(largest):
        share = [size // len(largest) + (label < size % len(largest)) for size in (train, test)]
        for part, chosen in zip(parts, _parted(by_article[index], *share, generator), strict=True):
            part.extend(Pair(sentence, None, label) for sentence in chosen)
    for part in parts:
        generator.shuffle(part)
    labels = tuple(found[index].title for index in largest)
    return Task(ARTICLE, labels, *map(tuple, parts))


def _parted(
    paragraphs: Sequence[list[str]], train: int, test: int, generator: random.Random
) -> tuple[list[str], list[str]]:
    """Return sentences to train on and to test, of different paragraphs."""
    order = [p for p in generator.sample(paragraphs, len(paragraphs)) if p]
    total = sum(map(len, order))
    wanted = min(test, total * test / (train + test))
    cut = next(n for n in range(1, len(order) + 1) if sum(map(len, order[:n])) >= wanted)
    cut = min(cut, len(order) - 1)
    own, others = ([s for p in part for s in p] for part in (order[cut:], order[:cut]))
    return tuple(
        generator.sample(part, min(size, len(part)))
        for part, size in ((own, train), (others, test))
    )


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph that have 6 to 40 words."""
    ends = [match.end(1) for match in _END.finditer(paragraph)]
    cuts = [0, *ends, len(paragraph)]
    found = (paragraph[a:b].strip() for a, b in pairwise(cuts))
    return [sentence for sentence in found if len(sentence.split()) in WORDS]
