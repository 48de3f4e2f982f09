"""Ablation of attention edges: which edges are cut, and what becomes of their weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from helpers.data.records import is_punctuation
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.sites import PatchSoftmax, Weights, base_transformer
from helpers.studies.common.head_removal import Intervention

AblationMode = Literal[
    "dropped", "redistributed", "mass-matched", "mass-matched on the most attended"
]
Edges = Bool[Tensor, "batch 1 query key"]
TokenIds = Mapping[str, Collection[int]]  # of each set of keys

MODES = DROPPED, REDISTRIBUTED, MASS_MATCHED, MOST_ATTENDED = get_args(AblationMode)
SPECIAL_SHARE_THRESHOLD = 0.25  # layers above it are ablated together
SPECIAL_KEYS = "special"
PUNCTUATION_KEYS = "punctuation"
ALL_QUERIES = "all"
FIRST_QUERY = "first token"


class Cut(NamedTuple):
    """A set of edges: in which layers (from 0), to which keys, and from which queries.

    The keys are "special", "punctuation", "cls" or "sep".
    """

    layers: tuple[int, ...]
    keys: str = SPECIAL_KEYS
    queries: str = ALL_QUERIES

    @property
    def name(self) -> str:
        """The layers, from 1: "3", "2-5", or "2-5, 10-11"."""
        gaps = np.flatnonzero(np.diff(self.layers) > 1) + 1
        ranges = []
        for run in np.split(np.array(self.layers) + 1, gaps):
            ranges.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
        return ", ".join(ranges)

    def is_query(self, tokens: Int[Tensor, "batch token"]) -> Bool[Tensor, " query"]:
        """Mark the queries of a batch whose edges are cut."""
        length = tokens.shape[1]
        is_query = torch.ones(length, dtype=torch.bool, device=tokens.device)
        if self.queries == FIRST_QUERY:
            is_query[1:] = False
        return is_query

    def edges(self, tokens: Int[Tensor, "batch token"], token_ids: TokenIds) -> Edges:
        """Mark the edges of a batch that are cut."""
        return mark_keys(tokens, token_ids[self.keys]) & self.is_query(tokens)[:, None]


def mark_keys(
    tokens: Int[Tensor, "batch token"], ids: Collection[int]
) -> Bool[Tensor, "batch 1 1 key"]:
    """Mark the keys of a batch that have one of some ids."""
    return torch.isin(tokens, torch.tensor(sorted(ids), device=tokens.device))[:, None, None]


def special_token_layers(special_tokens: pd.DataFrame) -> tuple[int, ...]:
    """List the layers in which special tokens get over a quarter of the attention.

    Parameters
    ----------
    special_tokens : DataFrame
        The table special_tokens.csv (`helpers.studies.kobayashi2020.lenses.special_table`).

    Returns
    -------
    tuple of int
        Layers, from 0, whose share is above `SPECIAL_SHARE_THRESHOLD`.
    """
    by_layer = special_tokens.query(f"token == '{SPECIAL_KEYS}' and layer != 'all'")
    shares = by_layer["attention"]
    return tuple(np.flatnonzero(shares > SPECIAL_SHARE_THRESHOLD).tolist())


def plan_cuts(
    layers: int, group: tuple[int, ...], roles: Sequence[str]
) -> tuple[list[Cut], list[Cut]]:
    """List the cuts of single layers, and those of several layers together.

    Parameters
    ----------
    layers : int
        Number of layers of the model.
    group : tuple of int
        Layers, from 0, that are cut together; none without special tokens that get attention.
    roles : sequence of str
        The special tokens that the model has ("cls", "sep").

    Returns
    -------
    layer_cuts : list of Cut
        The edges to each special token in each layer; without roles, those to all special tokens.
    group_cuts : list of Cut
        The edges to all special tokens in the group, and to each of them.
    """
    layer_cuts = [
        Cut((layer,), role) for role in roles or [SPECIAL_KEYS] for layer in range(layers)
    ]
    group_cuts = [Cut(group, keys) for keys in (SPECIAL_KEYS, *roles)] if group else []
    return [cut for cut in layer_cuts if cut not in group_cuts], group_cuts


def ablate_edges(
    weights: Weights,
    chosen: Edges,
    mode: AblationMode,
    is_word: Bool[Tensor, ...] | None = None,
) -> Weights:
    """Compute the attention weights after an ablation of the chosen edges.

    Parameters
    ----------
    weights : Tensor, shape (..., query, key)
        Attention weights; each row sums to 1.
    chosen : Tensor of bool, broadcastable to ``weights``
        The edges to ablate.
    mode : str
        `DROPPED`: the chosen weights become zero, the rest of the row stays as it was.
        `REDISTRIBUTED`: the chosen weights become zero, the rest is scaled to the sum of the row.
        `MASS_MATCHED`, a control: the chosen weights stay, and the same total mass is removed from
        words, in proportion to their weights.
        `MOST_ATTENDED`, a second control: the same mass is removed from the most attended words,
        whole edges first.
        Both controls remove all weights of words if these are less than the chosen edges.
    is_word : Tensor of bool, broadcastable to ``weights``, optional
        The keys that the controls may take mass from; by default all that are not chosen.

    Returns
    -------
    Tensor, shape (..., query, key)
        The new weights.  A row without a chosen edge is unchanged to the last bit.
    """
    smallest = torch.finfo(weights.dtype).tiny
    chosen_mass = (weights * chosen).sum(dim=-1, keepdim=True)
    rest = weights * ~chosen
    if mode == DROPPED:
        return rest
    if mode == REDISTRIBUTED:
        rest_mass = rest.sum(dim=-1, keepdim=True)
        return rest * ((rest_mass + chosen_mass) / rest_mass.clamp(min=smallest))
    words = rest if is_word is None else rest * is_word
    if mode == MASS_MATCHED:
        word_mass = words.sum(dim=-1, keepdim=True)
        remaining_mass = (word_mass - chosen_mass).clamp(min=0)
        remaining = words * (remaining_mass / word_mass.clamp(min=smallest))
        return torch.where(words > 0, remaining, weights)
    by_weight, order = words.sort(dim=-1, descending=True, stable=True)
    removed_before = by_weight.cumsum(dim=-1) - by_weight
    removed = (chosen_mass - removed_before).clamp(min=0).minimum(by_weight)
    return weights - torch.zeros_like(weights).scatter(-1, order, removed)


def cut_shares(
    maps: Sequence[Weights],
    cut: Cut,
    tokens: Int[Tensor, "batch token"],
    token_ids: TokenIds,
    real: Bool[Tensor, "batch query"],
) -> Float[Tensor, "two batch"]:
    """Compute the share of attention on cut edges, and the share of unmatched rows.

    The words of an unmatched row get less attention than the cut edges, so that the controls of
    `ablate_edges` remove less.  Both shares are means over the layers, heads and real queries.
    """
    chosen = cut.edges(tokens, token_ids)
    is_word = ~chosen & ~mark_keys(tokens, token_ids[SPECIAL_KEYS])
    weights = torch.stack([maps[layer] for layer in cut.layers])  # [layer, batch, head, query, key]
    mass = (weights * chosen).sum(dim=-1)
    unmatched = (mass > (weights * is_word).sum(dim=-1)).to(mass)
    means = torch.stack([mass, unmatched]).mean(dim=(1, 3))  # [two, batch, query]
    queries = real & cut.is_query(tokens)
    return (means * queries).sum(dim=-1) / queries.sum(dim=-1)


@contextmanager
def cut_edges(
    model: nn.Module, cut: Cut, token_ids: TokenIds, mode: AblationMode
) -> Iterator[Mapping[int, Weights]]:
    """Ablate the edges of a cut inside the context, for one forward pass.

    Yields a dictionary that the pass fills with the attention weights of the cut's layers before
    the ablation.  Raises ModelError if no softmax computes the attention of these layers.
    """
    intact_weights = {}
    token_batches = []

    def remember_tokens(_embeddings: nn.Module, args: tuple) -> None:
        token_batches[:] = args

    def ablate(layer: int, scores: Weights, softmax: Callable) -> Weights:
        weights = softmax(scores)
        if layer not in cut.layers:
            return weights
        intact_weights[layer] = weights
        tokens = token_batches[0]
        is_word = ~mark_keys(tokens, token_ids[SPECIAL_KEYS])
        return ablate_edges(weights, cut.edges(tokens, token_ids), mode, is_word)

    embeddings = base_transformer(model).get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(remember_tokens)
    try:
        with PatchSoftmax(model, ablate):
            yield intact_weights
    finally:
        hook.remove()
    if len(intact_weights) < len(cut.layers):
        name = type(model).__name__
        raise ModelError(
            f"{name}: no softmax was called in layers {cut.name}, so no edges can be cut; "
            "choose a model that computes its attention by torch's softmax"
        )


def key_token_ids(encoder: Encoder) -> TokenIds:
    """List the token ids of all special tokens, of punctuation, and of [CLS] and [SEP].

    The names "cls" and "sep" are missing if the model has no such token.  Raises InputError if its
    input has no special tokens.
    """
    if not encoder.special_ids:
        raise InputError(
            "this model's input has no special tokens, so there are no edges to cut; "
            "choose a model whose input has [CLS] or [SEP]"
        )
    vocabulary = encoder.tokenizer.get_vocab()
    ids = {SPECIAL_KEYS: encoder.special_ids, PUNCTUATION_KEYS: []}
    for word, token_id in vocabulary.items():
        if is_punctuation(word):
            ids[PUNCTUATION_KEYS].append(token_id)
    for role, token in encoder.special_tokens.items():
        if token is not None:
            ids[role] = [vocabulary[token]]
    return ids


def list_ablations(
    encoder: Encoder, cuts: Sequence[Cut], modes: Sequence[AblationMode] = MODES
) -> list[Intervention]:
    """List each cut in each of the modes as a change of the model; modes vary fastest."""
    token_ids = key_token_ids(encoder)
    ablations = []
    for cut in cuts:
        for mode in modes:
            context = partial(cut_edges, cut=cut, token_ids=token_ids, mode=mode)
            ablations.append(Intervention(cut.layers[0], context))
    return ablations
