"""Edges of attention that are cut: which ones, and what becomes of the weights on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from helpers.data.records import PUNCTUATION, WORD_MARKS
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.sites import Weights, owner
from helpers.studies.head_removal import Change, reweighted

Way = Literal["dropped", "given to others", "taken from others"]
Edges = Bool[Tensor, "batch 1 query key"]

WAYS = DROPPED, GIVEN, TAKEN = get_args(Way)
MUCH = 0.25  # of the attention: layers where special tokens get more are cut together, too
SPECIAL, MARKS = "special", "punctuation"
ALL, FIRST = "all", "first token"


class Cut(NamedTuple):
    """Edges: in which layers (from 0), to which keys, from which queries."""

    layers: tuple[int, ...]
    keys: str = SPECIAL
    queries: str = ALL

    @property
    def name(self) -> str:
        """The layers, from 1: "3", "2-5", or "2-5, 10-11"."""
        ends = [(run[0] + 1, run[-1] + 1) for run in runs(self.layers)]
        return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in ends)

    def edges(self, tokens: Int[Tensor, "batch token"], keys: Collection[int]) -> Edges:
        """Return which edges of a batch are cut, by the ids of its tokens and of the keys."""
        queries = torch.arange(tokens.shape[1], device=tokens.device)[:, None]
        own = torch.isin(tokens, torch.tensor(sorted(keys), device=tokens.device))
        return own[:, None, None] & (queries < (1 if self.queries == FIRST else len(queries)))


def runs(layers: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the runs of neighbouring layers."""
    parts = np.split(np.array(layers, int), np.flatnonzero(np.diff(layers) > 1) + 1)
    return [tuple(part.tolist()) for part in parts]


def looked_at(special_tokens: pd.DataFrame) -> tuple[int, ...]:
    """Return the layers (from 0) in which special tokens get over `MUCH` (special_tokens.csv)."""
    shares = special_tokens.query("layer != 'all'")["attention"]
    return tuple(np.flatnonzero(shares > MUCH).tolist())


def cuts_of(layers: int, group: tuple[int, ...]) -> tuple[list[Cut], list[Cut]]:
    """Return what is cut: in any model, and in addition in the one that a run is about.

    Special tokens in each layer, in each run of ``group`` and in all of it; there, in addition,
    punctuation, and the first token's queries alone.
    """
    several = [own for own in dict.fromkeys([*runs(group), group]) if len(own) > 1]
    more = [Cut(group, keys=MARKS), Cut(group, queries=FIRST)] if group else []
    return [Cut(own) for own in [*((layer,) for layer in range(layers)), *several]], more


def changed(weights: Weights, chosen: Edges, way: Way) -> Weights:
    """Return attention without the ``chosen`` edges, or with as much less on all others.

    *Dropped*: zero, the rest as it was.  *Given to others*: zero, the rest scaled to the sum of
    its row.  *Taken from others*: as they were, the rest scaled down by the same mass in all; to
    nothing in a row of which the chosen have over half.  Rows without one keep every bit.
    """
    cut, others = ((weights * own).sum(dim=-1, keepdim=True) for own in (chosen, ~chosen))
    left = {DROPPED: others, GIVEN: others + cut, TAKEN: (others - cut).clamp(min=0)}[way]
    scaled = weights * (left / others.clamp(min=torch.finfo(weights.dtype).tiny))
    return torch.where(chosen, weights if way == TAKEN else 0, scaled)


def shares(
    maps: Sequence[Weights], cut: Cut, chosen: Edges, real: Bool[Tensor, "batch query"]
) -> Float[Tensor, "two batch"]:
    """Return the share of attention that is cut, and of rows in which it is over half.

    Means over the layers, heads and queries of the cut.
    """
    asked = real[:, :1] if cut.queries == FIRST else real
    lost = torch.stack([(maps[layer] * chosen).sum(dim=-1) for layer in cut.layers])
    lost = lost[..., : asked.shape[1]]  # [layer, batch, head, query]
    both = torch.stack([lost, (lost > 0.5).to(lost)]).mean(dim=(1, 3))
    return (both * asked).sum(dim=-1) / asked.sum(dim=-1)


@contextmanager
def cut_edges(
    model: nn.Module, cut: Cut, keys: Collection[int], way: Way
) -> Iterator[Mapping[int, Weights]]:
    """Cut edges to tokens of these ids inside the context, which is for one pass.

    Yields the attention of these layers before that.  ModelError where it is made by no softmax.
    """
    before, tokens = {}, []

    def look(_embeddings: nn.Module, args: tuple) -> None:
        tokens[:] = args

    def change(layer: int, scores: Weights, softmax: Callable) -> Weights:
        weights = softmax(scores)
        if layer not in cut.layers:
            return weights
        before[layer] = weights
        return changed(weights, cut.edges(tokens[0], keys), way)

    hook = owner(model).get_input_embeddings().register_forward_pre_hook(look)
    try:
        with reweighted(model, change):
            yield before
    finally:
        hook.remove()
    if len(before) < len(cut.layers):
        name = type(model).__name__
        raise ModelError(f"{name}: no softmax is seen in layers {cut.name}: no edges to cut")


def keys_of(encoder: Encoder) -> dict[str, Collection[int]]:
    """Return the token ids of each kind of key; InputError for an input without special tokens."""
    if not encoder.special_ids:
        raise InputError("this model's input has no special tokens: there are no edges to cut")
    words = encoder.tokenizer.get_vocab().items()
    marks = [index for word, index in words if word.lstrip(WORD_MARKS) in PUNCTUATION]
    return {SPECIAL: encoder.special_ids, MARKS: marks}


def changes_of(encoder: Encoder, cuts: Sequence[Cut]) -> list[Change]:
    """Return each cut in each way as a change of the model."""
    keys = keys_of(encoder)
    return [
        Change(cut.layers[0], partial(cut_edges, cut=cut, keys=keys[cut.keys], way=way))
        for cut, way in product(cuts, WAYS)
    ]
