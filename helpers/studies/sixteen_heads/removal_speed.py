"""Heads taken out for good (Michel et al. 2019, section 4.3): smaller matrices, less time."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import prune_linear_layer

from helpers.analysis.heads import by_head
from helpers.cache import cached_table
from helpers.errors import ModelError
from helpers.model.sites import FUSED, Site, sites
from helpers.progress import progress
from helpers.studies.classifier import Batch, padded_batch, task_inputs
from helpers.studies.fine_tune import FineTuned
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads.pruning import masks_along, pruning_order

# Their attention reads the number of heads off the width of its projections; the others keep it
# in positions, splits or cached biases, where smaller matrices would not be enough.
REMOVABLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "modernbert")
QUERIES_AND_KEYS = ("query", "key", "q_lin", "k_lin")
PRUNED = (0.5, 0.8)
BATCH_SIZES = (1, 4, 16, 64)
SECONDS, TURNS = 1.0, 7  # at least, for each pair of models and batch size
COLUMNS = (
    "pruned", "heads", "parameters", "difference", "batch", "full", "removed", "speed_up",
    "speed_up_low", "speed_up_high", "turns",
)  # fmt: skip


def remove_heads(model: nn.Module, keep: Bool[np.ndarray, "layer head"]) -> nn.Module:
    """Return a copy of a model without the heads that ``keep`` is false for.

    The rows of the query, key and value projections and the columns of the output projection
    that belong to a removed head are gone.  A layer without any head keeps the bias of its
    output projection.  The model gives what it gives under a `head_mask` of ``keep``, up to
    rounding; it no longer fits its own configuration, so it cannot be saved and loaded again.

    Raises:
        ModelError: a family whose attention needs its full number of heads.
    """
    kind = {module.config.model_type for module in model.modules() if hasattr(module, "config")}
    if not kind <= set(REMOVABLE):
        raise ModelError(
            f"heads of {', '.join(sorted(kind))} models cannot be removed, only masked; those of "
            f"{', '.join(REMOVABLE)} can"
        )
    smaller = copy.deepcopy(model)
    for site, kept in zip(sites(smaller), keep, strict=True):
        if not kept.all():
            features = torch.from_numpy(kept).repeat_interleave(site.width).nonzero().squeeze(1)
            parts = _smaller_parts(site, features)
            paths = {path: parts[old] for path, old in smaller.named_modules() if old in parts}
            for path, part in paths.items():
                smaller.set_submodule(path, part)
    return smaller


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
        keep = masks_along(pruning_order(scores), scores.shape, PRUNED).astype(bool)
        try:
            found = [(run.classifier, remove_heads(run.classifier, kept)) for kept in keep]
        except ModelError:
            found = []
        return pd.DataFrame(
            [
                (100 * share, kept.sum(), *row)
                for share, kept, models in zip(PRUNED, keep, found, strict=False)
                for row in _compared(run, models, kept)
            ],
            columns=COLUMNS,
        )

    return cached_table(
        "head-removal", compute, depends_on={"run": run.folder.name, "weights": weights.to_csv()}
    )


class _NoHeads(nn.Module):
    """The attention of a layer that has lost all heads: nothing but its projection's bias."""

    def __init__(self, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, hidden_states: Tensor, *_args: object, **_kwargs: object) -> tuple:
        """Return the projection of no head at all, and no map."""
        nothing = torch.zeros_like(hidden_states)
        return (nothing if self.bias is None else nothing + self.bias), None


def _smaller_parts(site: Site, features: Int[Tensor, " feature"]) -> dict[nn.Module, nn.Module]:
    """Return what replaces the projections of one layer, of which ``features`` of heads stay."""
    if not len(features):
        output = {} if site.inner is site.attention else {site.output: nn.Identity()}
        return {site.inner: _NoHeads(site.output.bias)} | output
    output, whole = prune_linear_layer(site.output, features, dim=1), site.output.in_features
    if site.values_name in FUSED:
        three = torch.cat([features, features + whole, features + 2 * whole])
        return {site.output: output, site.values: prune_linear_layer(site.values, three)}  # noqa: PD011
    return {site.output: output} | {
        part: prune_linear_layer(part, features)
        for name, part in site.inner.named_children()
        if part is site.values or name in QUERIES_AND_KEYS  # noqa: PD011
    }


def _compared(
    run: FineTuned, models: tuple[nn.Module, nn.Module], keep: Bool[np.ndarray, "layer head"]
) -> list[tuple[float, ...]]:
    """Return the columns of `removal_speed` from the third on, by batch size."""
    full, smaller = models
    less = 100 * (1 - _layer_parameters(smaller) / _layer_parameters(full))
    # The longest test texts, so that padding plays little part.
    inputs = task_inputs(run.encoder, run.task.test, run.recipe.max_tokens)
    longest = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]["input_ids"]))
    sizes, rows = [size for size in BATCH_SIZES if size <= len(inputs)], []
    for size in progress(sizes, "removing heads", unit="batch size"):
        batch, _, _ = padded_batch(run.encoder, inputs, [0] * len(inputs), longest[:size])
        with torch.inference_mode(), head_mask(full, torch.from_numpy(keep).float()):
            difference = float((full(**batch) - smaller(**batch)).abs().max())
        seconds = _seconds(models, batch)
        speeds = size / np.median(seconds, axis=1)
        low, middle, high = np.percentile(100 * (seconds[0] / seconds[1] - 1), (25, 50, 75))
        rows.append((less, difference, size, *speeds, middle, low, high, seconds.shape[1]))
    return rows


@torch.inference_mode()
def _seconds(models: Sequence[nn.Module], batch: Batch) -> Float[np.ndarray, "model turn"]:
    """Time models in turn, so that what else the machine does falls on all of them.

    One thread: several wait for each other on a busy machine.
    """
    width, turns = torch.get_num_threads(), []
    torch.set_num_threads(1)
    for model in models:
        model(**batch)
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS or len(turns) < TURNS:
        turns.append([])
        for model in models:
            before = time.perf_counter()
            model(**batch).cpu()  # a GPU has computed what has arrived
            turns[-1].append(time.perf_counter() - before)
    torch.set_num_threads(width)
    return np.array(turns).T


def _layer_parameters(classifier: nn.Module) -> int:
    """Return how many parameters a classifier has outside the tables of its embeddings."""
    embeddings = [part for part in classifier.modules() if isinstance(part, nn.Embedding)]
    return sum(part.numel() for part in classifier.parameters()) - sum(
        part.weight.numel() for part in embeddings
    )
