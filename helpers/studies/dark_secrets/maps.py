"""Attention maps of texts and sentences, straight from the model: nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, forward, to_words, word_groups
from helpers.studies.classifier import BATCH_SIZE, task_inputs
from helpers.studies.fine_tune import stacked
from helpers.studies.tasks import Pair
from helpers.work import in_order, progress

FADE = 0.7  # the exponent of the colour scale: small weights can be seen beside large ones
BRIGHT = 0.995  # the share of a map's weights below the darkest colour
UNIFORM_MULTIPLE = 6  # the darkest colour is at least so many times uniform attention

Maps = Float[np.ndarray, "layer head query key"]
PerHead = Float[np.ndarray, "layer head"]
WordMaps = tuple[Float[np.ndarray, "layer head position position"], slice]


class TextMaps(NamedTuple):
    """Maps of one text or two, which positions are special tokens, and whose text each is."""

    attention: Float[np.ndarray, "*layer_head query key"]
    special: Bool[np.ndarray, " key"]
    segment: Int[np.ndarray, " key"]


def text_maps(encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int) -> Iterator[TextMaps]:
    """Yield the maps of each of ``pairs``, in their order, in float32."""
    for item, attention in _maps(encoder, task_inputs(encoder, pairs, max_tokens)):
        special = np.isin(item["input_ids"], list(encoder.special_ids))
        starts = ~special & np.concatenate([[True], special[:-1]])
        yield TextMaps(attention.numpy(), special, np.maximum(np.cumsum(starts) - 1, 0))


def sentence_maps(encoder: Encoder, sentences: Sequence[Sequence[str]]) -> Iterator[WordMaps]:
    """Yield the maps of sentences over words and special tokens, and where the words are."""
    encodings = [encoder.encode_words(words) for words in sentences]
    inputs = [{"input_ids": own.ids, "token_type_ids": own.type_ids} for own in encodings]
    for encoding, (_, attention) in zip(encodings, _maps(encoder, inputs), strict=True):
        groups = word_groups(encoding.word_ids)
        both = zip(groups, encoding.word_ids, strict=True)
        inside = [group for group, word in both if word is not None]
        yield to_words(attention, groups).numpy(), slice(inside[0], inside[-1] + 1)


def tables_of(
    examples: Mapping[tuple[str, str], Iterator[Any]],
    table: Callable[[Iterator[Any]], pd.DataFrame],
    device: torch.device,
) -> pd.DataFrame:
    """Return a table of each model's maps as one, by its task and weights; models side by side."""
    jobs = [partial(table, own) for own in examples.values()]
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    found = in_order(jobs, threads=threads, ahead=len(jobs))
    shown = progress(found, "maps", unit="model", total=len(jobs))
    return stacked(dict(zip(examples, shown, strict=True)), "task", "weights")


def shaded(attention: Float[np.ndarray, "*map query key"]) -> Float[np.ndarray, "*map query key"]:
    """Return how dark each cell of a map is drawn, from 0 to 1, on a scale of the map's own."""
    uniform = 1 / attention.shape[-1]
    darkest = np.quantile(attention, BRIGHT, axis=(-2, -1), keepdims=True)
    return np.clip(attention / np.clip(darkest, UNIFORM_MULTIPLE * uniform, 1), 0, 1) ** FADE


def _maps(
    encoder: Encoder, inputs: Sequence[Inputs]
) -> Iterator[tuple[Inputs, Float[Tensor, "layer head token token"]]]:
    for start in range(0, len(inputs), BATCH_SIZE):
        batch = inputs[start : start + BATCH_SIZE]
        layers, _ = forward(encoder, batch)
        for row, item in enumerate(batch):
            n = len(item["input_ids"])
            yield item, torch.stack([layer[row, :, :n, :n].float().cpu() for layer in layers])
