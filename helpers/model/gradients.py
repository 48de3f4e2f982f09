"""Gradient-based importance of attention (section 3.2, Figure 3): ``|dL / dA[i, j]|``.

L is the objective of the checkpoint's masked-LM or causal-LM head, or without one the in-batch
contrastive loss between the two paragraphs of a segment, with which sentence encoders are trained.
Each paragraph is then an input of its own, because two paragraphs in one input see each other.  L
is summed over the examples of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from helpers.data.records import (
    KEY_TYPES,
    Record,
    Visible,
    cluster_of,
    evenly_spaced,
    roles,
    visible_mask,
)
from helpers.errors import ModelError
from helpers.model.forward import (
    Inputs,
    Maps,
    model_inputs,
    padded,
    recorded_values,
    transformed_norms,
    value_pass,
)
from helpers.model.loading import Model
from helpers.model.sites import Site, sites, wide
from helpers.progress import progress

Importance = dict[str, Float[np.ndarray, "example ..."]]

BATCH = 16
IGNORED = -100  # label of a token that is not predicted: F.cross_entropy leaves it out by default


def choose_segments(articles: Sequence[str], count: int, *, contrastive: bool) -> list[int]:
    """Choose the segments whose gradients are computed.

    For a contrastive objective, each batch has segments of different articles: as many as `BATCH`,
    or as there are articles.  A paragraph of the same article would be a wrong candidate that is as
    good as the right one.

    Parameters
    ----------
    articles : sequence of str
        The article of each segment.
    count : int
        The number of segments to choose.
    contrastive : bool
        Whether the objective is contrastive.

    Returns
    -------
    list of int
        The indices of at most ``count`` segments, spread evenly, batch by batch.
    """
    if not contrastive:
        return evenly_spaced(range(len(articles)), count)
    segments_of: dict[str, list[int]] = defaultdict(list)
    for segment, article in enumerate(articles):
        segments_of[article].append(segment)
    size = min(BATCH, len(segments_of), count)
    for n_batches in range(count // size, 0, -1):
        # An article has at most one segment in each batch.
        parts = [evenly_spaced(segments, n_batches) for segments in segments_of.values()]
        pool = list(chain.from_iterable(parts))
        if len(pool) >= size * n_batches:
            break
    chosen = evenly_spaced(pool, size * n_batches)
    # Those of one article stand next to each other, and there are no more than batches.
    batches = [chosen[number::n_batches] for number in range(n_batches)]
    return list(chain.from_iterable(batches))


def gradient_importance(encoder: Model, records: Sequence[Record], *, seed: int) -> Importance:
    """Compute the mean absolute gradient of the loss with respect to attention, by type of key.

    Parameters
    ----------
    encoder : Model
        The model.
    records : sequence of dict
        Token-level records of segments; for a contrastive objective in the order of
        `choose_segments`.
    seed : int
        The seed of the tokens that are masked.

    Returns
    -------
    dict of str to array
        ``gradients``, shape (example, layer, type): the mean of ``|dL/dA|`` over the heads and over
        the pairs of a query and a key of each type (`KEY_TYPES`) that the query sees, in all inputs
        of a record.  The first token, which may be [CLS], is no other one.  NaN if there is no such
        key; a token that is masked for the objective is a key of no type.  The last token of a
        decoder's input predicts nothing and is no query.
        ``per_score``: the same of ``|dL/ds|``, see `score_gradients`.
        ``per_value``, if the model's value vectors can be found: the same of
        ``|dL/dA[i, j]| / |f(x_j)|``.  ``losses``, shape (example,): in nats.  ``guesses``, shape
        (example,): the loss of a guess among all candidates, in nats.
    """
    n_articles = len({cluster_of(record, index) for index, record in enumerate(records)})
    # The scores of a large vocabulary need memory.
    sizes = {"next-token": 4, "masked-lm": BATCH, "contrastive": min(BATCH, n_articles)}
    size = sizes[encoder.objective]
    rng = np.random.default_rng(seed)
    batches = [records[start : start + size] for start in range(0, len(records), size)]
    layers: list[Site] = []  # empty if the model's value vectors cannot be found
    with suppress(ModelError), value_pass(encoder):
        layers = sites(encoder.model)
    bar = progress(batches, "gradients", unit="batch")
    parts = [_batch_importance(encoder, layers, batch, rng) for batch in bar]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _batch_importance(
    encoder: Model, layers: Sequence[Site], records: Sequence[Record], rng: np.random.Generator
) -> Importance:
    """Compute `gradient_importance` for one batch."""
    with recorded_values(layers) as recorded:
        projected = recorded()
        losses, inputs, maps = training_losses(encoder, records, rng)
    gradients = torch.autograd.grad(losses.sum(), maps)
    pairs = visible_pairs(encoder, inputs)
    sums = defaultdict(list)  # over queries, by measure: [input, head, key] for each layer
    for weights, gradient, is_pair in zip(maps, gradients, pairs[:, :, None], strict=True):
        by_score = score_gradients(weights.detach(), gradient)
        for name, values in (("gradients", gradient), ("per_score", by_score)):
            sums[name].append((values.abs() * is_pair.to(values.device)).sum(dim=2))
    del maps, gradients  # the largest tensors of the pass
    measures = {name: torch.stack(by_layer) for name, by_layer in sums.items()}
    if layers:
        norms = torch.stack(list(map(transformed_norms, layers, projected)))
        measures["per_value"] = measures["gradients"] / norms.clamp(min=1e-30)
    is_contrastive = encoder.objective == "contrastive"
    n_candidates = len(records) if is_contrastive else len(encoder.tokenizer)
    importance = {
        "losses": losses.numpy(force=True),
        "guesses": np.full(len(records), np.log(n_candidates)),
    }
    types = _key_types(encoder, inputs)
    n_pairs = _sum_by_type(pairs.sum(dim=2), types, len(records))
    for name, values in measures.items():
        by_type = _sum_by_type(values.mean(dim=2).cpu(), types, len(records))
        importance[name] = (by_type / n_pairs).numpy()  # NaN where there is no such key
    return importance


def score_gradients(
    weights: Float[Tensor, "*batch query key"], gradients: Float[Tensor, "*batch query key"]
) -> Float[Tensor, "*batch query key"]:
    """Compute ``dL/ds`` from ``dL/dA``, for the scores ``s`` whose softmax are the weights ``A``.

    ``dL/ds[i, j] = A[i, j] (dL/dA[i, j] - sum_k A[i, k] dL/dA[i, k])``: a weight grows at the
    expense of the others, because the row keeps its sum.

    Parameters
    ----------
    weights, gradients : tensor, shape (..., query, key)
        ``A`` and ``dL/dA``.

    Returns
    -------
    tensor of the same shape
    """
    weights = wide(weights)
    mean_gradient = (weights * gradients).sum(dim=-1, keepdim=True)
    return weights * (gradients - mean_gradient)


def visible_pairs(
    encoder: Model, inputs: Sequence[Inputs]
) -> Bool[Tensor, "layer input query key"]:
    """Find the pairs of a query and a key that it sees, in each layer; none have padding."""
    lengths = torch.tensor([len(model_input["input_ids"]) for model_input in inputs])
    n_tokens = int(lengths.max())
    positions = torch.arange(n_tokens)
    is_key = positions < lengths[:, None]  # [input, token]
    # The last token of a language model's input predicts nothing.
    n_queries = lengths - int(encoder.objective == "next-token")
    is_query = positions < n_queries[:, None]
    pairs = is_query[:, :, None] & is_key[:, None, :]
    masks = [visible_mask(Visible(**layer), n_tokens) for layer in encoder.visible]
    return torch.stack([pairs & torch.from_numpy(mask) for mask in masks])


def _key_types(encoder: Model, inputs: Sequence[Inputs]) -> Float[Tensor, "input type key"]:
    """Mark the type of each key (`KEY_TYPES`) by a one; those that are masked have none."""
    n_tokens = max(len(model_input["input_ids"]) for model_input in inputs)
    types = torch.zeros(len(inputs), len(KEY_TYPES), n_tokens, dtype=torch.double)
    for row, model_input in enumerate(inputs):
        tokens = encoder.tokenizer.convert_ids_to_tokens(model_input["input_ids"])
        is_masked = np.array(model_input.get("masked", [False] * len(tokens)))
        is_first = np.arange(len(tokens)) == 0
        masks = roles(tokens, encoder.special_tokens).masks()
        masks = {**masks, "other": masks["other"] & ~is_first, "first": is_first}
        for name, mask in masks.items():
            is_key = torch.from_numpy(mask & ~is_masked)
            types[row, KEY_TYPES.index(name), : len(tokens)] = is_key.double()
    return types


def _sum_by_type(
    by_key: Shaped[Tensor, "layer input key"], types: Float[Tensor, "input type key"], examples: int
) -> Float[Tensor, "example layer type"]:
    """Sum over the keys of each type, in all inputs of an example: ``row % examples``."""
    sums = torch.einsum("lik,itk->ilt", by_key.double(), types)
    return sums.unflatten(0, (-1, examples)).sum(dim=0)


def training_losses(
    encoder: Model, records: Sequence[Record], rng: np.random.Generator
) -> tuple[Float[Tensor, " example"], list[Inputs], Maps]:
    """Compute the losses of a batch with the graph that gradients need.

    Parameters
    ----------
    encoder : Model
        The model, whose ``objective`` says which loss it is.
    records : sequence of dict
        Token-level records of segments.
    rng : Generator
        Chooses the tokens that are masked.

    Returns
    -------
    losses : tensor, shape (example,)
        In nats; of a language model, the mean over the tokens that are predicted, which are all
        but the first for the objective "next-token".
    inputs : list of dict
        The inputs as the model got them.  For the contrastive objective these are the first
        paragraphs of all segments, then the second ones.
    maps : list of tensor, one for each layer, shape (input, head, query, key)
    """
    if encoder.objective == "contrastive":
        inputs = list(paragraphs(encoder, records))
        output = run_with_graph(encoder, inputs)
        states = output.last_hidden_state  # [paragraph, token, width]
        mask = padded(encoder, inputs)["attention_mask"][..., None].to(states.dtype)
        vectors = (states * mask).sum(dim=1) / mask.sum(dim=1)
        first, second = F.normalize(wide(vectors), dim=-1).chunk(2)
        # Of each first paragraph with each second one; the scale is that of sentence-transformers.
        scores = 20.0 * first @ second.T
        # The cross-entropy of finding a paragraph's partner is the mean of both directions.
        partners = torch.arange(len(scores), device=scores.device)
        first_to_second = F.cross_entropy(scores, partners, reduction="none")
        second_to_first = F.cross_entropy(scores.T, partners, reduction="none")
        return (first_to_second + second_to_first) / 2, inputs, list(output.attentions)
    inputs = [model_inputs(encoder, record) for record in records]
    labels = []  # of the tokens of an input
    for row in range(len(inputs)):
        if encoder.objective == "next-token":
            label = [*inputs[row]["input_ids"][1:], IGNORED]  # of the token after each position
        else:
            corrupted, label = mask_tokens(encoder, np.array(inputs[row]["input_ids"]), rng)
            is_masked = (label != IGNORED).tolist()
            inputs[row] = {**inputs[row], "input_ids": corrupted.tolist(), "masked": is_masked}
        labels.append(torch.tensor(label))
    output = run_with_graph(encoder, inputs)
    targets = pad_sequence(labels, batch_first=True, padding_value=IGNORED).to(encoder.model.device)
    logits = wide(output.logits)  # [example, token, word]
    # Flat, because torch's sum over classes that are not adjacent in memory loses four digits.
    label_losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    label_losses = label_losses.view_as(targets)
    losses = label_losses.sum(dim=1) / (targets != IGNORED).sum(dim=1).clamp(min=1)
    return losses, inputs, list(output.attentions)


def mask_tokens(
    encoder: Model, ids: Int[np.ndarray, " token"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Corrupt an input as BERT's pre-training does.

    15% of the tokens, and at least one, are chosen.  Of these, 80% become [MASK], 10% become a
    random token and 10% stay as they are.

    Returns
    -------
    corrupted : array, shape (token,)
        The token ids of the input.
    labels : array, shape (token,)
        The original ids of the chosen tokens; `IGNORED` for all others.
    """
    candidates = np.flatnonzero(~np.isin(ids, encoder.special_ids))
    chosen = rng.permutation(candidates)[: max(1, round(0.15 * len(candidates)))]
    labels = np.full_like(ids, IGNORED)
    labels[chosen] = ids[chosen]
    corrupted = ids.copy()
    fate = rng.random(len(chosen))
    corrupted[chosen[fate < 0.8]] = encoder.tokenizer.mask_token_id
    swapped = chosen[fate >= 0.9]
    corrupted[swapped] = rng.integers(len(encoder.tokenizer), size=len(swapped))
    return corrupted, labels


def paragraphs(encoder: Model, records: Sequence[Record]) -> Iterator[Inputs]:
    """Yield the first and then the second paragraphs of segments as separate inputs."""
    example = encoder.tokenizer.backend_tokenizer.encode("a")
    is_special = example.special_tokens_mask
    before = example.ids[: is_special.index(0)]
    after = example.ids[len(example) - is_special[::-1].index(0) :]
    for is_second in (False, True):
        for record in records:
            ids = cast("list[int]", encoder.tokenizer.convert_tokens_to_ids(record["tokens"]))
            # Decoders have a blank line between the paragraphs.
            end_of_first = record.get("blank_line", record["second"])
            half = ids[record["second"] :] if is_second else ids[:end_of_first]
            text = [token_id for token_id in half if token_id not in encoder.special_ids]
            paragraph = [*before, *text, *after]
            yield {"input_ids": paragraph, "token_type_ids": [0] * len(paragraph)}


def run_with_graph(encoder: Model, inputs: list[Inputs]) -> Any:
    """Run the model with a graph that begins at the embeddings: its parameters are frozen."""
    embeddings = encoder.model.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _module, _args, out: out.requires_grad_())
    try:
        return encoder.model(**padded(encoder, inputs), output_attentions=True)
    finally:
        hook.remove()
