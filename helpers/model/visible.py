"""Find which keys the queries of each layer can attend to, from the mask that the model computes.

The configuration of a model often names windows, and not always truly.  Therefore the mask is read
off the scores before the softmax, in a pass over a short input.  The configuration only says what
that input is too short to show: a window that is longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from helpers.data.visible import Visible, describe_mask
from helpers.model.sites import LOW_SCORE, PatchSoftmax, Scores, Weights, attending_layers


def probe_visible(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], max_length: int
) -> list[Visible]:
    """Find which keys the queries of each layer can attend to.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    ids : tensor of shape (1, token)
        The token ids of any text.
    max_length : int
        The longest input that the model takes.

    Returns
    -------
    list of Visible
        One for each layer.

    Raises
    ------
    ValueError
        If a mask is neither full, nor causal, nor a window.
    """
    n = min(16, max_length)
    layers = _probe(model, ids, n)
    declared = [declared_window(model.config, number) for number in attending_layers(model)]
    # The number of a causal window counts keys.  That of another is a distance in most families,
    # and a distance plus one in some, which a long input tells.
    is_decoder = all(layer.causal for layer in layers)
    windows = [window for window in declared if window and (window < 160 or not is_decoder)]
    if windows:
        n = min(max(windows) + 2, max_length)
        layers = _probe(model, ids, n)
    for number, (layer, window) in enumerate(zip(layers, declared, strict=True)):
        if window is not None and n <= window < max_length:
            layers[number] = layer._replace(window=window - 1 if layer.causal else window)
    return layers


def declared_window(config: PreTrainedConfig, number: int) -> int | None:
    """Read the window of a layer, by its number, off the configuration; None if it names none."""
    window = getattr(config, "sliding_window", None)
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    layer_types = getattr(config, "layer_types", None)
    return window if not layer_types or "sliding" in layer_types[number - 1] else None


def _probe(model: PreTrainedModel, ids: Int[Tensor, "1 token"], n: int) -> list[Visible]:
    """Describe the mask of each layer for an input of ``n`` tokens."""
    layers = []
    masks = computed_masks(model, ids, n)
    for number, mask in zip(attending_layers(model), masks, strict=True):
        visible = describe_mask(mask)
        if visible is None:
            raise ValueError(
                f"what a token sees in layer {number} is neither all tokens, nor the earlier ones, "
                "nor a window, so that no baseline is known. Use a model with one of these."
            )
        layers.append(visible)
    return layers


@torch.inference_mode()
def computed_masks(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], n: int
) -> list[Bool[np.ndarray, "query key"]]:
    """Read off a pass which keys each query sees, in each layer.

    A key is visible if it has a score before the softmax.  Where the scores cannot be read, a key
    is visible if any head gives it weight.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    ids : tensor of shape (1, token)
        The token ids of any text, which is repeated.
    n : int
        The number of tokens.

    Returns
    -------
    list of bool array, shape (query, key)
    """
    masks: list[Bool[np.ndarray, "query key"]] = []

    def record(_layer: int, scores: Scores, softmax: Callable[[Any], Weights]) -> Weights:
        # A learned score in the softmax (GPT-OSS) is one more key.
        highest = scores[0].amax(dim=0)[:, :n]  # [query, key] over the heads
        mask = (highest > torch.finfo(scores.dtype).min / 2).numpy(force=True)
        is_not_low = (highest > LOW_SCORE).numpy(force=True)
        masks.append(is_not_low if mask.all() and describe_mask(is_not_low) else mask)
        return softmax(scores)

    input_ids = ids.repeat(1, -(-n // ids.shape[1]))[:, :n]
    with PatchSoftmax(model, record):
        mask = torch.ones_like(input_ids)
        output = model(input_ids, attention_mask=mask, output_attentions=True)
    is_seen = [(layer[0] > 0).any(dim=0).numpy(force=True) for layer in output.attentions]
    return masks if len(masks) == len(is_seen) else is_seen
