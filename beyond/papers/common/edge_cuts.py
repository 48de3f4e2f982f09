"""Ablation of attention edges: which edges are cut, and what becomes of their weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from beyond.papers.common.head_removal import Intervention
from helpers.errors import ModelError
from helpers.model.loading import Model
from helpers.model.sites import PatchSoftmax, Weights, base_transformer

AblationMode = Literal[
    "dropped", "redistributed", "mass-matched", "constant", "mass-matched on the most attended"
]
TokenIds = Mapping[str, Collection[int]]  # of each set of keys

DROPPED, REDISTRIBUTED, MASS_MATCHED, CONSTANT, MOST_ATTENDED = get_args(AblationMode)
MODES = (DROPPED, REDISTRIBUTED, MASS_MATCHED, CONSTANT)  # of the edges to a special token
SPECIAL_SHARE_THRESHOLD = 0.25  # layers above it are ablated together
SPECIAL_KEYS = "special"
FIRST_KEYS = "first"  # the first token of a model without [CLS], whatever it is
FIRST_ROLES = ("cls", FIRST_KEYS)  # a model has one of them
SPECIAL_ROLES = (*FIRST_ROLES, "sep")


class Cut(NamedTuple):
    """A set of edges: in which layers (from 0), and to which keys.

    The keys are "special", "cls", "first" or "sep".
    """

    layers: tuple[int, ...]
    keys: str = SPECIAL_KEYS

    @property
    def name(self) -> str:
        """The layers, from 1: "3", "2-5", or "2-5, 10-11"."""
        gaps = np.flatnonzero(np.diff(self.layers) > 1) + 1
        ranges = []
        for run in np.split(np.array(self.layers) + 1, gaps):
            ranges.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
        return ", ".join(ranges)


Ablation = tuple[Cut, AblationMode]


def mark_keys(
    tokens: Int[Tensor, "batch token"], ids: Collection[int]
) -> Bool[Tensor, "batch 1 1 key"]:
    """Mark the keys of a batch that have one of some ids."""
    ids_tensor = torch.tensor(sorted(ids), dtype=tokens.dtype, device=tokens.device)
    return torch.isin(tokens, ids_tensor)[:, None, None]


def mark_key_set(
    tokens: Int[Tensor, "batch token"], token_ids: TokenIds, keys: str
) -> Bool[Tensor, "batch 1 1 key"]:
    """Mark the keys of a named set: by their ids, or the first token by its position."""
    marked = mark_keys(tokens, token_ids[keys])
    if keys == FIRST_KEYS or (keys == SPECIAL_KEYS and FIRST_KEYS in token_ids):
        marked[..., 0] = True
    return marked


def special_token_layers(special_tokens: pd.DataFrame) -> tuple[int, ...]:
    """List the layers in which special tokens get over a quarter of the attention.

    Parameters
    ----------
    special_tokens : DataFrame
        The table special_tokens.csv (`beyond.papers.sinks.lenses.special_table`).

    Returns
    -------
    tuple of int
        Layers, from 0, whose share is above `SPECIAL_SHARE_THRESHOLD`.
    """
    by_layer = special_tokens.query(f"token == '{SPECIAL_KEYS}' and layer != 'all'")
    shares = by_layer["attention"]
    return tuple(np.flatnonzero(shares > SPECIAL_SHARE_THRESHOLD).tolist())


def plan_ablations(layers: int, group: tuple[int, ...], roles: Sequence[str]) -> list[Ablation]:
    """List the ablations of a group of layers, and then those of all layers, in all `MODES`.

    Parameters
    ----------
    layers : int
        Number of layers of the model.
    group : tuple of int
        Layers, from 0, that are cut together; none without special tokens that get attention.
    roles : sequence of str
        The special tokens that the model has, see `list_roles`.

    Returns
    -------
    list of (Cut, str)
        What is cut, and how.
    """
    layer_groups = dict.fromkeys((group, tuple(range(layers))))
    cuts = [Cut(chosen, role) for chosen in layer_groups if chosen for role in roles]
    return list(product(cuts, MODES))


def ablate_edges(
    weights: Float[Tensor, "*row key"],
    chosen: Bool[Tensor, "*#row key"],
    mode: AblationMode,
    is_word: Bool[Tensor, "*#row key"],
) -> Float[Tensor, "*row key"]:
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
        all others, in proportion to their weights.
        `CONSTANT`: each chosen weight becomes its mean over the queries after the first, and the
        others stay.  The first query keeps its weights: in a decoder it sees nothing but itself.
        `MOST_ATTENDED`, a second control: the mass is removed from the most attended words,
        whole edges first.
        Both controls remove all that they can if it is less than the chosen edges.
    is_word : Tensor of bool, broadcastable to ``weights``
        The keys that `MOST_ATTENDED` may take mass from, if they are not chosen.

    Returns
    -------
    Tensor, shape (..., query, key)
        The new weights.  A row without a chosen edge is unchanged to the last bit.
    """
    smallest = torch.finfo(weights.dtype).tiny
    chosen_mass = (weights * chosen).sum(dim=-1, keepdim=True)
    rest = weights * ~chosen
    rest_mass = rest.sum(dim=-1, keepdim=True)
    if mode == DROPPED:
        return rest
    if mode == REDISTRIBUTED:
        return rest * ((rest_mass + chosen_mass) / rest_mass.clamp(min=smallest))
    if mode == MASS_MATCHED:
        remaining_mass = (rest_mass - chosen_mass).clamp(min=0)
        remaining = rest * (remaining_mass / rest_mass.clamp(min=smallest))
        return torch.where((chosen_mass > 0) & ~chosen, remaining, weights)
    if mode == CONSTANT:
        means = weights[..., 1:, :].mean(dim=-2, keepdim=True)
        is_first_query = torch.arange(weights.shape[-2], device=weights.device)[:, None] == 0
        return torch.where(chosen & ~is_first_query, means, weights)
    words = rest * is_word
    by_weight, order = words.sort(dim=-1, descending=True, stable=True)
    removed_before = by_weight.cumsum(dim=-1) - by_weight
    removed = (chosen_mass - removed_before).clamp(min=0).minimum(by_weight)
    return weights - torch.zeros_like(weights).scatter(-1, order, removed)


def cut_shares(
    maps: Sequence[Weights], cut: Cut, tokens: Int[Tensor, "one token"], token_ids: TokenIds
) -> Float[Tensor, " two"]:
    """Compute the share of attention on cut edges, and the share of unmatched rows, in one text.

    In an unmatched row the cut edges have over half of the attention, so that `MASS_MATCHED`
    cannot remove as much.  Both shares are means over the layers, heads and queries.
    """
    chosen = mark_key_set(tokens, token_ids, cut.keys)
    weights = torch.cat([maps[layer] for layer in cut.layers])  # [layer, head, query, key]
    mass = (weights * chosen).sum(dim=-1)
    return torch.stack([mass, (mass > 0.5).to(mass)]).mean(dim=(1, 2, 3))


@contextmanager
def patch_layers(
    model: nn.Module, layers: tuple[int, ...], change: Callable[[Weights], Weights]
) -> Iterator[None]:
    """Replace the attention weights of some layers with ``change(weights)`` inside the context.

    Layers are counted from 0.  Raises ModelError if no softmax computes the attention of one.
    """
    patched = set()

    def patch(layer: int, scores: Weights, softmax: Callable) -> Weights:
        weights = softmax(scores)
        if layer not in layers:
            return weights
        patched.add(layer)
        n = weights.shape[-2]  # a learned sink comes after the keys, and stays as it is
        return torch.cat([change(weights[..., :n]), weights[..., n:]], dim=-1)

    with PatchSoftmax(model, patch):
        yield
    if len(patched) < len(layers):
        raise ModelError(
            f"{type(model).__name__}: no softmax was called in layers {Cut(layers).name}, so "
            "no edges can be cut; choose a model that computes its attention by torch's softmax"
        )


@contextmanager
def cut_edges(
    model: nn.Module, cut: Cut, token_ids: TokenIds, mode: AblationMode
) -> Iterator[None]:
    """Ablate the edges of a cut inside the context, see `patch_layers`."""
    token_batches = []

    def remember_tokens(_embeddings: nn.Module, args: tuple) -> None:
        token_batches[:] = args

    def ablate(weights: Weights) -> Weights:
        tokens = token_batches[0]
        is_word = ~mark_key_set(tokens, token_ids, SPECIAL_KEYS)
        return ablate_edges(weights, mark_key_set(tokens, token_ids, cut.keys), mode, is_word)

    hook = base_transformer(model).get_input_embeddings().register_forward_pre_hook(remember_tokens)
    try:
        with patch_layers(model, cut.layers, ablate):
            yield
    finally:
        hook.remove()


def key_token_ids(encoder: Model) -> TokenIds:
    """List the token ids of all special tokens, and of [CLS] and [SEP].

    The names "cls" and "sep" are missing if the model has no such token.  Without "cls" there is
    the name "first"; `mark_key_set` marks the first token, whatever its id is.
    """
    vocabulary = encoder.tokenizer.get_vocab()
    ids = {SPECIAL_KEYS: encoder.special_ids}
    for role in ("cls", "sep"):
        token = encoder.special_tokens[role]
        if token is not None:
            ids[role] = [vocabulary[token]]
    if "cls" not in ids:
        ids[FIRST_KEYS] = []
    return ids


def list_roles(encoder: Model) -> list[str]:
    """List the special tokens whose edges are cut: "cls" or else "first", and "sep"."""
    token_ids = key_token_ids(encoder)
    return [role for role in SPECIAL_ROLES if role in token_ids]


def list_ablations(encoder: Model, ablations: Iterable[Ablation]) -> list[Intervention]:
    """List ablations as changes of the model."""
    token_ids = key_token_ids(encoder)
    interventions = []
    for cut, mode in ablations:
        context = partial(cut_edges, cut=cut, token_ids=token_ids, mode=mode)
        interventions.append(Intervention(cut.layers[0], context))
    return interventions
