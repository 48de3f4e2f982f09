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

from helpers.data.records import PUNCTUATION, WORD_MARKS
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.sites import Weights, base_transformer, patch_attention_weights
from helpers.studies.common.head_removal import Intervention

AblationMode = Literal["dropped", "redistributed", "mass-matched"]
Edges = Bool[Tensor, "batch 1 query key"]

MODES = DROPPED, REDISTRIBUTED, MASS_MATCHED = get_args(AblationMode)
SPECIAL_SHARE_THRESHOLD = 0.25  # layers above it are, in addition, ablated together
SPECIAL_KEYS = "special"
PUNCTUATION_KEYS = "punctuation"
ALL_QUERIES = "all"
FIRST_QUERY = "first token"


class Cut(NamedTuple):
    """A set of edges: in which layers (from 0), to which keys, and from which queries."""

    layers: tuple[int, ...]
    keys: str = SPECIAL_KEYS
    queries: str = ALL_QUERIES

    @property
    def name(self) -> str:
        """The layers, from 1: "3", "2-5", or "2-5, 10-11"."""
        ranges = []
        for run in consecutive_runs(self.layers):
            first = run[0] + 1
            last = run[-1] + 1
            ranges.append(f"{first}-{last}" if first < last else f"{first}")
        return ", ".join(ranges)

    def edges(self, tokens: Int[Tensor, "batch token"], keys: Collection[int]) -> Edges:
        """Mark the edges of a batch that are cut, given the ids of its tokens and of the keys."""
        length = tokens.shape[1]
        is_key = torch.isin(tokens, torch.tensor(sorted(keys), device=tokens.device))
        query = torch.arange(length, device=tokens.device)[:, None]
        is_query = query < (1 if self.queries == FIRST_QUERY else length)
        return is_key[:, None, None] & is_query


def consecutive_runs(layers: Sequence[int]) -> list[tuple[int, ...]]:
    """Split ascending layers into runs of neighbouring ones."""
    gaps = np.flatnonzero(np.diff(layers) > 1) + 1
    return [tuple(run.tolist()) for run in np.split(np.array(layers, int), gaps)]


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
    shares = special_tokens.query("layer != 'all'")["attention"]
    return tuple(np.flatnonzero(shares > SPECIAL_SHARE_THRESHOLD).tolist())


def plan_cuts(layers: int, group: tuple[int, ...]) -> tuple[list[Cut], list[Cut]]:
    """List the cuts for every model, and the additional cuts for the main model only.

    Every model: the edges to special tokens, in each layer, in each run of neighbouring layers of
    ``group``, and in the whole group.  Main model only, in the whole group: the edges to
    punctuation, and the edges from the first token to special tokens.
    """
    cuts = [Cut((layer,)) for layer in range(layers)]
    layer_groups = dict.fromkeys([*consecutive_runs(group), group])  # without duplicates
    cuts += [Cut(several) for several in layer_groups if len(several) > 1]
    if not group:
        return cuts, []
    return cuts, [Cut(group, keys=PUNCTUATION_KEYS), Cut(group, queries=FIRST_QUERY)]


def ablate_edges(weights: Weights, chosen: Edges, mode: AblationMode) -> Weights:
    """Compute the attention weights after an ablation of the chosen edges.

    Parameters
    ----------
    weights : Tensor, shape (..., query, key)
        Attention weights; each row sums to 1.
    chosen : Tensor of bool, broadcastable to ``weights``
        The edges to ablate.
    mode : {"dropped", "redistributed", "mass-matched"}
        `DROPPED`: the chosen weights become zero, the rest of the row stays as it was.
        `REDISTRIBUTED`: the chosen weights become zero, the rest is scaled to the sum of the row.
        `MASS_MATCHED`, the control: the chosen weights stay, and the same total mass is removed
        from the rest; all of the rest if the chosen edges hold more than half of the row.

    Returns
    -------
    Tensor, shape (..., query, key)
        The new weights.  A row without a chosen edge is unchanged to the last bit.
    """
    chosen_mass = (weights * chosen).sum(dim=-1, keepdim=True)
    rest_mass = (weights * ~chosen).sum(dim=-1, keepdim=True)
    if mode == DROPPED:
        new_rest_mass = rest_mass
    elif mode == REDISTRIBUTED:
        new_rest_mass = rest_mass + chosen_mass
    else:
        new_rest_mass = (rest_mass - chosen_mass).clamp(min=0)
    smallest = torch.finfo(weights.dtype).tiny
    rest = weights * (new_rest_mass / rest_mass.clamp(min=smallest))
    return torch.where(chosen, weights if mode == MASS_MATCHED else 0, rest)


def cut_shares(
    maps: Sequence[Weights], cut: Cut, chosen: Edges, real: Bool[Tensor, "batch query"]
) -> Float[Tensor, "two batch"]:
    """Compute the share of attention on cut edges, and the share of rows with over half on them.

    Both are means over the layers, heads and real queries of the cut.
    """
    queries = real[:, :1] if cut.queries == FIRST_QUERY else real
    mass = torch.stack([(maps[layer] * chosen).sum(dim=-1) for layer in cut.layers])
    mass = mass[..., : queries.shape[1]]  # [layer, batch, head, query]
    over_half = (mass > 0.5).to(mass)
    means = torch.stack([mass, over_half]).mean(dim=(1, 3))  # [two, batch, query]
    return (means * queries).sum(dim=-1) / queries.sum(dim=-1)


@contextmanager
def cut_edges(
    model: nn.Module, cut: Cut, keys: Collection[int], mode: AblationMode
) -> Iterator[Mapping[int, Weights]]:
    """Ablate edges to tokens with the ids ``keys`` inside the context, for one forward pass.

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
        return ablate_edges(weights, cut.edges(token_batches[0], keys), mode)

    embeddings = base_transformer(model).get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(remember_tokens)
    try:
        with patch_attention_weights(model, ablate):
            yield intact_weights
    finally:
        hook.remove()
    if len(intact_weights) < len(cut.layers):
        name = type(model).__name__
        raise ModelError(
            f"{name}: no softmax was called in layers {cut.name}, so no edges can be cut; "
            "choose a model that computes its attention by torch's softmax"
        )


def key_token_ids(encoder: Encoder) -> dict[str, Collection[int]]:
    """List the token ids of special and of punctuation keys.

    Raises InputError if the model's input has no special tokens.
    """
    if not encoder.special_ids:
        raise InputError(
            "this model's input has no special tokens, so there are no edges to cut; "
            "choose a model whose input has [CLS] or [SEP]"
        )
    punctuation_ids = []
    for word, token_id in encoder.tokenizer.get_vocab().items():
        if word.lstrip(WORD_MARKS) in PUNCTUATION:
            punctuation_ids.append(token_id)
    return {SPECIAL_KEYS: encoder.special_ids, PUNCTUATION_KEYS: punctuation_ids}


def list_ablations(encoder: Encoder, cuts: Sequence[Cut]) -> list[Intervention]:
    """List each cut in each of the `MODES` as a change of the model; modes vary fastest."""
    token_ids = key_token_ids(encoder)
    ablations = []
    for cut in cuts:
        for mode in MODES:
            context = partial(cut_edges, cut=cut, keys=token_ids[cut.keys], mode=mode)
            ablations.append(Intervention(cut.layers[0], context))
    return ablations
