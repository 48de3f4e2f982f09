"""What a head's scores are made of: queries, keys, and what else is added before the softmax.

Queries and keys are those that a model multiplies: rotated, and repeated where heads share keys.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from helpers.data.records import Record
from helpers.errors import ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import forward, model_inputs
from helpers.model.sites import Scores, sites

PRODUCTS, FACTORS = ("matmul", "bmm"), ("mul", "mul_", "div", "div_")  # functions of torch


class HeadScores(NamedTuple):
    """A head's scores are ``scale * queries @ keys.T + other``; their softmax is its map."""

    queries: Float[Tensor, "token width"]
    keys: Float[Tensor, "token width"]
    scale: float
    other: Float[Tensor, "query key"]  # of positions (MPNet, T5, DeBERTa); -inf where masked


def head_scores(encoder: Encoder, record: Record, layer: int, head: int) -> HeadScores:
    """Return what a head's scores of a record's tokens are made of; layer and head from 0.

    ModelError where no product of queries and keys is found before the layer's softmax.
    """
    modules, seen = {site.values for site in sites(encoder.model)}, _Products()
    with ExitStack() as hooks, seen:
        for values in modules:
            hooks.callback(values.register_forward_hook(seen.start).remove)
        forward(encoder, [model_inputs(encoder, record)])
    if len(seen.layers) != encoder.layers:
        raise ModelError(f"{type(encoder.model).__name__}: found no product of queries and keys")
    both, scale, scores = seen.layers[layer]
    if "temperatures" in encoder.identity:
        scale *= encoder.identity["temperatures"][layer][head]
    heads = torch.broadcast_tensors(*both)  # [(batch,) head, token, width]
    queries, keys = (vectors.flatten(end_dim=-3)[head].float() for vectors in heads)
    masked = scores[0, head] <= torch.finfo(scores.dtype).min / 2
    other = scores[0, head].float() - scale * queries @ keys.T
    return HeadScores(queries, keys, scale, other.masked_fill(masked, -torch.inf))


class _Products(TorchFunctionMode):
    """Keeps of each layer what is multiplied first after its values, its scale, and the scores."""

    def __init__(self) -> None:
        self.layers: list[tuple[tuple[Tensor, Tensor], float, Scores]] = []
        self.start()

    def start(self, *_: Any) -> None:
        """Forget the layer before."""
        self.product, self.both, self.scale = torch.empty(0), (), 1.0

    def __torch_function__(
        self, func: Callable, _types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call a function of torch."""
        found, name = func(*args, **kwargs or {}), func.__name__
        if func is F.softmax and self.product.shape[-3:] == args[0].shape[-3:]:
            self.layers.append((self.both, self.scale, args[0]))
        elif name in PRODUCTS and not self.both:
            self.product, self.both = found, (args[0], args[1].mT)
        elif name in FACTORS and args[0] is self.product:
            self.scale = float(func(torch.ones(()), args[1]))
        return found
