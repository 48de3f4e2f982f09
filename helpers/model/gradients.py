"""Gradient-based importance of attention (section 3.2, Figure 3): ``|dL / dA[i, j]|``.

L is the objective that the checkpoint was trained with: that of its language-modelling head, or
without one the in-batch contrastive loss between the two paragraphs of a segment, each an input of
its own: in one input they see each other.  It is summed over the examples of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from helpers.data.records import Record, roles
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, Maps, model_inputs, padded, value_pass
from helpers.work import progress, reuse

KEY_TYPES = ("sep", "cls", "punctuation", "other")
MASKED_SHARE = 0.15
SCALE = 20.0  # of the cosine, as in the training of the sentence-transformers models
BATCH = 16
IGNORED = -100


def chosen_segments(articles: Sequence[str], count: int, *, contrastive: bool) -> list[int]:
    """Return the places of the segments to take, of all, which are from these ``articles``.

    For a contrastive objective as many batches as there can be are from one article each, where it
    is harder to tell which paragraphs belong together; all others are spread evenly.
    """
    places: dict[str, list[int]] = {}
    for place, article in enumerate(articles):
        places.setdefault(article, []).append(place)
    whole = [own[:BATCH] for own in places.values() if contrastive and len(own) >= BATCH]
    chosen = [place for batch in _evenly(whole, count // BATCH) for place in batch]
    rest = sorted(set(range(len(articles))).difference(chosen))
    return chosen + _evenly(rest, count - len(chosen))


def _evenly(items: list, count: int) -> list:
    places = np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)
    return [items[place] for place in places]


def gradient_importance(
    encoder: Encoder, records: Sequence[Record], *, batch_size: int = BATCH, seed: int = 0
) -> dict[str, Float[np.ndarray, "example ..."]]:
    """Return ``gradients``, ``[example, layer, type]``: mean ``|dL/dA|`` by type of key.

    The means are over the heads and the (query, key) pairs of a type (`KEY_TYPES`) in all inputs
    of a token-level record; NaN where there is no such key.  What is masked for the objective is no
    key of any type.  ``per_value``, if the model's value vectors can be found, has those of
    ``|dL/dA[i, j]| / |f(x_j)|``; ``losses`` are ``[example]``, in nats.
    """
    if encoder.objective == "contrastive" and len(records) < 2:
        raise InputError("the contrastive objective needs at least two segments; use more")
    reuse(16 << 20)  # larger arrays would leave holes that a longer batch does not fit into
    rng = np.random.default_rng(seed)
    batches = [records[i : i + batch_size] for i in range(0, len(records), batch_size)]
    if encoder.objective == "contrastive" and len(batches[-1]) < 2:
        batches[-2:] = [[*batches[-2], *batches[-1]]]
    bar = progress(batches, "gradients", unit="batch")
    found = [_batch_importance(encoder, batch, rng) for batch in bar]
    return {name: np.concatenate([own[name] for own in found]) for name in found[0]}


def _batch_importance(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> dict[str, Float[np.ndarray, "example ..."]]:
    losses, inputs, maps = objective(encoder, records, rng)
    gradients = torch.autograd.grad(losses.sum(), maps, allow_unused=True)
    if any(gradient is None for gradient in gradients):
        raise ModelError(
            f"model {encoder.name!r}: the maps that it returns are copies of those it computes "
            "with, so they have no gradient; leave section 3.2 out for it"
        )
    queries = padded(encoder, inputs)["attention_mask"][:, None, :, None]
    sums = torch.stack([(layer.abs() * queries).sum(dim=2) for layer in gradients])
    del maps, gradients
    kinds = {"gradients": sums}  # [layer, input, head, key]
    with suppress(ModelError), value_pass(encoder) as run:
        kinds["per_value"] = sums / torch.stack(run(inputs)[1]).clamp(min=1e-30)
    received = {kind: own.mean(dim=2).float().numpy(force=True) for kind, own in kinds.items()}
    totals = {kind: np.zeros((len(records), len(sums), len(KEY_TYPES))) for kind in kinds}
    pairs = np.zeros((len(records), 1, len(KEY_TYPES)))  # of a query and a key
    for row, item in enumerate(inputs):
        tokens = encoder.tokenizer.convert_ids_to_tokens(item["input_ids"])
        example = row % len(records)
        masked = np.array(item.get("masked", [False] * len(tokens)))
        for name, mask in roles(tokens, encoder.special_tokens).masks().items():
            keys, column = np.flatnonzero(mask & ~masked), KEY_TYPES.index(name)
            pairs[example, 0, column] += len(tokens) * len(keys)
            for kind, own in received.items():
                totals[kind][example, :, column] += own[:, row, keys].sum(axis=1)
    with np.errstate(invalid="ignore"):  # no such key
        found = {kind: total / pairs for kind, total in totals.items()}
    return found | {"losses": losses.numpy(force=True)}


def objective(
    encoder: Encoder, records: Sequence[Record], rng: np.random.Generator
) -> tuple[Float[Tensor, " example"], list[Inputs], Maps]:
    """Return the losses of a batch's examples, the inputs as the model got them, and its maps.

    A loss is in nats: of a language model the mean over the tokens that are predicted.  Of the
    contrastive objective's inputs, the first paragraphs' come first.
    """
    if encoder.objective == "contrastive":
        return _contrastive(encoder, [*paragraphs(encoder, records)])
    inputs = [model_inputs(encoder, record) for record in records]
    labels = [item["input_ids"] for item in inputs]
    if encoder.objective == "masked-lm":
        for row, item in enumerate(inputs):
            corrupted, label = mask_tokens(encoder, np.array(item["input_ids"]), rng)
            labels[row], hidden = label.tolist(), (label != IGNORED).tolist()
            inputs[row] = {**item, "input_ids": corrupted.tolist(), "masked": hidden}
    output = with_graph(encoder, encoder.model, inputs)
    logits = output.logits  # [example, token, word]
    rows = [label + [IGNORED] * (logits.shape[1] - len(label)) for label in labels]
    targets = torch.tensor(rows, device=logits.device)
    if encoder.objective == "next-token":
        logits, targets = logits[:, :-1], targets[:, 1:]
    per_token = F.cross_entropy(
        _wide(logits).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
    )
    losses = per_token.sum(dim=1) / (targets != IGNORED).sum(dim=1).clamp(min=1)
    return losses, inputs, list(output.attentions)


def mask_tokens(
    encoder: Encoder, ids: Int[np.ndarray, " token"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Return BERT's corrupted input and its labels: 15% of tokens, 80/10/10, at least one."""
    candidates = np.flatnonzero(~np.isin(ids, list(encoder.special_ids)))
    chosen = rng.permutation(candidates)[: max(1, round(MASKED_SHARE * len(candidates)))]
    labels = np.full_like(ids, IGNORED)
    labels[chosen] = ids[chosen]
    corrupted = ids.copy()
    fate = rng.random(len(chosen))
    corrupted[chosen[fate < 0.8]] = encoder.tokenizer.mask_token_id
    swapped = chosen[fate >= 0.9]
    corrupted[swapped] = rng.integers(len(encoder.tokenizer), size=len(swapped))
    return corrupted, labels


def paragraphs(encoder: Encoder, records: Sequence[Record]) -> Iterator[Inputs]:
    """Yield the first and then the second paragraphs of segments, as texts by themselves."""
    alone = encoder.encode_words(["a"])
    own = [place for place, word in enumerate(alone.word_ids) if word is not None]
    for second in (False, True):
        for record in records:
            ids = encoder.tokenizer.convert_tokens_to_ids(record["tokens"])
            half = ids[record["second"] :] if second else ids[: record["second"]]
            text = [token_id for token_id in half if token_id not in encoder.special_ids]
            ids = [*alone.ids[: own[0]], *text, *alone.ids[own[-1] + 1 :]]
            yield {"input_ids": ids, "token_type_ids": [0] * len(ids)}


def _contrastive(
    encoder: Encoder, inputs: list[Inputs]
) -> tuple[Float[Tensor, " example"], list[Inputs], Maps]:
    """Cross-entropy of finding each paragraph's own neighbour in the batch, mean of both ways."""
    output = with_graph(encoder, encoder.model.base_model, inputs)
    states = output.last_hidden_state  # [paragraph, token, width]
    inside = padded(encoder, inputs)["attention_mask"][..., None].to(states.dtype)
    pooled = (states * inside).sum(dim=1) / inside.sum(dim=1)
    return contrastive_losses(pooled), inputs, list(output.attentions)


def contrastive_losses(vectors: Float[Tensor, "paragraph width"]) -> Float[Tensor, " example"]:
    """Return the losses of a batch by its paragraphs' vectors, first ones first."""
    first, second = F.normalize(_wide(vectors), dim=-1).chunk(2)
    scores = SCALE * first @ second.T
    own = torch.arange(len(scores), device=scores.device)
    one, other = (F.cross_entropy(way, own, reduction="none") for way in (scores, scores.T))
    return (one + other) / 2


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
