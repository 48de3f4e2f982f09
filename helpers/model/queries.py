"""Parts of an attention head's scores: queries, keys, and the terms added before the softmax.

Queries and keys are those that the model multiplies: rotated if it rotates them, and repeated if
heads share keys.
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

PRODUCT_FUNCTIONS = ("matmul", "bmm")  # of torch
SCALING_FUNCTIONS = ("mul", "mul_", "div", "div_")


class HeadScores(NamedTuple):
    """Parts of a head's scores, ``scale * queries @ keys.T + bias``; their softmax is its map."""

    queries: Float[Tensor, "token width"]
    keys: Float[Tensor, "token width"]
    scale: float
    bias: Float[Tensor, "query key"]  # of positions (MPNet, T5, DeBERTa); -inf where masked


def head_scores(encoder: Encoder, record: Record, layer: int, head: int) -> HeadScores:
    """Compute the parts of one attention head's scores on a record.

    Parameters
    ----------
    encoder : Encoder
        The model.
    record : dict
        A line of a store's ``examples.jsonl``.
    layer, head : int
        From 0.

    Returns
    -------
    HeadScores

    Raises
    ------
    ModelError
        If no product of queries and keys is found before a layer's softmax.
    """
    products = _Products()
    value_projections = {site.values for site in sites(encoder.model)}
    with ExitStack() as hooks, products:
        for module in value_projections:
            hooks.callback(module.register_forward_hook(products.start).remove)
        forward(encoder, [model_inputs(encoder, record)])
    if len(products.layers) != encoder.layers:
        raise ModelError(
            f"model {encoder.name!r} ({type(encoder.model).__name__}): no product of queries and "
            "keys was found in each layer, so scores cannot be shown. Use a model such as BERT."
        )
    multiplied, scale, scores = products.layers[layer]
    if "temperatures" in encoder.identity:
        scale *= encoder.identity["temperatures"][layer][head]
    all_queries, all_keys = torch.broadcast_tensors(*multiplied)  # [(batch,) head, token, width]
    queries = all_queries.flatten(end_dim=-3)[head].float()
    keys = all_keys.flatten(end_dim=-3)[head].float()
    is_masked = scores[0, head] <= torch.finfo(scores.dtype).min / 2
    rest = scores[0, head].float() - scale * queries @ keys.T
    return HeadScores(queries, keys, scale, rest.masked_fill(is_masked, -torch.inf))


class _Products(TorchFunctionMode):
    """Records the queries and keys, their scale and the scores of each layer.

    Queries and keys are what is multiplied first after the layer's values are computed.
    """

    def __init__(self) -> None:
        self.layers: list[tuple[tuple[Tensor, Tensor], float, Scores]] = []
        self.start()

    def start(self, *_: Any) -> None:
        """Begin a layer."""
        self.product = torch.empty(0)
        self.multiplied: tuple[Tensor, ...] = ()
        self.scale = 1.0

    def __torch_function__(
        self, func: Callable, _types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call a function of torch, and record it if it has a part in the scores."""
        output = func(*args, **kwargs or {})
        if func is F.softmax and self.product.shape[-3:] == args[0].shape[-3:]:
            self.layers.append((self.multiplied, self.scale, args[0]))
        elif func.__name__ in PRODUCT_FUNCTIONS and not self.multiplied:
            self.product = output
            self.multiplied = (args[0], args[1].mT)
        elif func.__name__ in SCALING_FUNCTIONS and args[0] is self.product:
            self.scale = float(func(torch.ones(()), args[1]))
        return output
