"""Two classification tasks that label themselves, from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on, where no labelled data is at
hand:

- *next paragraph*: is the second text the paragraph after the first, or one of another article?
- *article*: which of up to 20 articles is a sentence from?

In the first no article is in both train and test; in the second every article must be, and no
paragraph is.  With them come the tasks of `grammar_tasks`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from helpers.data.wikipedia import Article, articles, sample_path
from helpers.errors import CorpusError, InputError
from helpers.progress import progress
from helpers.studies.grammar_tasks import grammar_tasks, tagged_sentences
from helpers.studies.tasks import Pair, Task

NEXT, ARTICLE = "next paragraph", "article"
ARTICLES = 20  # to tell apart
WORDS = range(6, 41)  # words of a sentence
# An end of sentence; not one after an initial.
_END = re.compile(r"(?<![\s.][A-Z])([.!?][\"”’')]?)\s+(?=[\"“‘(]?[A-Z])")


class _Place(NamedTuple):
    article: int
    first: str
    second: str


def wikipedia_tasks(path: Path | None, *, train: int, test: int, seed: int) -> dict[str, Task]:
    """Return the tasks of a dump or text file (None: gensim's sample), by name.

    ``train`` and ``test`` are numbers of examples (fewer where the text has fewer); labels are
    balanced, and with the same seed the examples are the same.  A task of grammar of which the
    text does not have both labels is left out.  Raises CorpusError for a file that cannot be
    read or has too few articles, InputError for counts below 2.
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
    split = partial(_to_test, share=test / (train + test), seed=seed)
    tasks = {
        NEXT: _next_paragraph(found, split, train, test, seed),
        ARTICLE: _article(path, found, train, test, random.Random(seed)),
    }
    parsed = tagged_sentences(path, found, count=train + test, seed=seed)
    return tasks | grammar_tasks(parsed, split, train=train, test=test, seed=seed)


def _to_test(sizes: Mapping[int, int], *, share: float, seed: int) -> set[int]:
    """Return the articles to test on: two or more, with ``share`` of all that ``sizes`` counts."""
    order = random.Random(seed).sample(sorted(sizes), len(sizes))
    total = sum(sizes.values())
    cut = 2
    while cut < len(order) - 2 and sum(sizes[a] for a in order[:cut]) < share * total:
        cut += 1
    return set(order[:cut])


def _next_paragraph(
    found: Sequence[Article],
    split: Callable[[Mapping[int, int]], set[int]],
    train: int,
    test: int,
    seed: int,
) -> Task:
    held_out = split({number: len(own.paragraphs) - 1 for number, own in enumerate(found)})
    places = [_Place(n, *two) for n, own in enumerate(found) for two in pairwise(own.paragraphs)]
    parts = [
        _next(found, [place for place in places if (place.article in held_out) == to_test], n, seed)
        for to_test, n in ((False, train), (True, test))
    ]
    return Task(NEXT, ("another article", "next paragraph"), *parts)


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
            part.extend(Pair(sentence, None, label, found[index].title) for sentence in chosen)
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
    wanted = min(test, total * test / max(train + test, 1))
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
