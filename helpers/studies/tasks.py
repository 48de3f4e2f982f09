"""Classification tasks, their tab-separated files, and which of them a model learns.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns
are found by name, in any order and beside others: the files of GLUE are read as they come (their
``test.tsv`` has no labels: use ``dev.tsv``), CoLA's without a header, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.analysis.paper import Tables, chosen_rows, rows_of, with_bounds
from helpers.analysis.statistics import Estimate, share_of
from helpers.data.text_files import lines, one_line, quoted
from helpers.errors import CorpusError
from helpers.settings import capped

PRETRAINED, RANDOM = "pretrained", "random"  # weights that a fine-tuning starts from
FINE_TUNED = "fine-tuned"  # weights that it ends with
COLUMNS = (  # of the first text, of the second and of the label: the first name that is found
    ("sentence1", "question1", "question", "#1 string", "sentence"),
    ("sentence2", "question2", "#2 string", "sentence"),
    ("gold_label", "label", "is_duplicate", "quality"),
)
Rows = Callable[..., pd.DataFrame]  # such as `learned_rows`
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

    @property
    def majority(self) -> float:
        """The share of the test examples that the most frequent label of train gets right."""
        most = np.bincount([pair.label for pair in self.train]).argmax()
        return float(np.mean([pair.label == most for pair in self.test]))

    def sample(self, count: int | None, *, seed: int) -> Task:
        """Sample at most ``count`` examples (None: all) to train on, and as many to test on."""
        generator = random.Random(seed)

        def some(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
            chosen = generator.sample(range(len(pairs)), capped(count, len(pairs)))
            return tuple(pairs[index] for index in sorted(chosen))

        return replace(self, train=some(self.train), test=some(self.test))


def learned_rows(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a table's rows of the tasks that are learned beyond baselines, by ``fine_tuning``."""
    accuracy = rows_of(tables, "fine_tuning", "task", "start", "learned")
    own = (accuracy["start"] == PRETRAINED) & accuracy["learned"].astype(bool)
    rows = rows_of(tables, table, "task", *columns)
    chosen = rows["task"].isin(accuracy.loc[own, "task"])
    return chosen_rows(rows, chosen, "no task is learned beyond what its words give away")


def worst(
    tables: Tables, table: str, column: str, interval: str = "ci", *, of: Rows = learned_rows,
    **where: Any,
) -> Estimate:  # fmt: skip
    """Return the smallest number of a column over tasks, with its interval, in rows with values."""
    columns = with_bounds(column, interval)
    rows = of(tables, table, *columns, *where)
    chosen = (rows[list(where)] == pd.Series(where, dtype=object)).all(axis=1)
    return Estimate(*chosen_rows(rows, chosen, f"{where}").sort_values(column)[columns].iloc[0])


def smallest_share(tables: Tables, table: str, column: str, *, of: Rows) -> Estimate:
    """Return the smallest share of a task's rows that have something, with Wilson's interval."""
    by_task = of(tables, table, column).groupby("task")[column]
    return min(share_of(own.sum(), len(own)) for _, own in by_task)


def read_task(train: Path, test: Path) -> Task:
    """Return the task of two tab-separated files (packed with gzip or bzip2, if need be).

    The labels are those of ``train``, whole numbers in their order, others in the alphabet's.
    CorpusError, with the line, where its columns are not those of the first one, a text or
    label is empty, or ``test`` has another label or number of texts than ``train``; or there are
    one label only, or so many that they must be scores.
    """
    to_train, to_test = _rows(train), _rows(test)
    found = {label for _, (*_, label) in to_train}
    names = sorted(found, key=lambda name: name.zfill(9) if name.isdecimal() else name)
    if not 2 <= len(names) <= max(2, len(to_train) // 2):
        problem = f"{len(names)} labels in {len(to_train)} examples"
        raise CorpusError(train, f"{problem}; expected two classes or more, not scores; {EXPECTED}")
    labels = {name: number for number, name in enumerate(names)}
    texts = len(to_train[0][1]) - 1
    for number, (*own, label) in to_test:
        if label not in labels:
            raise CorpusError(test, f"the label {quoted(label)} is not in {train.name}", number)
        if len(own) != texts:
            problem = f"{len(own)} texts, {train.name} has {texts}; {EXPECTED} in both"
            raise CorpusError(test, problem, number)
    parts = (
        tuple(Pair(*own, *[None] * (2 - texts), labels[label]) for _, (*own, label) in rows)
        for rows in (to_train, to_test)
    )
    return Task(train.name.partition(".")[0] or "task", tuple(names), *parts)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the number of each line, and its texts and label."""
    chosen, width, rows = None, 0, []
    for number, line in lines(path):
        cells = [one_line(cell) for cell in line.split("\t")]
        if not any(cells):
            continue
        if chosen is None:
            width, (chosen, header) = len(cells), _columns(path, number, cells)
            if header:
                continue
        if len(cells) != width:
            problem = f"{len(cells)} columns, expected {width} as in the first line"
            raise CorpusError(path, problem, number)
        row = [cells[place] for place in chosen]
        if not all(row):
            raise CorpusError(path, f"a text or the label is empty; {EXPECTED}", number)
        rows.append((number, row))
    if not rows:
        raise CorpusError(path, f"no examples; {EXPECTED}")
    return rows


def _columns(path: Path, number: int, cells: Sequence[str]) -> tuple[list[int], bool]:
    """Return the columns of the texts and of the label; whether the line is a header."""
    names, places = [cell.lower() for cell in cells], []
    for known in COLUMNS:
        place = next((names.index(name) for name in known if name in names), None)
        if place is not None:
            names[place] = ""  # two columns may both be called "sentence"
        places.append(place)
    first, _, label = places
    if first is not None and label is not None:
        return [place for place in places if place is not None], True
    count = len(cells)
    if count == 4 and cells[1] in ("0", "1") and cells[2] in ("", "*"):
        return [3, 1], False  # CoLA
    if count not in (2, 3):
        header = f"or a header that names a label ({', '.join(COLUMNS[-1])})"
        raise CorpusError(path, f"{count} columns; {EXPECTED}, {header}", number)
    return list(range(count)), False
