"""Gradient-based importance of attention (section 3.2, Figure 3): ``|dL / dA[i, j]|``.

L is the objective that the checkpoint was trained with: masked-LM where it has a trained
masked-LM head, next-token prediction for decoders, and otherwise the in-batch contrastive loss
between the two paragraphs of a segment.  It is summed over the examples of a batch, so that an
example's gradient does not depend on how many others share its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from helpers.data.records import Record
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, Maps, model_inputs, padded
from helpers.model.token_types import roles
from helpers.progress import progress

KEY_TYPES = ("sep", "cls", "punctuation", "other")
MASKED_SHARE = 0.15
SCALE = 20.0  # of the cosine, as in the training of the sentence-transformers models
IGNORED = -100


def gradient_table(encoder: Encoder, source: Any, count: int, *, seed: int) -> pd.DataFrame:
    """Return `gradient_importance` on ``count`` examples spread evenly over a store or stream.

    A ``count`` of 0 takes all of them.
    """
    places = np.linspace(0, len(source) - 1, min(count or len(source), len(source)))
    records = [source.record(int(place)) for place in places]
    return gradient_importance(encoder, records, seed=seed)


def gradient_importance(
    encoder: Encoder, records: Sequence[Record], *, batch_size: int = 16, seed: int = 0
) -> pd.DataFrame:
    """Return the mean ``|dL/dA|`` of each layer by type of key: the table of Figure 3.

    ``records`` are token-level records.  Columns: layer (from 1), sep, cls, punctuation, other,
    objective; NaN for a token that the model does not have.  The average is over the heads and
    the (query, key) pairs of a type within an example, then over examples.

    Raises:
        InputError: a contrastive objective with fewer than two segments.
        ModelError: the model does not compute with the maps that it returns.
    """
    if encoder.objective == "contrastive" and len(records) < 2:
        raise InputError("the contrastive objective needs at least two segments; use more")
    rng = np.random.default_rng(seed)
    rows = []
    batches = [records[i : i + batch_size] for i in range(0, len(records), batch_size)]
    if encoder.objective == "contrastive" and len(batches[-1]) < 2:
        batches[-2:] = [[*batches[-2], *batches[-1]]]
    for batch in progress(batches, "gradients", unit="batch"):
        rows.extend(batch_importance(encoder, batch, rng))
    table = pd.DataFrame(_nan_mean(np.stack(rows)), columns=list(KEY_TYPES))
    table.insert(0, "layer", range(1, encoder.layers + 1))
    return table.assign(objective=encoder.objective)


def batch_importance(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> list[Float[np.ndarray, "layer type"]]:
    """Return the importance of one batch's attention, an array for each example.

    Raises:
        ModelError: the model does not compute with the maps that it returns.
    """
    loss, parts = objective(encoder, records, rng)
    every = [layer for _, maps in parts for layer in maps]
    gradients = torch.autograd.grad(loss, every, allow_unused=True)
    if any(gradient is None for gradient in gradients):
        raise ModelError(
            f"model {encoder.name!r}: the maps that it returns are copies of those it computes "
            "with, so they have no gradient; leave section 3.2 out for it"
        )
    examples: list[list[Float[np.ndarray, "layer 2 type"]]] = [[] for _ in records]
    for number, (inputs, maps) in enumerate(parts):
        own = gradients[number * len(maps) : (number + 1) * len(maps)]
        for row, item in enumerate(inputs):
            n = len(item["input_ids"])
            cropped = torch.stack([layer[row, :, :n, :n].abs().sum(dim=(0, 1)) for layer in own])
            pairs = own[0].shape[1] * n  # (head, query) pairs behind each key's sum
            examples[row].append(_by_type(encoder, item, cropped.float().cpu().numpy(), pairs))
    return [_ratio(np.sum(parts, axis=0)) for parts in examples]


def objective(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> tuple[Float[Tensor, ""], list[tuple[list[Inputs], Maps]]]:
    """Return the loss of a batch and, for each forward pass, its inputs and its maps."""
    inputs = [model_inputs(encoder, record) for record in records]
    if encoder.objective == "contrastive":
        return _contrastive(encoder, [_paragraphs(encoder, record) for record in records])
    labels = inputs
    if encoder.objective == "masked-lm":
        inputs, labels = _masked(encoder, inputs, rng)
    output = _forward(encoder, encoder.model, inputs)
    targets = _targets(labels, output.logits.shape[1], output.logits.device)
    logits = output.logits
    if encoder.objective == "next-token":
        logits, targets = logits[:, :-1], targets[:, 1:]
    per_token = F.cross_entropy(
        _wide(logits).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
    )
    counted = (targets != IGNORED).sum(dim=1).clamp(min=1)
    return (per_token.sum(dim=1) / counted).sum(), [(inputs, list(output.attentions))]


def mask_tokens(
    ids: Int[np.ndarray, " token"],
    maskable: np.ndarray,
    *,
    mask_id: int,
    vocabulary: int,
    rng: np.random.Generator,
) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Return BERT's corrupted input and its labels: 15% of tokens, 80/10/10, at least one."""
    candidates = np.flatnonzero(maskable)
    chosen = rng.permutation(candidates)[: max(1, round(MASKED_SHARE * len(candidates)))]
    labels = np.full_like(ids, IGNORED)
    labels[chosen] = ids[chosen]
    corrupted = ids.copy()
    fate = rng.random(len(chosen))
    corrupted[chosen[fate < 0.8]] = mask_id
    swapped = chosen[fate >= 0.9]
    corrupted[swapped] = rng.integers(vocabulary, size=len(swapped))
    return corrupted, labels


def _masked(
    encoder: Encoder, inputs: list[Inputs], rng: np.random.Generator
) -> tuple[list[Inputs], list[Inputs]]:
    masked, labels = [], []
    for item in inputs:
        corrupted, label = mask_tokens(
            np.array(item["input_ids"]),
            np.array([i not in encoder.special_ids for i in item["input_ids"]]),
            mask_id=encoder.tokenizer.mask_token_id,
            vocabulary=len(encoder.tokenizer),
            rng=rng,
        )
        masked.append({**item, "input_ids": corrupted.tolist(), "original": item["input_ids"]})
        labels.append({"input_ids": label.tolist()})
    return masked, labels


def _contrastive(
    encoder: Encoder, pairs: list[tuple[Inputs, Inputs]]
) -> tuple[Float[Tensor, ""], list[tuple[list[Inputs], Maps]]]:
    """Cross-entropy of finding each paragraph's own neighbour in the batch, both ways."""
    vectors, parts = [], []
    for inputs in (list(side) for side in zip(*pairs, strict=True)):
        output = _forward(encoder, encoder.model.base_model, inputs)
        mask = padded(encoder, inputs)["attention_mask"][..., None]
        states = output.last_hidden_state
        pooled = (states * mask).sum(dim=1) / mask.sum(dim=1)  # [batch, width]
        vectors.append(F.normalize(_wide(pooled), dim=-1))
        parts.append((inputs, list(output.attentions)))
    scores = SCALE * vectors[0] @ vectors[1].T
    own = torch.arange(len(pairs), device=scores.device)
    both = F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(
        scores.T, own, reduction="sum"
    )
    return both / 2, parts


def _paragraphs(encoder: Encoder, record: Record) -> tuple[Inputs, Inputs]:
    """Return the two paragraphs of a segment as inputs of their own."""
    before, after = _special_frame(encoder)
    ids = model_inputs(encoder, record)["input_ids"]
    halves = ids[: record["second"]], ids[record["second"] :]
    framed = [before + [i for i in half if i not in encoder.special_ids] + after for half in halves]
    first, second = ({"input_ids": half, "token_type_ids": [0] * len(half)} for half in framed)
    return first, second


def _special_frame(encoder: Encoder) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    text = encoder.encode_words(["a"])
    inside = [position for position, word in enumerate(text.word_ids) if word is not None]
    return text.ids[: inside[0]], text.ids[inside[-1] + 1 :]


def _forward(encoder: Encoder, model: torch.nn.Module, inputs: list[Inputs]) -> Any:
    """Run the model with a graph from the embeddings on (its weights themselves are frozen)."""
    embeddings = encoder.model.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _module, _args, out: out.requires_grad_())
    try:
        return model(**padded(encoder, inputs), output_attentions=True)
    finally:
        hook.remove()


def _wide(values: Tensor) -> Tensor:
    """Return values in float32 at least: a loss in half precision is too coarse."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _targets(labels: list[Inputs], length: int, device: torch.device) -> Int[Tensor, "batch token"]:
    rows = [item["input_ids"] + [IGNORED] * (length - len(item["input_ids"])) for item in labels]
    return torch.tensor(rows, device=device)


def _by_type(
    encoder: Encoder, item: Inputs, received: Float[np.ndarray, "layer key"], pairs: int
) -> Float[np.ndarray, "layer 2 type"]:
    """Return, for each layer and key type, the summed gradient and the number of pairs."""
    ids = item.get("original", item["input_ids"])
    masks = roles(encoder.tokenizer.convert_ids_to_tokens(ids), encoder.special_tokens).masks()
    out = np.zeros((len(received), 2, len(KEY_TYPES)))
    for column, name in enumerate(KEY_TYPES):
        if name in masks:
            out[:, 0, column] = received[:, masks[name]].sum(axis=-1)
            out[:, 1, column] = masks[name].sum() * pairs
    return out


def _ratio(sums: Float[np.ndarray, "layer 2 type"]) -> Float[np.ndarray, "layer type"]:
    total, count = sums[:, 0], sums[:, 1]
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _nan_mean(values: Float[np.ndarray, "example layer type"]) -> Float[np.ndarray, "layer type"]:
    present = ~np.isnan(values)
    count = present.sum(axis=0)
    total = np.where(present, values, 0).sum(axis=0)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
