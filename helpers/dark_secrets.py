"""What fine-tuning changes, and what disabling heads does (Kovaleva et al. 2019, 4.3 and 4.6).

Each function takes a study and returns a table; what took long is kept in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from helpers import task_runs
from helpers.analysis import disabling, map_change
from helpers.analysis.bootstrap import bootstrap_interval
from helpers.analysis.disabling import disabling_table
from helpers.analysis.map_change import mean_similarity
from helpers.attention import ablation, classify, resume, task_maps
from helpers.attention import disabling as disabling_heads
from helpers.attention.finetune import FineTuned
from helpers.attention.jobs import StepDone, run_jobs
from helpers.cached import cached_table
from helpers.data.tasks import Pair
from helpers.study import Study

PRETRAINED, RANDOM = "pretrained", "random"  # what a run started from: column ``start``
COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared
DISABLED_EXAMPLES = 250  # test examples of a task that disabled heads are scored on


def accuracy_table(study: Study) -> pd.DataFrame:
    """Return how well each task is learned, from the model's weights and from random ones.

    Columns: task, start, accuracy with its 95% bootstrap interval (ci_low, ci_high) and
    majority (what the most frequent label gets), in percent; labels, train, test (counts).
    """
    rows = []
    for start, runs in _starts(study).items():
        for run in runs.values():
            right = run.predictions == _labels(run)
            low, high = bootstrap_interval(right, np.ones(len(right)), seed=study.seed)
            rows.append(
                {
                    "task": run.task.name,
                    "start": start,
                    "accuracy": 100 * run.accuracy,
                    "ci_low": 100 * low,
                    "ci_high": 100 * high,
                    "majority": 100 * run.task.majority,
                    "labels": len(run.task.labels),
                    "train": len(run.task.train),
                    "test": len(run.task.test),
                }
            )
    return pd.DataFrame(rows)


def similarity_table(study: Study) -> pd.DataFrame:
    """Return the cosine similarity of each head's maps before and after fine-tuning.

    Columns: task, layer, head, similarity and similarity_random (the same for the run from
    random weights), means over the first `COMPARED_EXAMPLES` test examples.
    """
    starts = _starts(study)

    def compute() -> pd.DataFrame:
        runs = [run for some in starts.values() for run in some.values()]
        found = run_jobs(
            [partial(_similarity, run) for run in runs],
            study.encoder.device,
            label="maps before and after",
            unit="example",
            total=sum(len(_compared(run)) for run in runs),
        )
        own, controls = found[: len(starts[PRETRAINED])], found[len(starts[PRETRAINED]) :]
        return pd.concat(
            [
                _head_rows(task, similarity=similarity, similarity_random=control)
                for task, similarity, control in zip(starts[PRETRAINED], own, controls, strict=True)
            ],
            ignore_index=True,
        )

    return cached_table(
        "finetuning-similarity",
        compute,
        depends_on=_folders(*starts.values()) | {"examples": COMPARED_EXAMPLES},
        code=(map_change, task_maps, classify),
    )


def disabled_table(study: Study) -> pd.DataFrame:
    """Return what each task's accuracy becomes without each head, and without each layer.

    Columns: task, examples (the first of the test, `DISABLED_EXAMPLES` of them), and those of
    `helpers.analysis.disabling.disabling_table`.
    """
    runs = task_runs.fine_tuned(study)
    parts = []
    for run in runs.values():
        table = _disabled(run)
        table.insert(0, "task", run.task.name)
        table.insert(1, "examples", min(DISABLED_EXAMPLES, len(run.task.test)))
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def _starts(study: Study) -> dict[str, dict[str, FineTuned]]:
    controls = task_runs.fine_tuned_controls(study)  # trains both
    return {PRETRAINED: task_runs.fine_tuned(study), RANDOM: controls}


def _folders(*runs: Mapping[str, FineTuned]) -> dict[str, Any]:
    """Return what the tables of runs depend on: the names of their folders hold a hash."""
    return {"runs": [run.folder.name for some in runs for run in some.values()]}


def _labels(run: FineTuned) -> np.ndarray:
    return np.array([pair.label for pair in run.task.test])


def _head_rows(task: str, **values: np.ndarray) -> pd.DataFrame:
    """Return a row for each head, with one column for each map of values [layer, head]."""
    layers, heads = next(iter(values.values())).shape
    layer, head = np.divmod(np.arange(layers * heads), heads)
    columns = {name: column.ravel() for name, column in values.items()}
    return pd.DataFrame({"task": task, "layer": layer + 1, "head": head + 1, **columns})


def _compared(run: FineTuned) -> Sequence[Pair]:
    return run.task.test[:COMPARED_EXAMPLES]


def _similarity(run: FineTuned, step_done: StepDone) -> np.ndarray:
    before, after = (
        task_maps.task_maps(encoder, _compared(run), max_tokens=run.recipe.max_tokens)
        for encoder in (run.encoder, run.fine_tuned_encoder())
    )

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for one, other in zip(before, after, strict=True):
            yield one.attention, other.attention
            step_done()

    return mean_similarity(pairs())


def _disabled(run: FineTuned) -> pd.DataFrame:
    some = run.task.test[:DISABLED_EXAMPLES]

    def compute() -> pd.DataFrame:
        longest = run.recipe.max_tokens
        whole = classify.predict(run.classifier, run.encoder, some, max_tokens=longest)
        predicted = disabling_heads.disabled_predictions(
            run.classifier, run.encoder, some, max_tokens=longest
        )
        return disabling_table(np.array([pair.label for pair in some]), whole, predicted)

    return cached_table(
        "disabling",
        compute,
        depends_on=_folders({"": run}) | {"examples": len(some)},
        code=(disabling, disabling_heads, resume, ablation, classify),
    )
