"""What fine-tuning changes, and what disabling heads does (Kovaleva et al. 2019, 4.3 and 4.6).

How much a head's maps change is their cosine similarity before and after.  A disabled head
attends uniformly over the real tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import bootstrap_interval
from helpers.cache import cached_table
from helpers.model.parallel import StepDone, run_jobs
from helpers.studies.classifier import bag_of_words, classifier_alone
from helpers.studies.dark_secrets.maps import text_maps
from helpers.studies.fine_tune import FineTuned, each_run, stacked
from helpers.studies.head_mask import uniform_attention
from helpers.studies.head_removal import Change, in_looks
from helpers.studies.tasks import PRETRAINED, RANDOM, Task

ALONE = "classifier alone"  # column ``start``, beside what fine-tuning starts from
COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared
WHOLE_LAYER = 0  # the number that stands in the column ``head`` of a whole layer's row

Maps = Float[np.ndarray, "layer head query key"]
Starts = Mapping[str, Sequence[FineTuned]]  # runs by what they started from


def accuracy_table(starts: Starts, *, seed: int) -> pd.DataFrame:
    """Return how well each task is learned, under the three conditions of section 4.3.

    Columns: task, start (what was fine-tuned: `PRETRAINED` or `RANDOM` weights, or the classifier
    `ALONE`, over the model's own weights), accuracy with its 95% bootstrap interval (ci_low,
    ci_high), majority (what the most frequent label gets) and bag_of_words (what a classifier
    that sees no order of words gets), in percent; learned (whether the interval is above both);
    labels, train, test (counts).
    """

    def compute() -> pd.DataFrame:
        predictions = [(run, start, run.predictions) for start in starts for run in starts[start]]
        bags = {}
        for run in starts[PRETRAINED]:
            how = {"max_tokens": run.recipe.max_tokens}
            predictions.append((run, ALONE, classifier_alone(run.encoder, run.task, **how)))
            bag = bag_of_words(run.encoder, run.task, **how)
            bags[run.task.name] = float((bag == run.labels).mean())
        return pd.DataFrame(
            [
                _accuracy(run.task, start, found == run.labels, bags[run.task.name], seed)
                for run, start, found in predictions
            ]
        )

    runs = [run.folder.name for some in starts.values() for run in some]
    return cached_table("task-accuracy", compute, depends_on={"runs": runs, "seed": seed})


def control_accuracy(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `accuracy_table` from random weights as if they were the model's own.

    For the claims' control: the same tasks count as learned.
    """
    learned = accuracy[accuracy["start"] == PRETRAINED].set_index("task")["learned"]
    rows = accuracy[accuracy["start"] == RANDOM]
    return rows.assign(start=PRETRAINED, learned=rows["task"].map(learned))


def similarity_table(starts: Starts) -> pd.DataFrame:
    """Return the cosine similarity of each head's maps before and after fine-tuning.

    Columns: task, layer, head, similarity and similarity_random (the same for the run from
    random weights), means over the first `COMPARED_EXAMPLES` test examples.
    """
    own, controls = starts[PRETRAINED], starts[RANDOM]
    runs = [*own, *controls]

    def compute() -> pd.DataFrame:
        found = run_jobs(
            [partial(_similarity, run) for run in runs],
            runs[0].encoder.device,
            label="maps before and after",
            unit="example",
            total=sum(len(run.task.test[:COMPARED_EXAMPLES]) for run in runs),
        )
        parts = zip(found[: len(own)], found[len(own) :], strict=True)
        tables = [head_rows(*a.shape, similarity=a, similarity_random=b) for a, b in parts]
        return stacked(dict(zip([run.task.name for run in own], tables, strict=True)), "task")

    return cached_table(
        "finetuning-similarity", compute, depends_on={"runs": [run.folder.name for run in runs]}
    )


def disabling_table(runs: Sequence[FineTuned]) -> pd.DataFrame:
    """Return what each task's accuracy becomes without each head, and without each layer.

    Columns: task, layer and head (from 1; `WHOLE_LAYER` for a layer), and those of
    `head_removal.changes_of`, over all test examples where fewer do not settle it
    (`head_removal.in_looks`).
    """
    return each_run(runs, "disabling", disabled)


def disabled(run: FineTuned) -> pd.DataFrame:
    """Return a run's part of `disabling_table`: of each layer its heads, and then all of them."""
    places = list(product(range(run.encoder.layers), (*range(run.encoder.heads), None)))
    changes = [
        Change(layer, partial(uniform_attention, layer=layer, head=head)) for layer, head in places
    ]
    order = np.random.default_rng(run.recipe.seed).permutation(len(run.task.test))
    table, _ = in_looks(run, [run.task.test[i] for i in order], changes, "disabling heads")
    table.insert(0, "layer", [layer + 1 for layer, _ in places])
    table.insert(1, "head", [WHOLE_LAYER if head is None else head + 1 for _, head in places])
    return table


def _accuracy(
    task: Task, start: str, right: Bool[np.ndarray, " example"], bag: float, seed: int
) -> dict[str, Any]:
    low, high = bootstrap_interval(right, np.ones(len(right)), seed=seed)
    return {
        "task": task.name,
        "start": start,
        "accuracy": 100 * right.mean(),
        "ci_low": 100 * low,
        "ci_high": 100 * high,
        "majority": 100 * task.majority,
        "bag_of_words": 100 * bag,
        "learned": low > max(task.majority, bag),
        "labels": len(task.labels),
        "train": len(task.train),
        "test": len(task.test),
    }


def _similarity(run: FineTuned, step_done: StepDone) -> Float[np.ndarray, "layer head"]:
    before, after = (
        text_maps(encoder, run.task.test[:COMPARED_EXAMPLES], max_tokens=run.recipe.max_tokens)
        for encoder in (run.encoder, run.fine_tuned_encoder())
    )
    found = []
    for one, other in zip(before, after, strict=True):
        found.append(map_similarity(one.attention, other.attention))
        step_done()
    return sum(found) / len(found)


def map_similarity(before: Maps, after: Maps) -> Float[np.ndarray, "layer head"]:
    """Return the cosine of the angle between two maps of each head, flattened to vectors."""
    a, b = (maps.reshape(*maps.shape[:2], -1).astype(np.float64) for maps in (before, after))
    product = np.einsum("lhx,lhx->lh", a, b)
    return product / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
