"""Jensen-Shannon distances between all pairs of attention heads (section 6).

The distance of two heads on an example is the sum over its tokens of the divergence of their
distributions p and q over keys.  The divergence is a difference of entropies:

    JS(p, q) = H(m) - (H(p) + H(q)) / 2,    m = (p + q) / 2.

It is therefore enough to compute ``H(m)`` for every pair of heads, including each head paired with
itself, which takes one logarithm for each pair and each weight.  Because the sum is over queries
and keys, maps are laid out flat, and divided into tiles that fit the processor's cache.

There are two kernels.  The eager one is plain torch.  The compiled one is about five times faster,
and pays for itself in a corpus of some hundred segments.

One pass over a store sums the distances over its examples.  Each shard gives sums, which are added
in corpus order in float64, so that shards can be computed anywhere.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from helpers.cache import cached
from helpers.data.records import Roles, roles
from helpers.metrics import CODE
from helpers.metrics.clustering import distance_table
from helpers.metrics.surface import Maps, Masks, all_if_none, sum_by_article
from helpers.progress import progress
from helpers.store.store import Store

SMOOTHING = 1e-3  # p = 0.999 A + 0.001 / n: no weight is zero, so every logarithm is finite
# Distances without special tokens are computed for every eighth example, because distances take
# most of the time.
WORD_DISTANCE_STRIDE = 8
TILE = 512  # this number of weights is summed in float32, and the sums of tiles in float64
# Pairs of heads times weights: above this, the eager kernel takes longer than compiling and the
# compiled one together.
COMPILE_AFTER = 3e9
COMPILED_FOR_TILES = 32  # of an example of 128 tokens

# log2(1 + t) / t on [sqrt(1/2) - 1, sqrt(2) - 1], lowest power first: a least-squares fit on
# Chebyshev nodes, which leaves an error of 9e-8 in log2.
LOG2_POLYNOMIAL = (
    1.442694958, -0.721352759, 0.480924039, -0.360241986,
    0.287075611, -0.248821806, 0.234209851, -0.146203534,
)  # fmt: skip
SQRT_HALF_BITS = 0x3F3504F3  # sqrt(1/2) as a float32
EXPONENT_BITS = -0x800000  # the sign and exponent of a float32

Tiles = Float[Tensor, "heads tile element"]
PairEntropies = Float[Tensor, "heads partner"]
Kernel = Callable[[Tiles], PairEntropies]


@torch.no_grad()
def head_distances(attention: Maps, *, compiled: bool = False) -> Float[np.ndarray, "heads heads"]:
    """Compute the Jensen-Shannon distances between all pairs of attention heads on one example.

    ``D[a, b] = sum_i JS(A_a[i], A_b[i])``, where ``i`` runs over the queries (section 6).

    Parameters
    ----------
    attention : array, shape (layers, heads, queries, keys)
        The attention maps of one example.
    compiled : bool
        Whether to use the compiled kernel, which is about five times faster once compiling has
        taken about ten seconds.  The two kernels agree to about 1e-6.  Where compiling fails, a
        warning says so once, and the eager kernel computes.

    Returns
    -------
    array of float64, shape (layers * heads, layers * heads)
        Distances in nats, symmetric and with a zero diagonal.  Attention heads are ordered layer
        by layer.  Sums over examples, or over shards, may simply be added up.
    """
    tiles = _tiles(attention)
    kernel = _compiled_kernel(len(tiles), torch.get_num_threads()) if compiled else _eager
    entropies = kernel(tiles).numpy()
    n_heads, n_offsets = entropies.shape
    first_head = np.arange(n_heads)[:, None]
    second_head = (first_head + np.arange(n_offsets)) % n_heads
    mean_entropy = np.empty((n_heads, n_heads))
    mean_entropy[first_head, second_head] = entropies
    mean_entropy[second_head, first_head] = entropies
    head_entropy = mean_entropy.diagonal()
    return mean_entropy - (head_entropy[:, None] + head_entropy) / 2


def renormalise_over_words(
    attention: Maps, roles: Roles, visible: Masks | None = None, *, cross: bool = False
) -> Float[np.ndarray, "layer head kept_query word"]:
    """Remove [CLS] and [SEP] from maps and scale each row to sum to one.

    If all attention of a row went to special tokens, it becomes uniform over the words that
    it sees (``visible``, by default all).  An example of special tokens only stays as it is.  In
    ``cross``-attention the roles are those of the keys, and all queries stay.
    """
    words = np.flatnonzero(roles.punctuation | roles.other)
    if not len(words):
        return attention
    queries = np.arange(attention.shape[-2]) if cross else words
    word_attention = attention[:, :, queries[:, None], words]
    total = word_attention.sum(axis=-1, keepdims=True)
    sees_word = all_if_none(visible, attention)[:, queries[:, None], words]  # [layer, query, key]
    uniform = sees_word / sees_word.sum(axis=-1, keepdims=True)
    rows = np.empty_like(word_attention)
    rows[:] = uniform[:, None]
    return np.divide(word_attention, total, out=rows, where=total > 0)


def shard_values(
    store: Store, number: int, *, compiled: bool
) -> list[dict[str, Float[np.ndarray, "heads heads"]]]:
    """Compute the distances between heads on each example of a shard.

    The measures are ``distances``, and ``word_distances`` without special tokens, which are of one
    example in `WORD_DISTANCE_STRIDE`.
    """
    values = []
    for example in store.shard(number):
        attention = example.attention
        distances = head_distances(attention, compiled=compiled)
        word_distances = np.full_like(distances, np.nan)
        if example.index % WORD_DISTANCE_STRIDE == 0:
            token_roles = roles(example.tokens, store.special_tokens)
            word_attention = renormalise_over_words(
                attention, token_roles, example.visible_keys, cross=example.is_cross
            )
            word_distances = head_distances(word_attention, compiled=compiled)
        values.append({"distances": distances, "word_distances": word_distances})
    return values


def distances(store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the distances between heads over a store, with and without special tokens, once.

    Parameters
    ----------
    store : Store
        Token-level maps of a text.

    Returns
    -------
    distances, distances_among_words : DataFrame
        Square tables in nats (section 6); rows and columns are named ``layer-head``.  In the second
        one special tokens are left out; it is measured on one of eight examples.
    """
    compiled = _is_worth_compiling(store)

    def compute() -> dict[str, np.ndarray]:
        values = []
        for number in progress(range(store.n_shards), "section 6", unit="shard"):
            values += shard_values(store, number, compiled=compiled)
        sums = sum_by_article(values, [""] * len(values))
        return {name: sums.mean(name) for name in sums.names}

    means = cached("section-6", compute, inputs={"store": store.key}, code=CODE)
    return (
        distance_table(means["distances"], store.layers, store.heads),
        distance_table(means["word_distances"], store.layers, store.heads),
    )


def _is_worth_compiling(source: Store) -> bool:
    """Whether the whole corpus of a store repays compiling the kernel of the distances.

    The answer depends on the corpus and the model alone: a run that goes on after an interruption,
    and every worker of a cluster, computes with the kernel of an undisturbed run.
    """
    heads = source.layers * source.heads
    lengths = [len(record.get("words") or record["tokens"]) for record in source.records()]
    weights = sum(length**2 for length in lengths)
    return weights * heads**2 / 2 > COMPILE_AFTER


def _tiles(attention: Maps) -> Tiles:
    """Lay out half of each smoothed weight in tiles, so that two heads add up to their mean."""
    maps = torch.from_numpy(np.require(attention, np.float32, ["C", "W"]))
    weights = maps.flatten(0, 1).flatten(1)  # [head, query * key]
    smoothed = weights * (0.5 * (1 - SMOOTHING)) + 0.5 * SMOOTHING / attention.shape[-1]
    # At least two tiles: torch.compile would make a special case of a dimension of size one.
    tiles = max(2, -(-weights.shape[1] // TILE))
    # The mean of two paddings is 1, and 1 log 1 adds nothing to an entropy.
    padding = (0, tiles * TILE - weights.shape[1])
    padded = torch.nn.functional.pad(smoothed, padding, value=0.5)
    return padded.unflatten(1, (tiles, TILE))


def _fused(tiles: Tiles) -> PairEntropies:
    """Compute the entropy of the mean of heads ``a`` and ``a + offset`` in one fused loop.

    Offsets run from 0 to half the number of heads, and heads are in a circle, so that every
    unordered pair occurs.  Only the compiled form of this function is fast.
    """
    heads = tiles.shape[0]
    in_circle = torch.cat([tiles, tiles[: heads // 2]])
    partners = in_circle.unfold(0, heads // 2 + 1, 1)  # [head, tile, element, offset], a view
    mean = (tiles.unsqueeze(-1) + partners).transpose(-1, -2)
    sums = (mean * _log2(mean)).sum(-1)  # [head, tile, offset]
    return sums.sum(1, dtype=torch.float64) * -math.log(2)


def _eager(tiles: Tiles) -> PairEntropies:
    """Compute the same as `_fused`, storing the means of one head and its partners at a time."""
    heads = tiles.shape[0]
    in_circle = torch.cat([tiles, tiles[: heads // 2]])
    entropies = tiles.new_empty(heads, heads // 2 + 1, dtype=torch.float64)
    for head in range(heads):
        mean = tiles[head] + in_circle[head : head + heads // 2 + 1]  # [offset, tile, element]
        sums = mean.log().mul_(mean).sum(-1)
        entropies[head] = -sums.sum(-1, dtype=torch.float64)
    return entropies


def _log2(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Compute the binary logarithm of positive normal float32 numbers, to about 1e-7.

    ``x = 2**e * (1 + t)``, with ``1 + t`` in [sqrt(1/2), sqrt(2)), is read from the bits of x.
    ``log2(1 + t)`` is a polynomial, with which the kernel is four times faster than with
    ``torch.log``, whose logarithm is right to the last bit (tests/benchmarks/bench_distances.py).
    """
    bits = x.view(torch.int32)
    exponent = (bits - SQRT_HALF_BITS) & EXPONENT_BITS  # e, in the place of the exponent bits
    t = (bits - exponent).view(torch.float32) - 1
    value = t * LOG2_POLYNOMIAL[-1]
    for coefficient in LOG2_POLYNOMIAL[-2::-1]:
        value = (value + coefficient) * t
    return value + exponent.to(torch.float32) * 2.0**-23


def _compile_options() -> dict[str, Any]:
    """Choose the options of the compiler; tests/benchmarks/bench_distances.py has what each saves.

    Fused multiply-adds make the kernel 1.6 times faster.  It reads the bits of floats through
    memory.  Compilers for Intel write 512 bits in two halves, and a load that spans two stores
    waits: there vectors of 256 bits are seven times faster.
    """
    options: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        options["cpp.simdlen"] = 256
    return options


@cache
def _compiled_kernel(heads: int, threads: int) -> Kernel:
    """Compile `_fused` for a number of heads and of torch's threads, on which the code depends.

    No forward pass may run in another thread meanwhile: while torch compiles, in whichever thread,
    transformers collects the maps of all passes in one global variable.

    If compiling fails, a warning says so once, and the kernel is the eager one, which does the same
    work.
    """
    # The same tiles whatever is computed later, because torch looks at their number when it
    # decides how to divide the work between threads.
    tiles = torch.full((heads, COMPILED_FOR_TILES, TILE), 0.5)
    try:
        # Examples differ in length: one compilation serves any number of tiles.
        torch._dynamo.mark_dynamic(tiles, 1)
        # Without ``dynamic=False`` torch would compile one kernel for any number of heads as soon
        # as a process has met two of them, so that the numbers would depend on what came before.
        kernel = torch.compile(_fused, fullgraph=True, dynamic=False, options=_compile_options())
        kernel(tiles)
    # Whatever goes wrong in a compiler (none installed, no headers, a full disk), the eager kernel
    # does the work; were the input at fault, it would raise the same.
    except Exception as error:
        # torch names itself in the first line and the error in the second.
        reason = " ".join(str(error).split("\n")[:2]).strip() or repr(error)
        warnings.warn(
            f"Head distances run without compilation, about five times slower ({reason}). "
            "Install a C++ compiler such as g++ to make them fast.",
            stacklevel=3,
        )
        return _eager
    return kernel
