"""Classification tasks, their tab-separated files, and the tasks that a model learns.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns are
found by name, in any order and next to other columns.  The files of GLUE can be read as they are
(their ``test.tsv`` has no labels, so use ``dev.tsv``), and so can those of CoLA, which have no
header.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from helpers.claims.tables import (
    Tables,
    estimate_in,
    rows_of,
    rows_where,
    select_or_raise,
    with_bounds,
)
from helpers.data.text_files import lines, one_line, quoted
from helpers.errors import CorpusError
from helpers.metrics.statistics import Estimate, wilson_proportion
from helpers.settings import capped

# Values of the columns ``start`` and ``weights`` in tables.
PRETRAINED = "pretrained"
RANDOM = "random"
FINE_TUNED = "fine-tuned"

# Names in headers, in the order in which they are tried.
FIRST_TEXT_NAMES = ("sentence1", "question1", "question", "#1 string", "sentence")
SECOND_TEXT_NAMES = ("sentence2", "question2", "#2 string", "sentence")
LABEL_NAMES = ("gold_label", "label", "is_duplicate", "quality")
EXPECTED = "expected sentence<TAB>label or sentence<TAB>sentence<TAB>label"

RowSelector = Callable[..., pd.DataFrame]  # such as `learned_rows`


@dataclass(frozen=True)
class Pair:
    """One example: a text, or two; the number of its label; and the article it is from."""

    first: str
    second: str | None
    label: int
    source: str = ""  # empty in a task of the user's


@dataclass(frozen=True)
class Task:
    """A classification task; ``labels[pair.label]`` is the name of a label."""

    name: str
    labels: tuple[str, ...]
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]

    @property
    def majority(self) -> float:
        """The share (0-1) of the test examples with the most frequent label of the training set."""
        train_labels = [pair.label for pair in self.train]
        most_frequent = np.bincount(train_labels).argmax()
        return float(np.mean([pair.label == most_frequent for pair in self.test]))

    def sample(self, count: int | None, *, seed: int) -> Task:
        """Sample at most ``count`` training examples (None: all), and as many test examples."""
        generator = random.Random(seed)

        def sample_pairs(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
            chosen = generator.sample(range(len(pairs)), capped(count, len(pairs)))
            return tuple(pairs[index] for index in sorted(chosen))

        train = sample_pairs(self.train)
        test = sample_pairs(self.test)
        return replace(self, train=train, test=test)


class _Row(NamedTuple):
    """One line of a file: its number, its texts, and the name of its label."""

    line: int
    texts: list[str]
    label: str


def learned_rows(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of the tasks that the pretrained model learns, according to fine_tuning.csv.

    NotMeasurable if there are none.
    """
    accuracy = rows_of(tables, "fine_tuning", "task", "start", "learned")
    is_learned = (accuracy["start"] == PRETRAINED) & accuracy["learned"].astype(bool)
    learned_tasks = accuracy.loc[is_learned, "task"]
    rows = rows_of(tables, table, "task", *columns)
    problem = "no task is learned beyond what its words give away"
    return select_or_raise(rows, rows["task"].isin(learned_tasks), problem)


def minimum_over_tasks(
    tables: Tables,
    table: str,
    column: str,
    *,
    select: RowSelector = learned_rows,
    **where: Any,
) -> Estimate:
    """Find the smallest value of a column over tasks, with its interval.

    ``select`` selects the tasks; ``where`` are the values that other columns must have.
    """
    rows = rows_where(select(tables, table, *with_bounds(column), *where), **where)
    return estimate_in(rows.sort_values(column).iloc[0], column)


def smallest_share(tables: Tables, table: str, column: str, *, select: RowSelector) -> Estimate:
    """Find the smallest share of true values in a column over tasks, with Wilson's interval."""
    by_task = select(tables, table, column).groupby("task")[column]
    shares = [wilson_proportion(values.sum(), len(values)) for _, values in by_task]
    return min(shares)


def read_task(train: Path, test: Path) -> Task:
    """Read a task from two tab-separated files, which may be packed with gzip or bzip2.

    The labels are those of ``train``: whole numbers in numerical order, others alphabetically.

    Raises
    ------
    CorpusError
        If a line has another number of columns than the first line, or an empty text or label; if
        ``test`` has a label or a number of texts that ``train`` does not have; or if there is only
        one label, or so many that they must be scores.  The message names the line.
    """
    train_rows = _rows(train)
    test_rows = _rows(test)
    names = sorted({row.label for row in train_rows}, key=_label_order)
    if not 2 <= len(names) <= max(2, len(train_rows) // 2):
        problem = f"{len(names)} labels in {len(train_rows)} examples"
        raise CorpusError(train, f"{problem}; expected two classes or more, not scores; {EXPECTED}")
    numbers = {name: number for number, name in enumerate(names)}
    train_texts = len(train_rows[0].texts)
    for row in test_rows:
        if row.label not in numbers:
            problem = f"the label {quoted(row.label)} is not in {train.name}"
            raise CorpusError(test, problem, row.line)
        if len(row.texts) != train_texts:
            problem = f"{len(row.texts)} texts, {train.name} has {train_texts}"
            raise CorpusError(test, f"{problem}; {EXPECTED} in both", row.line)
    return Task(
        name=train.name.partition(".")[0] or "task",
        labels=tuple(names),
        train=_pairs(train_rows, numbers),
        test=_pairs(test_rows, numbers),
    )


def _label_order(name: str) -> str:
    """Make a sorting key of a label: whole numbers sort by their value."""
    return name.zfill(9) if name.isdecimal() else name


def _pairs(rows: Sequence[_Row], numbers: Mapping[str, int]) -> tuple[Pair, ...]:
    """Convert rows to examples; ``numbers`` has the number of each label."""
    pairs = []
    for row in rows:
        first = row.texts[0]
        second = row.texts[1] if len(row.texts) == 2 else None
        pairs.append(Pair(first, second, numbers[row.label]))
    return tuple(pairs)


def _rows(path: Path) -> list[_Row]:
    """Read the lines of a file that are not empty, without the header."""
    columns = None
    width = 0
    rows = []
    for number, line in lines(path):
        cells = [one_line(cell) for cell in line.split("\t")]
        if not any(cells):
            continue
        if columns is None:
            width = len(cells)
            columns, is_header = _columns(path, number, cells)
            if is_header:
                continue
        if len(cells) != width:
            problem = f"{len(cells)} columns, expected {width} as in the first line"
            raise CorpusError(path, problem, number)
        *texts, label = [cells[column] for column in columns]
        if not all([*texts, label]):
            raise CorpusError(path, f"a text or the label is empty; {EXPECTED}", number)
        rows.append(_Row(number, texts, label))
    if not rows:
        raise CorpusError(path, f"no examples; {EXPECTED}")
    return rows


def _columns(path: Path, number: int, cells: Sequence[str]) -> tuple[list[int], bool]:
    """Find the columns of the texts and the label (last), and whether the line is a header."""
    named_columns = _named_columns(cells)
    if named_columns:
        return named_columns, True
    count = len(cells)
    if count == 4 and cells[1] in ("0", "1") and cells[2] in ("", "*"):
        return [3, 1], False  # CoLA
    if count not in (2, 3):
        header = f"or a header that names a label ({', '.join(LABEL_NAMES)})"
        raise CorpusError(path, f"{count} columns; {EXPECTED}, {header}", number)
    return list(range(count)), False


def _named_columns(cells: Sequence[str]) -> list[int]:
    """Find the columns that a header names; none if it names no text or no label."""
    names = [cell.lower() for cell in cells]
    columns = []
    for candidates in (FIRST_TEXT_NAMES, SECOND_TEXT_NAMES, LABEL_NAMES):
        present = [name for name in candidates if name in names]
        if present:
            column = names.index(present[0])
            names[column] = ""  # two columns may both be called "sentence"
            columns.append(column)
        elif candidates is not SECOND_TEXT_NAMES:
            return []
    return columns
