"""A small translation model of Marian's architecture, under head masks.

Attention is of three kinds: the encoder's, the decoder's, and the decoder's to the encoder
(cross-attention).  Each has a head mask of its own, ``xi[layer, head]`` (Michel et al. 2019,
section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

from helpers.model.parallel import length_batches
from helpers.studies.head_mask import head_mask
from helpers.studies.head_removal import side_by_side
from helpers.studies.sixteen_heads.importance import by_example, unit_mask
from helpers.studies.sixteen_heads.numbers import Translation

Kind = Literal["encoder", "cross", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"  # the first words of a vocabulary
PADDING, END_OF_SENTENCE = 0, 1
IGNORED = -100  # what cross-entropy counts as no label
BATCH_SIZE = 64
ROOM = 8  # tokens that a translation may be longer than its source


class WordCodec:
    """A vocabulary of whole words, the same for both languages."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (PAD, END, UNKNOWN, *sorted(set(words)))
        self._ids = {word: index for index, word in enumerate(self.words)}

    def ids(self, text: str) -> list[int]:
        """Return the ids of a sentence's words, and of the end of a sentence."""
        unknown = self._ids[UNKNOWN]
        return [*(self._ids.get(word, unknown) for word in text.split()), self._ids[END]]

    def text(self, ids: Sequence[int]) -> str:
        """Return the words of some ids."""
        return " ".join(self.words[index] for index in ids if self.words[index] not in (PAD, END))


@dataclass(frozen=True)
class Translator:
    """A model in evaluation mode with its vocabulary; ``identity`` tells its weights apart."""

    model: MarianMTModel = field(repr=False)
    codec: WordCodec = field(repr=False)
    identity: dict[str, object]

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads of the encoder and of the decoder, which are alike."""
        return self.model.config.encoder_layers, self.model.config.encoder_attention_heads


def new_marian(codec: WordCodec, *, layers: int, heads: int, width: int) -> MarianMTModel:
    """Return a Marian model with random weights (torch's seed) for a vocabulary."""
    config = MarianConfig(
        vocab_size=len(codec.words), d_model=width, max_position_embeddings=64,
        encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width, encoder_attention_heads=heads, decoder_attention_heads=heads,
        pad_token_id=PADDING, eos_token_id=END_OF_SENTENCE, decoder_start_token_id=PADDING,
        forced_eos_token_id=None,
        dropout=0.0, scale_embedding=True, init_std=0.05,
    )  # fmt: skip
    return MarianMTModel(config)


@contextmanager
def masked(
    model: MarianMTModel, kind: Kind, mask: Float[Tensor, "layer *example head"]
) -> Iterator[None]:
    """Scale the heads of one kind of attention by ``mask`` inside the context."""
    part = model.get_encoder() if kind == "encoder" else model.get_decoder()
    with head_mask(part, mask, cross=kind == "cross"):
        yield


def batch_of(codec: WordCodec, pairs: Sequence[Translation]) -> dict[str, Tensor]:
    """Return a padded batch: input_ids, attention_mask, and labels with `IGNORED` for padding."""
    sources = [codec.ids(pair.source) for pair in pairs]
    targets = [codec.ids(pair.target) for pair in pairs]
    real = [[1] * len(ids) for ids in sources]
    return {
        "input_ids": _padded(sources, PADDING),
        "attention_mask": _padded(real, 0),
        "labels": _padded(targets, IGNORED),
    }


@torch.inference_mode()
def translate(model: MarianMTModel, codec: WordCodec, sources: Sequence[str]) -> list[str]:
    """Return greedy translations (the likeliest word at each step), in order."""
    found: dict[int, str] = {}
    lengths = [len(codec.ids(text)) for text in sources]
    for chosen in length_batches(lengths, size=BATCH_SIZE):
        batch = batch_of(codec, [Translation(sources[index], "") for index in chosen])
        room = model.config.max_position_embeddings - 1
        ids = model.generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1,
            do_sample=False, max_new_tokens=min(lengths[chosen[-1]] + ROOM, room),
        )  # fmt: skip
        texts = [codec.text(row) for row in ids.tolist()]
        found.update(zip(chosen, texts, strict=True))
    return [found[index] for index in range(len(sources))]


def mask_gradients(
    translator: Translator, pairs: Sequence[Translation], kind: Kind
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi[layer, head]`` of one kind of attention, for each pair alone.

    L is the cross-entropy of the reference translation, the mean over its words, in nats.
    """
    starts = range(0, len(pairs), BATCH_SIZE)
    parts = [pairs[start : start + BATCH_SIZE] for start in starts]

    def job(model: MarianMTModel, part: Sequence[Translation]) -> Float[np.ndarray, ...]:
        batch = batch_of(translator.codec, part)
        labels = batch["labels"]
        mask = unit_mask(*translator.shape, labels)
        with masked(model, kind, mask):
            logits = model(**batch).logits.float().transpose(1, 2)
        losses = F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
        return by_example((losses.sum(dim=1) / (labels != IGNORED).sum(dim=1)).sum(), mask)

    return np.concatenate(side_by_side(translator.model, parts, job, f"importance ({kind})"))


def _padded(rows: Sequence[Sequence[int]], value: int) -> Int[Tensor, "example token"]:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
