"""Attention maps of texts and sentences, straight from the model: nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, forward
from helpers.model.word_attention import to_words, word_groups
from helpers.studies.classifier import BATCH_SIZE, task_inputs
from helpers.studies.tasks import Pair

FADE = 0.7  # the exponent of the colour scale: small weights can be seen beside large ones
BRIGHT = 0.995  # the share of a map's weights below the darkest colour
UNIFORM_MULTIPLE = 6  # the darkest colour is at least so many times uniform attention


class TextMaps(NamedTuple):
    """The maps of one text or two, which positions are special tokens, and whose text each is."""

    attention: Float[np.ndarray, "layer head query key"]
    special: Bool[np.ndarray, " key"]
    segment: Int[np.ndarray, " key"]


@dataclass(frozen=True)
class DrawnMap:
    """A map to draw: ``weights[query, key]``, its special tokens and the text of each key."""

    name: str
    weights: Float[np.ndarray, "query key"]
    special: Bool[np.ndarray, " key"]
    segment: Int[np.ndarray, " key"]


def text_maps(encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int) -> Iterator[TextMaps]:
    """Yield the maps of each of ``pairs``, in their order, in float32."""
    for item, attention in _maps(encoder, task_inputs(encoder, pairs, max_tokens)):
        special = np.isin(item["input_ids"], list(encoder.special_ids))
        yield TextMaps(attention, special, text_segments(special))


def sentence_maps(
    encoder: Encoder, sentences: Sequence[Sequence[str]]
) -> Iterator[Float[np.ndarray, "layer head word word"]]:
    """Yield the word-level maps of sentences, without the special tokens' rows and columns.

    Rows do not sum to 1: what goes to the special tokens is left out.
    """
    encodings = [encoder.encode_words(words) for words in sentences]
    inputs = [
        {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids, "words": encoding.word_ids}
        for encoding in encodings
    ]
    for item, attention in _maps(encoder, inputs):
        yield _words_only(attention, item["words"])


def text_segments(special: Bool[np.ndarray, " key"]) -> Int[np.ndarray, " key"]:
    """Return which text each position belongs to (0, 1, ...), from where special tokens stand.

    Special tokens separate texts; one that closes a text belongs to it, and those in front of
    the first text to the first.
    """
    starts = ~special & np.concatenate([[True], special[:-1]])
    return np.maximum(np.cumsum(starts) - 1, 0)


def _maps(
    encoder: Encoder, inputs: Sequence[Inputs]
) -> Iterator[tuple[Inputs, Float[np.ndarray, "layer head token token"]]]:
    for start in range(0, len(inputs), BATCH_SIZE):
        batch = inputs[start : start + BATCH_SIZE]
        layers, _ = forward(encoder, batch)
        for row, item in enumerate(batch):
            n = len(item["input_ids"])
            yield item, np.stack([layer[row, :, :n, :n].float().cpu().numpy() for layer in layers])


def _words_only(
    attention: Float[np.ndarray, "layer head token token"], word_ids: Sequence[int | None]
) -> Float[np.ndarray, "layer head word word"]:
    groups = word_groups(word_ids)
    maps = to_words(torch.from_numpy(attention), groups).numpy()
    inside = sorted({g for g, word in zip(groups, word_ids, strict=True) if word is not None})
    return maps[..., inside, :][..., inside]


def shaded(attention: Float[np.ndarray, "*map query key"]) -> Float[np.ndarray, "*map query key"]:
    """Return how dark each cell of a map is drawn, from 0 to 1, on a scale of the map's own."""
    uniform = 1 / attention.shape[-1]
    darkest = np.quantile(attention, BRIGHT, axis=(-2, -1), keepdims=True)
    darkest = np.clip(darkest, UNIFORM_MULTIPLE * uniform, 1)
    return np.clip(attention / darkest, 0, 1) ** FADE
