"""Three classification tasks that label themselves, from articles split into paragraphs.

They stand in for GLUE, which Kovaleva et al. (2019) fine-tune on, where no labelled data is at
hand:

- *next paragraph*: is the second text the paragraph after the first, or one of another article?
- *order*: do two neighbouring paragraphs come in their order, or swapped?
- *article*: which of up to 20 articles is a sentence from?

In the first two no article is in both train and test; in the third every article must be, and
no paragraph is.  Tab-separated files of the user's are tasks too: see `read_task`.

Classification tasks, and their tab-separated files.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns
are found by name, in any order and beside others, so that the files of GLUE are read as they
come (their ``test.tsv`` has no labels: use ``dev.tsv``); CoLA's, which has no header, is known by
its four columns.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from helpers.data import text_files
from helpers.data.wikipedia import Article, articles, sample_path
from helpers.errors import CorpusError, InputError
from helpers.progress import progress

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


LABEL_COLUMNS = ("gold_label", "label", "is_duplicate", "quality")  # the first one found
FIRST_COLUMNS = ("sentence1", "question1", "question", "#1 string", "sentence")
SECOND_COLUMNS = ("sentence2", "question2", "#2 string", "sentence")
MOST_LABELS = 200  # a file of scores has more, and is no classification
EXPECTED = "expected sentence<TAB>label or sentence<TAB>sentence<TAB>label"


@dataclass(frozen=True)
class Pair:
    """One example: a text, or two (``second``), and the number of its label."""

    first: str
    second: str | None
    label: int


@dataclass(frozen=True)
class Task:
    """A classification task; ``labels[pair.label]`` is what a label is called."""

    name: str
    labels: tuple[str, ...]
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything in the task, in hexadecimal."""
        parts = [[[p.first, p.second, p.label] for p in part] for part in (self.train, self.test)]
        content = json.dumps([self.name, self.labels, parts])
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def majority(self) -> float:
        """The share of the test examples that the most frequent label of train gets right."""
        counts = [sum(pair.label == label for pair in self.train) for label in self._numbers]
        most = counts.index(max(counts))
        return sum(pair.label == most for pair in self.test) / len(self.test)

    def sample(self, *, train: int, test: int, seed: int) -> Task:
        """Return the task with at most so many examples (0: all), drawn with ``seed``."""
        generator = random.Random(seed)
        parts = {}
        for name, size in (("train", train), ("test", test)):
            pairs = getattr(self, name)
            chosen = generator.sample(range(len(pairs)), min(size or len(pairs), len(pairs)))
            parts[name] = tuple(pairs[index] for index in sorted(chosen))
        return replace(self, **parts)

    @property
    def _numbers(self) -> range:
        return range(len(self.labels))


class _Row(NamedTuple):
    number: int  # of the line
    first: str
    second: str | None
    label: str


class _Columns(NamedTuple):
    first: int
    second: int | None
    label: int
    count: int


def read_task(train: Path, test: Path) -> Task:
    """Return the task of two tab-separated files (packed with gzip or bzip2, if need be).

    The labels are those of ``train``, in the order of their numbers if they are whole numbers,
    else of the alphabet.  Blank lines are passed over.  Raises CorpusError, with the line, for a
    line with other columns than the file's first, an empty text or label, or a label in
    ``test`` that ``train`` does not have; and for a file without examples, with one label only,
    or with so many that they must be scores.
    """
    train, test = Path(train), Path(test)
    rows = [_rows(path) for path in (train, test)]
    names = sorted({row.label for row in rows[0]}, key=_number_then_name)
    if len(names) < 2:
        raise CorpusError(train, f"every label is {text_files.quoted(names[0])}; a task takes two")
    if len(names) > min(MOST_LABELS, max(2, len(rows[0]) // 2)):
        raise CorpusError(
            train, f"{len(names)} labels in {len(rows[0])} examples; expected classes, not scores"
        )
    numbers = {name: number for number, name in enumerate(names)}
    parts = []
    for path, part in zip((train, test), rows, strict=True):
        for row in part:
            if row.label not in numbers:
                message = f"the label {text_files.quoted(row.label)} is not in {train.name}"
                raise CorpusError(path, message, row.number)
        parts.append(tuple(Pair(row.first, row.second, numbers[row.label]) for row in part))
    return Task(train.name.partition(".")[0] or "task", tuple(names), *parts)


def _rows(path: Path) -> list[_Row]:
    columns, rows = None, []
    for number, line in text_files.lines(path):
        if not line.strip():
            continue
        cells = [text_files.one_line(cell) for cell in line.split("\t")]
        if columns is None:
            columns = _header(cells)
            if columns is not None:
                continue
            columns = _by_position(path, number, cells)
        rows.append(_row(path, number, cells, columns))
    if not rows:
        raise CorpusError(path, f"no examples; {EXPECTED}")
    return rows


def _header(cells: Sequence[str]) -> _Columns | None:
    """Return the columns that a header names, or None for a first line that is no header."""
    names = [cell.lower() for cell in cells]
    label, first = (_found(names, known) for known in (LABEL_COLUMNS, FIRST_COLUMNS))
    if label is None or first is None:
        return None
    second = _found(names, SECOND_COLUMNS)
    return _Columns(first, None if second == first else second, label, len(cells))


def _found(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _by_position(path: Path, number: int, cells: Sequence[str]) -> _Columns:
    count = len(cells)
    if count == 4 and cells[1] in ("0", "1") and cells[2] in ("", "*"):
        return _Columns(first=3, second=None, label=1, count=count)  # CoLA
    if count not in (2, 3):
        names = ", ".join(LABEL_COLUMNS)
        message = f"{count} columns; {EXPECTED}, or a header that names a label ({names})"
        raise CorpusError(path, message, number)
    return _Columns(0, 1 if count == 3 else None, count - 1, count)


def _row(path: Path, number: int, cells: Sequence[str], columns: _Columns) -> _Row:
    if len(cells) != columns.count:
        message = f"{len(cells)} columns, expected {columns.count} as in the first line"
        raise CorpusError(path, message, number)
    values = [None if i is None else cells[i] for i in columns[:3]]
    if "" in values:
        empty = ("first text", "second text", "label")[values.index("")]
        raise CorpusError(path, f"the {empty} is empty; {EXPECTED}", number)
    return _Row(number, *values)


def _number_then_name(label: str) -> tuple[bool, int, str]:
    whole = label.removeprefix("-").isdecimal() and len(label) < 10
    return (not whole, int(label) if whole else 0, label)
