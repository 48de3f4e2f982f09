"""Random numbers that are nearly the same on every processor, for models with random weights.

torch's generator gives the same integers everywhere.  What it makes of them depends on the
processor: its vectorised kernels round logarithms, sines and products differently from the plain
ones, which changes the last bit of a sixth of all normal deviates, and of half of all uniform ones.

Here they are computed in float64 and rounded to float32.  Uniform deviates are therefore the same
on every processor, because IEEE 754 defines sums and products to the last bit.  Normal deviates
need logarithms, sines and cosines, which IEEE 754 does not define to the last bit.  Two libraries
that compute them differ by far less than float32 resolves, so that a deviate differs only if its
logarithm, sine or cosine is next to a boundary of rounding.  Of 20 million deviates, none differed
between NumPy's plain logarithm and its AVX-512 one.  Power series with errors of 1e-12, in place of
NumPy's functions, changed 10 of 20 million, by at most two units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BLOCK = 16  # torch makes normal deviates from 16 uniform ones at a time, if it has that many
CHUNK = 1 << 15  # elements at a time, so that the intermediate arrays stay in the cache


class PortableRandom(TorchDispatchMode):
    """Replace ``normal_`` and ``uniform_`` of float32 tensors by their portable versions.

    The numbers are those of torch to within a rounding error, and the generator is left in the
    same state.  ``trunc_normal_``, ``kaiming_uniform_`` and the like are made of these two.
    Tensors of another type or memory layout, and those of fewer than 16 elements, are left to
    torch, which computes the latter in float64, one by one.
    """

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operation of torch."""
        fill = PORTABLE_FILLS.get(operation)
        if fill is not None:
            tensor = arguments[0]
            is_plain = tensor.dtype == torch.float32 and tensor.is_contiguous()
            if is_plain and tensor.numel() >= BLOCK:
                return fill(*arguments, **options or {})
        return operation(*arguments, **options or {})


def fill_uniform(tensor: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Fill a contiguous float32 tensor with uniform deviates between two bounds."""
    for part in tensor.view(-1).split(CHUNK):
        part.uniform_(0, 1)  # torch's deviates are multiples of 2^-24, without any rounding
        part.copy_(part.double() * (high - low) + low)
    return tensor


def fill_normal(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill a contiguous float32 tensor of at least 16 elements with normal deviates.

    As in torch, the last block is made of the last 16 elements, which overlap the block before
    if the number of elements is not a multiple of 16.
    """
    flat = tensor.view(-1)
    flat.uniform_(0, 1)
    n_rest = len(flat) % BLOCK
    for part in flat[: len(flat) - n_rest].split(CHUNK):
        _make_normal(part, mean, std)
    if n_rest:
        _make_normal(flat[-BLOCK:].uniform_(0, 1), mean, std)
    return tensor


PORTABLE_FILLS = {
    torch.ops.aten.normal_.default: fill_normal,
    torch.ops.aten.uniform_.default: fill_uniform,
}


def _make_normal(deviates: Tensor, mean: float, std: float) -> None:
    """Apply the Box-Muller transform to uniform deviates, 8 pairs in each block of 16, in place.

    Each step is rounded to float32, as torch rounds it, so that the results are torch's.
    """
    blocks = deviates.numpy().reshape(-1, 2, BLOCK // 2)  # [block, member of the pair, pair]
    logarithms = np.log(1 - blocks[:, 0].astype(np.float64)).astype(np.float32)
    radii = np.sqrt(-2 * logarithms)
    angles = (np.float32(2 * math.pi) * blocks[:, 1]).astype(np.float64)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    standard = (radii[:, None] * directions).astype(np.float64)
    blocks[:] = standard * np.float32(std) + np.float32(mean)
