"""Head masks and greedy translations of encoder-decoder models.

Their attention is of three kinds: the encoder's, the decoder's, and the decoder's to the encoder
(cross-attention).  Each has a head mask of its own, ``xi[layer, head]`` (Michel et al. 2019,
section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from transformers import MarianMTModel

from helpers.attention.ablation import head_mask
from helpers.attention.side_by_side import side_by_side
from helpers.attention.translators import Codec, Kind, Translator
from helpers.data.numbers import Translation

KINDS: tuple[Kind, ...] = ("encoder", "cross", "decoder")
IGNORED = -100  # what cross-entropy counts as no label
BATCH_SIZE = 64
ROOM = 8  # tokens that a translation may be longer than its source


@contextmanager
def masked(
    model: MarianMTModel, kind: Kind, mask: Float[Tensor, "layer *example head"]
) -> Iterator[None]:
    """Scale the heads of one kind of attention by ``mask`` inside the context."""
    part = model.get_encoder() if kind == "encoder" else model.get_decoder()
    with head_mask(part, mask, cross=kind == "cross"):
        yield


def batch_of(
    codec: Codec, pairs: Sequence[Translation], pad: int, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Return a padded batch: input_ids, attention_mask, and labels with `IGNORED` for padding."""
    sources = [codec.source_ids(pair.source) for pair in pairs]
    targets = [codec.target_ids(pair.target) for pair in pairs]
    source, real = _padded(sources, pad), _padded([[1] * len(ids) for ids in sources], 0)
    batch = {"input_ids": source, "attention_mask": real, "labels": _padded(targets, IGNORED)}
    return {name: tensor.to(device) for name, tensor in batch.items()}


@torch.inference_mode()
def translate(
    model: MarianMTModel, codec: Codec, sources: Sequence[str], *, batch_size: int = BATCH_SIZE
) -> list[str]:
    """Return greedy translations (the likeliest word at each step), in order."""
    found: dict[int, str] = {}
    lengths = [len(codec.source_ids(text)) for text in sources]
    order = sorted(range(len(sources)), key=lambda index: lengths[index])
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        pairs = [Translation(sources[index], "") for index in chosen]
        batch = batch_of(codec, pairs, model.config.pad_token_id, model.device)
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
    model, codec = translator.model, translator.codec
    starts = range(0, len(pairs), BATCH_SIZE)
    parts = [pairs[start : start + BATCH_SIZE] for start in starts]

    def job(own: MarianMTModel, part: Sequence[Translation]) -> Float[np.ndarray, ...]:
        batch = batch_of(codec, part, own.config.pad_token_id, own.device)
        return _gradients(own, batch, kind, translator.shape(kind))

    return np.concatenate(side_by_side(model, parts, job, f"importance ({kind})"))


def sentence_losses(
    logits: Float[Tensor, "example token word"], labels: Int[Tensor, "example token"]
) -> Float[Tensor, " example"]:
    """Return each example's cross-entropy, the mean over its words, in nats."""
    losses = F.cross_entropy(
        logits.float().transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
    )
    return losses.sum(dim=1) / (labels != IGNORED).sum(dim=1)


def _gradients(
    model: MarianMTModel, batch: dict[str, Tensor], kind: Kind, shape: tuple[int, int]
) -> Float[np.ndarray, "example layer head"]:
    layers, heads = shape
    size = layers, len(batch["labels"]), heads
    mask = torch.ones(size, device=model.device, requires_grad=True)
    with masked(model, kind, mask):
        # Summed: an example's gradient must not depend on how many others share its batch.
        loss = sentence_losses(model(**batch).logits, batch["labels"]).sum()
    (gradient,) = torch.autograd.grad(loss, mask)  # [layer, example, head]
    return gradient.transpose(0, 1).double().cpu().numpy()


def _padded(rows: Sequence[Sequence[int]], value: int) -> Int[Tensor, "example token"]:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
