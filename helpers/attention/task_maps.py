"""The attention maps of a task's examples, straight from the model: nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from helpers.attention.classify import BATCH_SIZE, task_inputs
from helpers.attention.forward import Inputs, forward
from helpers.attention.models import Encoder
from helpers.attention.words import to_words, word_groups
from helpers.data.tasks import Pair


@dataclass(frozen=True)
class TaskMap:
    """The maps of one example, and which of its positions are special tokens."""

    attention: Float[np.ndarray, "layer head query key"]
    special: Bool[np.ndarray, " key"]


def task_maps(
    encoder: Encoder, pairs: Sequence[Pair], *, max_tokens: int, batch_size: int = BATCH_SIZE
) -> Iterator[TaskMap]:
    """Yield the maps of each of ``pairs``, in their order, in float32."""
    inputs = task_inputs(encoder, pairs, max_tokens)
    for item, attention in _maps(encoder, inputs, batch_size):
        special = np.isin(item["input_ids"], list(encoder.special_ids))
        yield TaskMap(attention, special)


def sentence_maps(
    encoder: Encoder, sentences: Sequence[Sequence[str]], *, batch_size: int = BATCH_SIZE
) -> Iterator[Float[np.ndarray, "layer head word word"]]:
    """Yield the word-level maps of sentences, without the special tokens' rows and columns.

    Rows do not sum to 1: what goes to the special tokens is left out.
    """
    encodings = [encoder.encode_words(words) for words in sentences]
    inputs = [
        {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids, "words": encoding.word_ids}
        for encoding in encodings
    ]
    for item, attention in _maps(encoder, inputs, batch_size):
        yield _words_only(attention, item["words"])


def _maps(
    encoder: Encoder, inputs: Sequence[Inputs], batch_size: int
) -> Iterator[tuple[Inputs, Float[np.ndarray, "layer head token token"]]]:
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
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
