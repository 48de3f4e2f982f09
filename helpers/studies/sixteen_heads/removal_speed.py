"""Half of the heads taken out for good, for speed (Michel et al. 2019, section 4.3)."""

from __future__ import annotations

import copy
import time

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import nn
from transformers.pytorch_utils import prune_linear_layer

from helpers.analysis.heads import by_head
from helpers.model.forward import padded
from helpers.model.sites import sites
from helpers.progress import progress
from helpers.studies.classifier import Batch, task_inputs
from helpers.studies.fine_tune import FineTuned
from helpers.studies.sixteen_heads.pruning import masks_along, pruning_order
from helpers.tables import cached_table

# Their attention reads the number of heads off the width of its projections.
REMOVABLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
PROJECTIONS = ("query", "key", "value", "q_lin", "k_lin", "v_lin")
BATCH_SIZES = (1, 4, 16, 64)
TURNS = 11
COLUMNS = ("heads", "batch", "full", "removed", "speed_up", "speed_up_low", "speed_up_high")


def remove_heads(model: nn.Module, keep: Bool[np.ndarray, "layer head"]) -> nn.Module:
    """Return a copy of a `REMOVABLE` model without the heads that ``keep`` is false for.

    The rows of the query, key and value projections and the columns of the output projection
    that belong to a removed head are gone; each layer must keep one.  The model gives what it
    gives under a `head_mask` of ``keep``, up to rounding.
    """
    smaller = copy.deepcopy(model)
    for site, kept in zip(sites(smaller), keep, strict=True):
        features = torch.from_numpy(kept.repeat(site.width).nonzero()[0])
        for path, part in list(site.attention.named_modules()):
            if part is site.output:
                site.attention.set_submodule(path, prune_linear_layer(part, features, dim=1))
            elif path.split(".")[-1] in PROJECTIONS:
                site.attention.set_submodule(path, prune_linear_layer(part, features))
    return smaller


def removal_speed(run: FineTuned, weights: pd.DataFrame) -> pd.DataFrame:
    """Return the time that a classifier takes with and without half of its heads.

    The least important go (``weights`` is `head_importance`), but for the best of each layer.
    Columns: heads (left), batch (its size), full and removed (examples a second, the median over
    turns), speed_up (percent, the median over turns) and its quartiles speed_up_low and
    speed_up_high.  No rows for a family that is not `REMOVABLE`.
    """

    def compute() -> pd.DataFrame:
        scores = by_head(weights[weights["task"] == run.task.name], "normalised")
        best = scores == scores.max(axis=1, keepdims=True)
        keep = masks_along(pruning_order(best, scores), scores.shape, [0.5])[0].astype(bool)
        inputs = task_inputs(run.encoder, run.task.test, run.recipe.max_tokens)
        # The longest test texts, so that padding plays little part.
        longest = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]["input_ids"]))
        sizes = [size for size in BATCH_SIZES if size <= len(inputs)]
        smaller, rows = remove_heads(run.classifier, keep), []
        for size in progress(sizes, "removing heads", unit="batch size"):
            batch = padded(run.encoder, [inputs[index] for index in longest[:size]])
            seconds = _seconds((run.classifier, smaller), batch)
            low, middle, high = np.percentile(100 * (seconds[0] / seconds[1] - 1), (25, 50, 75))
            speeds = size / np.median(seconds, axis=1)
            rows.append((keep.sum(), size, *speeds, middle, low, high))
        return pd.DataFrame(rows, columns=COLUMNS)

    if run.encoder.model.config.model_type not in REMOVABLE:
        return pd.DataFrame(columns=COLUMNS)
    depends_on = {"run": run.folder.name, "weights": weights.to_csv()}
    return cached_table("head-removal", compute, depends_on=depends_on)


@torch.inference_mode()
def _seconds(models: tuple[nn.Module, nn.Module], batch: Batch) -> Float[np.ndarray, "model turn"]:
    """Time models in turn, so that what else the machine does falls on both, on one thread."""
    width, seconds = torch.get_num_threads(), np.zeros((len(models), TURNS + 1))
    torch.set_num_threads(1)
    for turn in range(TURNS + 1):
        for number, model in enumerate(models):
            before = time.perf_counter()
            model(**batch).cpu()  # a GPU has computed what has arrived
            seconds[number, turn] = time.perf_counter() - before
    torch.set_num_threads(width)
    return seconds[:, 1:]  # the first turn is slow
