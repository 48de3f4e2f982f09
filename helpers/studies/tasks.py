"""Classification tasks, and their tab-separated files.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns
are found by name, in any order and beside others, so that the files of GLUE are read as they
come (their ``test.tsv`` has no labels: use ``dev.tsv``); CoLA's, which has no header, is known by
its four columns.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from helpers.data import text_files
from helpers.errors import CorpusError

LABEL_COLUMNS = ("gold_label", "label", "is_duplicate", "quality")  # the first one found
FIRST_COLUMNS = ("sentence1", "question1", "question", "#1 string", "sentence")
SECOND_COLUMNS = ("sentence2", "question2", "#2 string", "sentence")
MOST_LABELS = 200  # a file of scores has more, and is no classification
EXPECTED = "expected sentence<TAB>label or sentence<TAB>sentence<TAB>label"


@dataclass(frozen=True)
class Pair:
    """One example: a text, or two (``second``), the number of its label, and what it is from."""

    first: str
    second: str | None
    label: int
    source: str = ""  # the article; unknown in a task of the user's


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
        most = np.bincount([pair.label for pair in self.train]).argmax()
        return float(np.mean([pair.label == most for pair in self.test]))

    def sample(self, *, train: int, test: int, seed: int) -> Task:
        """Return the task with at most so many examples (0: all), drawn with ``seed``."""
        generator = random.Random(seed)
        parts = {}
        for name, size in (("train", train), ("test", test)):
            pairs = getattr(self, name)
            chosen = generator.sample(range(len(pairs)), min(size or len(pairs), len(pairs)))
            parts[name] = tuple(pairs[index] for index in sorted(chosen))
        return replace(self, **parts)


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
    line with other columns than the file's first, an empty text or label, a label in ``test``
    that ``train`` does not have, or one text where ``train`` has two; and for a file without
    examples, with one label only, or with so many that they must be scores.
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
            if (row.second is None) != (rows[0][0].second is None):
                message = f"one of the two files has two texts an example; {EXPECTED} in both"
                raise CorpusError(path, message, row.number)
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
                twice = [cell for cell in cells if cells.count(cell) > 1]
                if twice:
                    problem = f"two columns are called {text_files.quoted(twice[0])}"
                    raise CorpusError(path, f"{problem}; name each once", number)
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
