"""Random numbers that are the same on every processor, for models with random weights.

torch's generator gives the same integers everywhere.  What it makes of them depends on the
processor: its vectorised kernels round logarithms, sines and products differently from the plain
ones, which changes the last bit of a sixth of all normal deviates, and of half of all uniform ones.
Here the same integers become the same numbers, because only additions, products, quotients and
square roots of single elements are used.  IEEE 754 defines each of these to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial.polynomial import polyval
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BLOCK = 16  # torch makes normal deviates from 16 uniform ones at a time, if it has that many
CHUNK = 1 << 15  # elements at a time, so that the intermediate arrays stay in the cache
# Coefficients of power series in the square of their argument; they leave errors of about 1e-12.
LOGARITHM_SERIES = [1 / (2 * term + 1) for term in range(7)]
COSINE_SERIES = [(-1) ** term / math.factorial(2 * term) for term in range(10)]
SINE_SERIES = [(-1) ** term / math.factorial(2 * term + 1) for term in range(10)]


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
        # Between 0 and 1 torch's deviates are multiples of 2^-24, without any rounding.
        deviates = part.uniform_(0, 1).numpy().astype(np.float64)
        part.numpy()[:] = deviates * (high - low) + low
    return tensor


def fill_normal(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill a contiguous float32 tensor of at least 16 elements with normal deviates.

    As in torch, the last block is made of the last 16 elements, which overlap the block before
    if the number of elements is not a multiple of 16.
    """
    flat = tensor.view(-1)
    flat.uniform_(0, 1)
    blocks, rest = divmod(len(flat), BLOCK)
    for part in flat[: blocks * BLOCK].split(CHUNK):
        part.numpy()[:] = _normal_from_uniform(part.numpy(), mean, std)
    if rest:
        last = flat[-BLOCK:]
        last.uniform_(0, 1)
        last.numpy()[:] = _normal_from_uniform(last.numpy(), mean, std)
    return tensor


PORTABLE_FILLS = {
    torch.ops.aten.normal_.default: fill_normal,
    torch.ops.aten.uniform_.default: fill_uniform,
}


def _normal_from_uniform(
    uniform: Float[np.ndarray, " element"], mean: float, std: float
) -> Float[np.ndarray, " element"]:
    """Compute the Box-Muller transform of uniform deviates, 8 pairs in each block of 16.

    Each step is rounded to float32, as torch rounds it, so that the results are torch's.
    """
    pairs = uniform.reshape(-1, 2, BLOCK // 2)  # [block, member of the pair, pair]
    logarithms = _logarithm(1 - pairs[:, 0].astype(np.float64)).astype(np.float32)
    radii = np.sqrt(-2 * logarithms)
    angles = np.float32(2 * math.pi) * pairs[:, 1]
    # The series are those of half the difference from half a turn, which is at most pi / 2.
    halves = (angles.astype(np.float64) - math.pi) / 2
    squares = halves * halves
    half_cosines = polyval(squares, COSINE_SERIES)
    half_sines = halves * polyval(squares, SINE_SERIES)
    cosines = 2 * half_sines * half_sines - 1
    sines = -2 * half_sines * half_cosines
    directions = np.stack([cosines, sines], axis=1).astype(np.float32)  # as ``pairs``
    standard = (radii[:, None] * directions).astype(np.float64)
    return (standard * np.float32(std) + np.float32(mean)).astype(np.float32).ravel()


def _logarithm(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Compute natural logarithms of positive numbers, by the series of the inverse tanh."""
    mantissas, exponents = np.frexp(values)  # the mantissas are from 0.5 to below 1
    is_small = mantissas < math.sqrt(0.5)
    mantissas = np.where(is_small, 2 * mantissas, mantissas)
    exponents = np.where(is_small, exponents - 1, exponents)
    ratios = (mantissas - 1) / (mantissas + 1)
    series = polyval(ratios * ratios, LOGARITHM_SERIES)
    return exponents * math.log(2) + 2 * ratios * series
