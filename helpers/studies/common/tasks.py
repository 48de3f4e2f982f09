"""Classification tasks, their tab-separated files, and the tasks that a model learns.

A line is ``sentence<TAB>label`` or ``sentence<TAB>sentence<TAB>label``.  With a header, columns are
found by name, in any order and next to other columns.  The files of GLUE can be read as they are
(their ``test.tsv`` has no labels, so use ``dev.tsv``), and so can those of CoLA, which have no
header.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

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
from helpers.metrics.statistics import Estimate
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

MOST_DAMAGED = 0.01  # damaged lines per example; a file with more has another format

Example = tuple[list[str], str]  # the texts, and the name of the label
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

    def sample(self, count: int | None, *, seed: int) -> Task:
        """Sample at most ``count`` training examples (None: all), and as many test examples."""
        generator = random.Random(seed)
        samples = []
        for pairs in (self.train, self.test):
            chosen = generator.sample(range(len(pairs)), capped(count, len(pairs)))
            samples.append(tuple(pairs[index] for index in sorted(chosen)))
        train, test = samples
        return replace(self, train=train, test=test)


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


def estimates_by_task(
    tables: Tables,
    table: str,
    column: str,
    *,
    select: RowSelector = learned_rows,
    clusters: str = "",
    **where: Any,
) -> dict[str, Estimate]:
    """Read a number and its interval for each task, except where it is NaN.

    ``select`` selects the tasks; ``where`` are the values that other columns must have.
    ``clusters`` is the column with the number of clusters of the interval, for example of seeds;
    without it, they are the heads of the model, which are many.
    """
    rows = select(tables, table, *with_bounds(column), *where).dropna(subset=column)
    estimates = {}
    for _, row in rows_where(rows, **where).drop_duplicates("task").iterrows():
        df = row[clusters] - 1 if clusters else np.inf
        estimates[row["task"]] = estimate_in(row, column, df=df)
    return estimates


def smallest_over_tasks(estimates: Collection[Estimate]) -> Estimate:
    """Find the smallest of the estimates of some tasks.

    Its upper bound is wider, because it was chosen (Bonferroni over the tasks).
    """
    smallest = min(estimates)
    margin = bonferroni_factor(len(estimates)) * (smallest.high - smallest.value)
    return replace(smallest, high=smallest.value + margin)


def bonferroni_factor(count: int) -> float:
    """Compute how many times as wide a 95% interval is if it is one of ``count``."""
    return float(norm.isf(0.025 / count) / norm.isf(0.025))


def read_task(train: Path, test: Path) -> Task:
    """Read a task from two tab-separated files, which may be packed with gzip or bzip2.

    The labels are those of ``train``, in alphabetical order.  The task is named after the file
    ``train``, or after its folder if the file is called "train", as in GLUE.  Damaged lines are
    skipped, and a message counts them.

    Raises
    ------
    CorpusError
        If a file has no label or more than `MOST_DAMAGED` damaged lines (the message names the
        first); if ``test`` has a label or a number of texts that ``train`` does not have; or if
        there is only one label, or so many that they must be scores.
    """
    train_examples = _read_examples(train)
    test_examples = _read_examples(test)
    labels = sorted({label for _, label in train_examples})
    if not 2 <= len(labels) <= max(2, len(train_examples) // 2):
        problem = f"{len(labels)} labels in {len(train_examples)} examples"
        raise CorpusError(train, f"{problem}; expected two classes or more, not scores; {EXPECTED}")
    train_texts = len(train_examples[0][0])
    test_texts = len(test_examples[0][0])
    if test_texts != train_texts:
        problem = f"{test_texts} texts, {train.name} has {train_texts}"
        raise CorpusError(test, f"{problem}; {EXPECTED} in both")
    numbers = {label: number for number, label in enumerate(labels)}
    new_labels = {label for _, label in test_examples}.difference(labels)
    if new_labels:
        problem = f"the label {quoted(min(new_labels))} is not in {train.name}"
        raise CorpusError(test, f"{problem}; use a file with labels, such as GLUE's dev.tsv")

    def make_pairs(examples: Sequence[Example]) -> tuple[Pair, ...]:
        pairs = []
        for texts, label in examples:
            second = texts[1] if len(texts) == 2 else None
            pairs.append(Pair(texts[0], second, numbers[label]))
        return tuple(pairs)

    name = train.name.partition(".")[0]
    return Task(
        name=train.parent.name if name == "train" else name,
        labels=tuple(labels),
        train=make_pairs(train_examples),
        test=make_pairs(test_examples),
    )


def _read_examples(path: Path) -> list[Example]:
    """Read the texts and the label of each line that is neither empty, damaged nor a header."""
    columns = []
    width = 0
    examples = []
    damaged = []  # numbers of lines
    for number, line in lines(path):
        cells = [one_line(cell) for cell in line.split("\t")]
        if not any(cells):
            continue
        if not columns:
            width = len(cells)
            columns, is_header = _find_columns(path, number, cells)
            if is_header:
                continue
        if len(cells) != width or not all(cells[column] for column in columns):
            damaged.append(number)
            continue
        *texts, label = [cells[column] for column in columns]
        examples.append((texts, label))
    if len(damaged) > MOST_DAMAGED * len(examples):
        problem = f"not {width} columns as in the first line, or a text or the label is empty"
        raise CorpusError(path, f"{problem}; {EXPECTED}", damaged[0])
    if not examples:
        raise CorpusError(path, f"no examples; {EXPECTED}")
    if damaged:
        counted = f"{len(damaged)} damaged lines are skipped, the first is line {damaged[0]}"
        print(f"{path}: {counted}", file=sys.stderr)
    return examples


def _find_columns(path: Path, number: int, cells: Sequence[str]) -> tuple[list[int], bool]:
    """Find the columns of the texts and the label (last), and whether the line is a header."""
    names = [cell.lower() for cell in cells]
    columns = []
    for candidates in (FIRST_TEXT_NAMES, SECOND_TEXT_NAMES, LABEL_NAMES):
        present = [name for name in candidates if name in names]
        if present:
            column = names.index(present[0])
            names[column] = ""  # two columns may both be called "sentence"
            columns.append(column)
        elif not columns:
            break  # a header names a text
    if columns:
        if not present:  # of the labels, which are last
            problem = f"the header names no label ({', '.join(LABEL_NAMES)})"
            remedy = "GLUE's test.tsv has none, so use dev.tsv; scores, as in STS-B, are no labels"
            raise CorpusError(path, f"{problem}; {remedy}", number)
        return columns, True
    if len(cells) == 4 and cells[1] in ("0", "1") and cells[2] in ("", "*"):
        return [3, 1], False  # CoLA
    if len(cells) not in (2, 3):
        raise CorpusError(path, f"{len(cells)} columns; {EXPECTED}, or a header", number)
    return list(range(len(cells))), False
