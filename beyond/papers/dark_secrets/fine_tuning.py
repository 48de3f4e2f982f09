"""The effect of fine-tuning on accuracy and on maps (Kovaleva et al. 2019, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from beyond.papers.common.classifier import BAG_OF_WORDS, MAJORITY, baselines
from beyond.papers.common.fine_tune import FineTuningRun, table_by_task
from beyond.papers.common.tasks import PRETRAINED, RANDOM
from beyond.papers.dark_secrets import CODE
from beyond.papers.dark_secrets.maps import Maps, PerHead, text_maps
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import ratio
from helpers.progress import progress

COMPARED_EXAMPLES = 200  # test examples of a task whose maps are compared


def accuracy_table(
    runs: Sequence[FineTuningRun], random_runs: Sequence[FineTuningRun]
) -> pd.DataFrame:
    """Compare the accuracy of fine-tuned models with that of baselines (section 4.3).

    Parameters
    ----------
    runs
        One run from pretrained weights per task.
    random_runs
        One run from random weights per task.

    Returns
    -------
    pandas.DataFrame
        One row per task and classifier.  Columns: task; start (`PRETRAINED`, `RANDOM`, or a
        baseline of `classifier.baselines`); accuracy (percent) with its 95% bootstrap interval
        (accuracy_low, accuracy_high); learned (whether the task is: the interval of `PRETRAINED` is
        above the accuracies of the most frequent label and of a bag of words); and test (the
        number of test examples).
    """

    random_run_of = {run.task.name: run for run in random_runs}

    def compute(run: FineTuningRun) -> pd.DataFrame:
        random_predictions = random_run_of[run.task.name].predictions
        predictions = {PRETRAINED: run.predictions, RANDOM: random_predictions}
        predictions |= baselines(run.encoder, run.task, max_tokens=run.recipe.max_tokens)
        examples = np.ones(len(run.labels))
        accuracies = {}
        for start, predicted in predictions.items():
            accuracies[start] = ratio(100 * (predicted == run.labels), examples)
        rows = [
            {"start": start, **accuracy.columns("accuracy")}
            for start, accuracy in accuracies.items()
        ]
        to_beat = max(accuracies[MAJORITY].value, accuracies[BAG_OF_WORDS].value)
        is_learned = accuracies[PRETRAINED].low > to_beat
        return pd.DataFrame(rows).assign(learned=is_learned, test=len(run.labels))

    random_folders = [run.folder.name for run in random_runs]
    return table_by_task(runs, "task-accuracy", compute, code=CODE, random_runs=random_folders)


def similarity_table(runs: Sequence[FineTuningRun]) -> pd.DataFrame:
    """Measure the cosine similarity of each head's maps before and after fine-tuning.

    Parameters
    ----------
    runs
        One run per task.

    Returns
    -------
    pandas.DataFrame
        One row per task and head.  Columns: task, layer, head and similarity, a mean over the first
        `COMPARED_EXAMPLES` test examples.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        examples = run.task.test[:COMPARED_EXAMPLES]
        longest = run.recipe.max_tokens
        before = text_maps(run.encoder, examples, max_tokens=longest)
        after = text_maps(run.fine_tuned_encoder(), examples, max_tokens=longest)
        bar = progress(before, f"maps before and after ({run.task.name})")
        similarities = []
        for maps_before, maps_after in zip(bar, after, strict=True):
            similarities.append(map_similarity(maps_before.attention, maps_after.attention))
        mean = np.mean(similarities, axis=0)
        return head_rows(run.encoder.layers, run.encoder.heads, similarity=mean)

    return table_by_task(runs, "finetuning-similarity", compute, code=CODE)


def map_similarity(before: Maps, after: Maps) -> PerHead:
    """Compute the cosine similarity of two maps of each head, flattened to vectors."""
    vectors_before = torch.from_numpy(before).double().flatten(2)
    vectors_after = torch.from_numpy(after).double().flatten(2)
    return F.cosine_similarity(vectors_before, vectors_after, dim=-1).numpy()
