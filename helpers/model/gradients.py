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
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from helpers.data.records import Record, roles
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, Maps, model_inputs, padded
from helpers.work import progress

KEY_TYPES = ("sep", "cls", "punctuation", "other")
MASKED_SHARE = 0.15
SCALE = 20.0  # of the cosine, as in the training of the sentence-transformers models
IGNORED = -100


def gradient_importance(
    encoder: Encoder, records: Sequence[Record], *, batch_size: int = 16, seed: int = 0
) -> Float[np.ndarray, "example layer type"]:
    """Return each example's mean ``|dL/dA|`` by layer and type of key (`KEY_TYPES`).

    ``records`` are token-level records: the inputs are those of Figure 2.  The mean is over the
    heads and the (query, key) pairs of a type within the example; NaN where it has no such key.
    What is masked for the objective is no key of any type.
    """
    if encoder.objective == "contrastive" and len(records) < 2:
        raise InputError("the contrastive objective needs at least two segments; use more")
    rng = np.random.default_rng(seed)
    batches = [records[i : i + batch_size] for i in range(0, len(records), batch_size)]
    if encoder.objective == "contrastive" and len(batches[-1]) < 2:
        batches[-2:] = [[*batches[-2], *batches[-1]]]
    bar = progress(batches, "gradients", unit="batch")
    return np.concatenate([_batch_importance(encoder, batch, rng) for batch in bar])


def _batch_importance(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> Float[np.ndarray, "example layer type"]:
    loss, inputs, maps = objective(encoder, records, rng)
    gradients = torch.autograd.grad(loss, maps, allow_unused=True)
    if any(gradient is None for gradient in gradients):
        raise ModelError(
            f"model {encoder.name!r}: the maps that it returns are copies of those it computes "
            "with, so they have no gradient; leave section 3.2 out for it"
        )
    found = np.full((len(records), len(maps), len(KEY_TYPES)), np.nan)
    for row, (record, item) in enumerate(zip(records, inputs, strict=True)):
        n = len(record["tokens"])
        per_key = [layer[row, :, :n, :n].abs().mean(dim=(0, 1)) for layer in gradients]
        received = torch.stack(per_key).float().cpu().numpy()  # [layer, key]
        masks = roles(record["tokens"], encoder.special_tokens).masks()
        for column, name in enumerate(KEY_TYPES):
            keys = masks.get(name, np.zeros(n, bool)) & ~np.array(item.get("masked", [False] * n))
            if keys.any():
                found[row, :, column] = received[:, keys].mean(axis=1)
    return found


def objective(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> tuple[Float[Tensor, ""], list[Inputs], Maps]:
    """Return the loss of a batch, the inputs as the model got them, and its maps."""
    inputs = [model_inputs(encoder, record) for record in records]
    if encoder.objective == "contrastive":
        return _contrastive(encoder, inputs, [record["second"] for record in records])
    labels = [item["input_ids"] for item in inputs]
    if encoder.objective == "masked-lm":
        inputs, labels = _corrupted(encoder, inputs, rng)
    output = with_graph(encoder, encoder.model, inputs)
    losses = _token_losses(output.logits, labels, next_token=encoder.objective == "next-token")
    return losses.sum(), inputs, list(output.attentions)


def _token_losses(
    logits: Float[Tensor, "example token word"], labels: list[list[int]], *, next_token: bool
) -> Float[Tensor, " example"]:
    """Return each example's mean cross-entropy over its labels that are not `IGNORED`, in nats."""
    length = logits.shape[1]
    rows = [label + [IGNORED] * (length - len(label)) for label in labels]
    targets = torch.tensor(rows, device=logits.device)
    if next_token:
        logits, targets = logits[:, :-1], targets[:, 1:]
    per_token = F.cross_entropy(
        _wide(logits).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
    )
    counted = (targets != IGNORED).sum(dim=1).clamp(min=1)
    return per_token.sum(dim=1) / counted


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


def _corrupted(
    encoder: Encoder, inputs: list[Inputs], rng: np.random.Generator
) -> tuple[list[Inputs], list[list[int]]]:
    """Return inputs with tokens masked (see `mask_tokens`), and their labels."""
    masked, labels = [], []
    for item in inputs:
        corrupted, label = mask_tokens(
            np.array(item["input_ids"]),
            np.array([i not in encoder.special_ids for i in item["input_ids"]]),
            mask_id=encoder.tokenizer.mask_token_id,
            vocabulary=len(encoder.tokenizer),
            rng=rng,
        )
        hidden = (label != IGNORED).tolist()
        masked.append({**item, "input_ids": corrupted.tolist(), "masked": hidden})
        labels.append(label.tolist())
    return masked, labels


def _contrastive(
    encoder: Encoder, inputs: list[Inputs], seconds: Sequence[int]
) -> tuple[Float[Tensor, ""], list[Inputs], Maps]:
    """Cross-entropy of finding each paragraph's own neighbour in the batch, both ways.

    A segment is one input, as everywhere in section 3; the vector of a paragraph is the mean over
    its half, which the second one enters at the position ``seconds``.
    """
    output = with_graph(encoder, encoder.model.base_model, inputs)
    states = output.last_hidden_state  # [segment, token, width]
    inside = padded(encoder, inputs)["attention_mask"].bool()
    position = torch.arange(inside.shape[1], device=inside.device)
    is_first = position < torch.tensor(seconds, device=inside.device)[:, None]
    vectors = []
    for half in (inside & is_first, inside & ~is_first):
        mask = half[..., None].to(states.dtype)
        pooled = (states * mask).sum(dim=1) / mask.sum(dim=1)  # [segment, width]
        vectors.append(F.normalize(_wide(pooled), dim=-1))
    scores = SCALE * vectors[0] @ vectors[1].T
    own = torch.arange(len(inputs), device=scores.device)
    one, other = (F.cross_entropy(way, own, reduction="sum") for way in (scores, scores.T))
    return (one + other) / 2, inputs, list(output.attentions)


def with_graph(encoder: Encoder, model: torch.nn.Module, inputs: list[Inputs]) -> Any:
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
