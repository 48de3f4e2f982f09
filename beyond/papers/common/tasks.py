"""Classification tasks, and the tasks that a model learns."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import norm

from beyond.claims.estimates import TestedEstimate
from beyond.claims.tables import NotMeasurable, Tables, estimate_in, rows_where
from beyond.papers.common.labelled import EXPECTED, LabelledText, read_labelled
from helpers.data.text_files import quoted
from helpers.errors import CorpusError
from helpers.metrics.heads import by_head
from helpers.settings import capped

# Values of the columns ``start`` and ``weights`` in tables.
PRETRAINED = "pretrained"
RANDOM = "random"
FINE_TUNED = "fine-tuned"


@dataclass(frozen=True)
class Pair:
    """One example: a text, or two, and the number of its label."""

    texts: tuple[str, ...]
    label: int


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


def heads_by_task(table: pd.DataFrame, column: str) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Arrange a column of a table of heads as an array for each task, see `heads.by_head`."""
    by_task = table.groupby("task", sort=False)
    return {task: by_head(rows, column) for task, rows in by_task}


def learned_rows(tables: Tables, table: str) -> pd.DataFrame:
    """Select the rows of the tasks that the pretrained model learns, according to fine_tuning.csv.

    NotMeasurable if there are none.
    """
    accuracy = rows_where(tables, "fine_tuning", start=PRETRAINED)
    rows = rows_where(tables, table)
    rows = rows[rows["task"].isin(accuracy.loc[accuracy["learned"], "task"])]
    if rows.empty:
        raise NotMeasurable("no task is learned beyond what its words give away")
    return rows


def estimates_by_task(
    tables: Tables,
    table: str,
    column: str,
    *,
    select: Callable[..., pd.DataFrame] = learned_rows,
    clusters: str = "",
    **where: Any,
) -> dict[str, TestedEstimate]:
    """Read a number and its interval for each task, except where it is NaN.

    ``select`` selects the tasks; ``where`` are the values that other columns must have.
    ``clusters`` is the column with the number of clusters of the interval, for example of seeds;
    without it, they are the heads of the model, which are many.
    """
    rows = rows_where({table: select(tables, table)}, table, **where).dropna(subset=column)
    estimates = {}
    for _, row in rows.drop_duplicates("task").iterrows():
        df = row[clusters] - 1 if clusters else np.inf
        estimates[row["task"]] = estimate_in(row, column, df=df)
    return estimates


def smallest_over_tasks(estimates: Collection[TestedEstimate]) -> TestedEstimate:
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

    It prints the columns that it reads, and the classes with the number of texts of each.  The
    labels are those of ``train``, in alphabetical order.  The task is named after the file
    ``train``, or after its folder if the file is called "train", as in GLUE.  Damaged lines are
    skipped, and a message counts them.

    Raises
    ------
    CorpusError
        If a file has no label or too many damaged lines; if ``test`` has
        a label or a number of texts that ``train`` does not have; or if there is only one label, or
        so many that they must be scores.
    """
    train_examples = read_labelled(train)
    test_examples = read_labelled(test)
    labels = sorted({example.label for example in train_examples})
    if not 2 <= len(labels) <= max(2, len(train_examples) // 2):
        raise CorpusError(
            train,
            f"{len(labels)} labels in {len(train_examples)} examples; expected two classes or "
            f"more, not scores; {EXPECTED}",
        )
    train_texts = len(train_examples[0].texts)
    test_texts = len(test_examples[0].texts)
    if test_texts != train_texts:
        raise CorpusError(
            test, f"{test_texts} texts, {train.name} has {train_texts}; {EXPECTED} in both"
        )
    numbers = {label: number for number, label in enumerate(labels)}
    counts = Counter(example.label for example in train_examples)
    classes = [f"{quoted(label)} ({counts[label]})" for label in labels]
    counted = f"{len(labels)} classes of {len(train_examples)} texts"
    print(f"{train.name}: {counted}: {', '.join(classes)}")
    for line, _, label in test_examples:
        if label not in numbers:
            raise CorpusError(
                test,
                f"the label {quoted(label)} is not in {train.name}; use a file with labels, such "
                "as GLUE's dev.tsv",
                line,
            )

    def make_pairs(examples: Iterable[LabelledText]) -> tuple[Pair, ...]:
        return tuple(Pair(tuple(texts), numbers[label]) for _, texts, label in examples)

    name = train.name.partition(".")[0]
    return Task(
        name=train.parent.name if name == "train" else name,
        labels=tuple(labels),
        train=make_pairs(train_examples),
        test=make_pairs(test_examples),
    )
