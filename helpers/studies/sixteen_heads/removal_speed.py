"""What taking heads out for good saves: parameters and time (Michel et al. 2019, section 4.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from helpers.analysis.heads import by_head
from helpers.cache import cached_table
from helpers.errors import ModelError
from helpers.progress import progress
from helpers.studies.classifier import padded_batch, task_inputs
from helpers.studies.fine_tune import FineTuned
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads.importance import masks_along, pruning_order
from helpers.studies.sixteen_heads.prune_heads import remove_heads

PRUNED = (0.5, 0.8)
BATCH_SIZES = (1, 4, 16, 64)
SECONDS, TURNS = 1.0, 7  # at least, for each pair of models and batch size
QUARTILES = (25, 50, 75)
COLUMNS = (
    "pruned", "heads", "parameters", "difference", "batch", "full", "removed", "speed_up",
    "speed_up_low", "speed_up_high", "turns",
)  # fmt: skip


def removal_speed(run: FineTuned, weights: pd.DataFrame) -> pd.DataFrame:
    """Return the time that a classifier takes with heads pruned by importance and removed.

    Columns: pruned (percent of heads), heads (left), parameters (removed, percent of those of
    all layers), difference (largest, of the logits, from those of the masked classifier), batch
    (its size), full and removed (examples a second on one thread, the median of ``turns``, in
    each of which both run once) and speed_up (percent, the median over turns) with its quartiles
    speed_up_low and speed_up_high.  No rows for a family whose heads can only be masked.
    """

    def compute() -> pd.DataFrame:
        scores = by_head(weights[weights["task"] == run.task.name], "normalised")
        keep = masks_along(pruning_order(scores), scores.shape, PRUNED)
        pairs = zip(PRUNED, keep.astype(bool), strict=True)
        try:
            rows = [(100 * share, *row) for share, k in pairs for row in _rows(run, k)]
        except ModelError:
            rows = []
        return pd.DataFrame(rows, columns=COLUMNS)

    return cached_table(
        "head-removal", compute, depends_on={"run": run.folder.name, "weights": weights.to_csv()}
    )


def _rows(run: FineTuned, keep: Bool[np.ndarray, "layer head"]) -> list[tuple[float, ...]]:
    """Return the columns of `removal_speed` but the first, by batch size."""
    full, smaller = run.classifier, remove_heads(run.classifier, keep)
    rows = []
    sizes = [size for size in BATCH_SIZES if size <= len(run.task.test)]
    for size in progress(sizes, "removing heads", unit="batch size"):
        batch = _batch(run, size)
        seconds = _seconds((full, smaller), batch)
        before, after = size / np.median(seconds, axis=1)
        low, middle, high = np.percentile(100 * (seconds[0] / seconds[1] - 1), QUARTILES)
        less = 100 * (1 - _layer_parameters(smaller) / _layer_parameters(full))
        about = int(keep.sum()), less, _difference(full, smaller, keep, batch), size
        rows.append((*about, before, after, middle, low, high, seconds.shape[1]))
    return rows


def _batch(run: FineTuned, size: int) -> dict[str, Tensor]:
    """Return a batch of the longest test texts, so that padding plays little part."""
    inputs = task_inputs(run.encoder, run.task.test, run.recipe.max_tokens)
    longest = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]["input_ids"]))
    batch, _, _ = padded_batch(run.encoder, inputs, [0] * len(inputs), longest[:size])
    return batch


@torch.inference_mode()
def _difference(
    full: nn.Module, smaller: nn.Module, keep: Bool[np.ndarray, "layer head"], batch: dict
) -> float:
    with head_mask(full, torch.from_numpy(keep).float()):
        masked = full(**batch)
    return float((masked - smaller(**batch)).abs().max())


@torch.inference_mode()
def _seconds(
    models: Sequence[nn.Module], batch: dict[str, Tensor]
) -> Float[np.ndarray, "model turn"]:
    """Time models in turn, so that what else the machine does falls on all of them.

    One thread: several wait for each other on a busy machine.
    """
    on_gpu = batch["input_ids"].is_cuda
    width = torch.get_num_threads()
    torch.set_num_threads(1)
    turns: list[list[float]] = []
    for model in models:
        model(**batch)
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS or len(turns) < TURNS:
        turns.append([])
        for model in models:
            before = time.perf_counter()
            model(**batch)
            if on_gpu:
                torch.cuda.synchronize()
            turns[-1].append(time.perf_counter() - before)
    torch.set_num_threads(width)
    return np.array(turns).T


def _layer_parameters(classifier: nn.Module) -> int:
    """Return how many parameters a classifier has outside the tables of its embeddings."""
    tables = {
        id(module.weight) for module in classifier.modules() if isinstance(module, nn.Embedding)
    }
    return sum(p.numel() for p in classifier.parameters() if id(p) not in tables)
