"""Jensen-Shannon distances between all pairs of attention heads (section 6).

The distance of two heads on an example is the sum over its tokens of the divergence of their
distributions p and q over keys.  The divergence is a difference of entropies:

    JS(p, q) = H(m) - (H(p) + H(q)) / 2,    m = (p + q) / 2.

It is therefore enough to compute ``H(m)`` for every pair of heads, including each head paired with
itself, which takes one logarithm for each pair and each weight.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from helpers.cache import cached
from helpers.data.records import Roles, roles
from helpers.metrics import CODE
from helpers.metrics.clustering import distance_table
from helpers.metrics.surface import Maps, Masks
from helpers.progress import progress
from helpers.store.cluster import map_shards
from helpers.store.store import Store

SMOOTHING = 1e-3  # p = 0.999 A + 0.001 / n: no weight is zero, so every logarithm is finite
# Distances take most of the time of section 6: they are measured on the first segments, and without
# special tokens on every eighth of these.
SEGMENTS = 300
WORD_DISTANCE_STRIDE = 8


@torch.no_grad()
def head_distances(attention: Maps) -> Float[np.ndarray, "heads heads"]:
    """Compute the Jensen-Shannon distances between all pairs of attention heads on one example.

    ``D[a, b] = sum_i JS(A_a[i], A_b[i])``, where ``i`` runs over the queries (section 6).

    Parameters
    ----------
    attention : array, shape (layers, heads, queries, keys)
        The attention maps of one example.

    Returns
    -------
    array of float64, shape (layers * heads, layers * heads)
        Distances in nats, symmetric and with a zero diagonal.  Attention heads are ordered layer
        by layer.
    """
    maps = torch.from_numpy(np.require(attention, np.float32, ["W"])).flatten(0, 1)
    halves = ((1 - SMOOTHING) * maps + SMOOTHING / maps.shape[-1]) / 2  # two add up to their mean
    entropies = torch.zeros(len(maps), len(maps), dtype=torch.float64)  # of means, [head, head]
    for head in range(len(maps)):
        mean = halves[head] + halves[head:]  # [partner, query, key]
        by_query = mean.log().mul_(mean).sum(dim=-1)
        partner_entropies = -by_query.sum(dim=-1, dtype=torch.float64)
        entropies[head, head:] = partner_entropies
        entropies[head:, head] = partner_entropies
    head_entropies = entropies.diagonal()
    return (entropies - (head_entropies[:, None] + head_entropies) / 2).numpy()


def renormalise_over_words(
    attention: Maps, roles: Roles, visible: Masks, *, cross: bool = False
) -> Float[np.ndarray, "layer head kept_query word"]:
    """Remove [CLS] and [SEP] from maps and scale each row to sum to one.

    If all attention of a row went to special tokens, it becomes uniform over the words that it sees
    (``visible``).  An example of special tokens only stays as it is.  In ``cross``-attention the
    roles are those of the keys, and all queries stay.
    """
    is_word = roles.punctuation | roles.other
    if not is_word.any():
        return attention
    queries = slice(None) if cross else is_word
    word_attention = attention[:, :, queries][..., is_word]
    sees_word = visible[:, None, queries][..., is_word]  # [layer, 1, query, key]
    has_weight = word_attention.sum(axis=-1, keepdims=True) > 0
    weights = np.where(has_weight, word_attention, sees_word)
    return weights / weights.sum(axis=-1, keepdims=True)


def shard_distances(store: Store, number: int) -> Float[np.ndarray, "2 heads heads"]:
    """Sum the distances over the examples of a shard, with and without special tokens."""
    n_heads = store.layers * store.heads
    sums = np.zeros((2, n_heads, n_heads))
    for example in store.shard(number):
        if example.index >= SEGMENTS:
            break
        attention = example.attention
        sums[0] += head_distances(attention)
        if example.index % WORD_DISTANCE_STRIDE == 0:
            token_roles = roles(example.tokens, store.special_tokens)
            visible = example.visible_keys
            sums[1] += head_distances(
                renormalise_over_words(attention, token_roles, visible, cross=example.is_cross)
            )
    return sums


def distances(store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the distances between heads over a store, with and without special tokens, once.

    Parameters
    ----------
    store : Store
        Token-level maps of a text, of which the first `SEGMENTS` examples are measured.

    Returns
    -------
    distances, distances_among_words : DataFrame
        Square tables in nats (section 6); rows and columns are named ``layer-head``.  In the second
        one special tokens are left out; it is measured on one of eight examples.
    """

    def compute() -> dict[str, np.ndarray]:
        numbers = [n for n in range(store.n_shards) if store.indices(n).start < SEGMENTS]
        shards = map_shards(shard_distances, store, numbers)
        bar = progress(shards, "section 6", unit="shard", total=len(numbers))
        of_tokens, of_words = np.sum(list(bar), axis=0)
        indices = range(min(SEGMENTS, len(store)))
        n_with_words = len(indices[::WORD_DISTANCE_STRIDE])
        return {"all": of_tokens / len(indices), "words": of_words / n_with_words}

    means = cached("section-6", compute, inputs={"store": store.key}, code=CODE)
    labels = (store.layers, store.heads, store.layer_numbers)
    return distance_table(means["all"], *labels), distance_table(means["words"], *labels)
