"""Attention maps of the texts of a task, computed when needed and not stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float

from beyond.papers.common.classifier import BATCH_SIZE, task_inputs
from beyond.papers.common.tasks import Pair
from helpers.model.forward import forward
from helpers.model.loading import Model

# The colour scale of drawn maps.
GAMMA = 0.7  # the exponent; below 1, so that small weights are visible next to large ones
DARKEST_QUANTILE = 0.995  # weights above this quantile of a map have the darkest colour
UNIFORM_MULTIPLE = 6  # the darkest colour is at least so many times uniform attention

Map = Float[np.ndarray, "query key"]
Maps = Float[np.ndarray, "layer head query key"]
PerHead = Float[np.ndarray, "layer head"]


class TextMaps(NamedTuple):
    """Maps of an input, and which of its tokens are special tokens."""

    attention: Maps
    special: Bool[np.ndarray, " key"]


def text_maps(encoder: Model, pairs: Sequence[Pair], *, max_tokens: int) -> Iterator[TextMaps]:
    """Compute the maps of each example, in order, in float32."""
    special_ids = list(encoder.special_ids)
    inputs = task_inputs(encoder, pairs, max_tokens)
    for start in range(0, len(inputs), BATCH_SIZE):
        batch = inputs[start : start + BATCH_SIZE]
        layers, _ = forward(encoder, batch)
        for row, example in enumerate(batch):
            special = np.isin(example["input_ids"], special_ids)
            length = len(special)
            maps = [layer[row, :, :length, :length].float().cpu() for layer in layers]
            yield TextMaps(torch.stack(maps).numpy(), special)


def darkest_weights(attention: Float[np.ndarray, "*map query key"]) -> Float[np.ndarray, "*map"]:
    """Compute the smallest weight of each map that `shaded` draws black."""
    quantile = np.quantile(attention, DARKEST_QUANTILE, axis=(-2, -1))
    return np.clip(quantile, UNIFORM_MULTIPLE / attention.shape[-1], 1)


def shaded(attention: Float[np.ndarray, "*map query key"]) -> Float[np.ndarray, "*map query key"]:
    """Compute how dark each cell of a map is drawn (0-1), relative to the map's large weights."""
    darkest = darkest_weights(attention)[..., None, None]
    return np.clip(attention / darkest, 0, 1) ** GAMMA
