"""Jensen-Shannon distances between all pairs of heads (section 6).

The distance of two heads on an example sums over its tokens the divergence of their
distributions p and q over keys, which is a difference of entropies:

    JS(p, q) = H(m) - (H(p) + H(q)) / 2,    m = (p + q) / 2.

``H(m)`` for every pair, a head paired with itself included, is therefore all there is to compute:
one logarithm for each pair and each weight.  The sum runs over queries and keys alike, so the
maps are laid out flat, cut into tiles that fit the processor's cache.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

CLOSENESS = (
    "within_layers", "between_layers", "within_indices", "between_indices", "neighbouring_layers",
)  # fmt: skip
SMOOTHING = 1e-3  # p = 0.999 A + 0.001 / n: no weight is zero, so every logarithm is finite
TILE = 512  # weights that are summed in float32 before float64 takes over
COMPILE_AFTER = 3e9  # (pair, weight)s: where eager work has cost about what compiling costs

# log2(1 + t) / t on [sqrt(1/2) - 1, sqrt(2) - 1], lowest power first: a least-squares fit on
# Chebyshev nodes, which leaves an error of 9e-8 in log2.
LOG2_POLYNOMIAL = (
    1.442694958, -0.721352759, 0.480924039, -0.360241986,
    0.287075611, -0.248821806, 0.234209851, -0.146203534,
)  # fmt: skip
SQRT_HALF_BITS = 0x3F3504F3  # sqrt(1/2) as a float32
EXPONENT_BITS = -0x800000  # the sign and exponent of a float32

Tiles = Float[Tensor, "head tile element"]
PairEntropies = Float[Tensor, "head partner"]


@torch.no_grad()
def head_distances(
    attention: Float[np.ndarray | Tensor, "layer head query key"], *, compiled: bool | None = None
) -> Float[np.ndarray, "heads heads"]:
    """Return ``D[a, b] = sum_i JS(A_a[i], A_b[i])`` in nats on one example.

    Heads are flattened layer by layer; float64, symmetric, with a zero diagonal.  Sums over
    examples, or over shards, may simply be added up.

    Eager torch computes until this process has done enough work to repay a compilation (once,
    about 10 s), then the compiled kernel, about five times faster; ``compiled`` decides it
    beforehand.  Where compiling fails, a warning says so once.  The two agree to about 1e-6.
    """
    entropies = _BACKEND(_tiles(attention), compiled=compiled).numpy()
    heads, partners = entropies.shape
    first = np.arange(heads)[:, None]
    second = (first + np.arange(partners)) % heads
    of_mean = np.empty((heads, heads))
    of_mean[first, second] = of_mean[second, first] = entropies
    own = of_mean.diagonal()
    return of_mean - (own[:, None] + own) / 2


def closeness(
    distances: Float[np.ndarray, "heads heads"], layers: int, heads: int
) -> dict[str, float]:
    """Return mean distances over pairs of different heads: `CLOSENESS`, NaN where there is none.

    Heads of one layer, of different layers; of those, heads of one index and of different ones;
    and heads of a layer and the next.
    """
    layer, index = np.indices((layers, heads)).reshape(2, -1)
    apart, one_index = layer[:, None] != layer, index[:, None] == index
    next_to = np.abs(layer[:, None] - layer) == 1
    kinds = ~apart & ~one_index, apart, apart & one_index, apart & ~one_index, next_to
    means = (distances[kind].mean() if kind.any() else np.nan for kind in kinds)
    return dict(zip(CLOSENESS, means, strict=True))


def _tiles(attention: Float[np.ndarray | Tensor, "layer head query key"]) -> Tiles:
    """Return half of each smoothed weight, so that two heads add up to their mean."""
    if isinstance(attention, np.ndarray):
        attention = torch.from_numpy(np.require(attention, requirements=["C", "W"]))
    weights = attention.to(torch.float32).flatten(0, 1).flatten(1)  # [head, query * key]
    smoothed = weights * (0.5 * (1 - SMOOTHING)) + 0.5 * SMOOTHING / attention.shape[-1]
    # At least two tiles: torch.compile would make a special case of a dimension of size one.
    tiles = max(2, -(-weights.shape[1] // TILE))
    # The mean of two paddings is 1, and 1 log 1 adds nothing to an entropy.
    padding = (0, tiles * TILE - weights.shape[1])
    padded = torch.nn.functional.pad(smoothed, padding, value=0.5)
    return padded.unflatten(1, (tiles, TILE))


def _fused(tiles: Tiles) -> PairEntropies:
    """Return the entropy of the mean of heads ``a`` and ``a + offset``, in one fused loop.

    Offsets from 0 to half the heads, in a circle, meet every unordered pair.  To be compiled only.
    """
    heads = tiles.shape[0]
    in_circle = torch.cat([tiles, tiles[: heads // 2]])
    partners = in_circle.unfold(0, heads // 2 + 1, 1)  # [head, tile, element, offset], a view
    mean = (tiles.unsqueeze(-1) + partners).transpose(-1, -2)
    sums = (mean * _log2(mean)).sum(-1)  # [head, tile, offset]
    return sums.sum(1, dtype=torch.float64) * -math.log(2)


def _eager(tiles: Tiles) -> PairEntropies:
    """Return what `_fused` returns, storing the means of one head with its partners at a time."""
    heads = tiles.shape[0]
    in_circle = torch.cat([tiles, tiles[: heads // 2]])
    entropies = tiles.new_empty(heads, heads // 2 + 1, dtype=torch.float64)
    for head in range(heads):
        mean = tiles[head] + in_circle[head : head + heads // 2 + 1]  # [offset, tile, element]
        sums = mean.log().mul_(mean).sum(-1)
        entropies[head] = -sums.sum(-1, dtype=torch.float64)
    return entropies


def _log2(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the binary logarithm of positive normal float32 numbers, to about 1e-7.

    ``x = 2**e * (1 + t)`` with ``1 + t`` in [sqrt(1/2), sqrt(2)), read from the bits of x; of t a
    polynomial, which is faster than a logarithm that is right to the last bit.
    """
    bits = x.view(torch.int32)
    exponent = (bits - SQRT_HALF_BITS) & EXPONENT_BITS  # e, in the place of the exponent bits
    t = (bits - exponent).view(torch.float32) - 1
    value = t * LOG2_POLYNOMIAL[-1]
    for coefficient in LOG2_POLYNOMIAL[-2::-1]:
        value = (value + coefficient) * t
    return value + exponent.to(torch.float32) * 2.0**-23


class _Backend:
    """Chooses between the eager and the compiled kernel; one a process, shared by threads."""

    _lock = threading.Lock()
    _work = 0.0  # (pair, weight)s so far
    _failed = False

    def __call__(self, tiles: Tiles, *, compiled: bool | None) -> PairEntropies:
        self._work += tiles.numel() * len(tiles) / 2
        wanted = self._work > COMPILE_AFTER if compiled is None else compiled
        if wanted and not self._failed:
            try:
                # Examples differ in length: one compilation serves any number of tiles.
                torch._dynamo.mark_dynamic(tiles, 1)
                with self._lock:
                    return self._compiled(tiles)
            # Whatever goes wrong in a compiler (none installed, no headers, a full disk), the
            # eager kernel does the work; were the input at fault, it would raise the same.
            except Exception as error:
                self._failed = True
                reason, *_ = str(error).strip().splitlines() or [repr(error)]
                warnings.warn(
                    f"head distances run without compilation, about five times slower ({reason}); "
                    "a C++ compiler such as g++ makes them fast",
                    stacklevel=4,
                )
        return _eager(tiles)

    @cached_property
    def _compiled(self) -> Callable[[Tiles], PairEntropies]:
        # Fused multiply-adds make the polynomial three times faster.
        options = {"cpp.enable_floating_point_contract_flag": "fast"}
        return torch.compile(_fused, fullgraph=True, options=options)


_BACKEND = _Backend()
