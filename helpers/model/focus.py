"""Heads as focused as another model's (the *focused* control): one temperature for each head.

It multiplies a head's scores, what positions add to them included, before the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.errors import ModelError
from helpers.model.sites import Softmaxes, first_layer
from helpers.work import in_order

LARGEST, HALVINGS = 20.0, 30  # of a temperature, as a power of two; heads have asked for thousands

Scores = Float[Tensor, "example head query key"]


def temperatures(
    base: nn.Module, like: nn.Module, batch: Mapping[str, Tensor]
) -> list[list[float]]:
    """Return what gives each layer's heads the mean entropy of those of ``like`` on a padded batch.

    The mean is over queries and then examples; an entropy out of reach is neared by up to a factor
    of a million.  By bisection, layer by layer, since temperatures change what the layers above
    read; the same for any number of threads.  ModelError where layers have no softmax each.
    """
    inside = batch["attention_mask"]
    share = inside / inside.sum(dim=1, keepdim=True) / len(inside)  # of each query in the mean
    wanted, found = [], []

    def entropies(scores: Scores) -> Float[Tensor, " head"]:
        each = torch.special.entr(torch.softmax(scores, dim=-1, dtype=torch.float32)).sum(dim=-1)
        return (each * share[:, None]).sum(dim=(0, 2))

    def measured(_layer: int, scores: Scores, softmax: Callable) -> Scores:
        wanted.append(entropies(scores))
        return softmax(scores)

    def matched(layer: int, scores: Scores, softmax: Callable) -> Scores:
        low, high = (torch.full_like(wanted[layer], end) for end in (-LARGEST, LARGEST))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            broad = entropies(_scaled(scores, 2**middle)) > wanted[layer]
            low, high = torch.where(broad, middle, low), torch.where(broad, high, middle)
        found.append(2**low)
        return softmax(_scaled(scores, found[-1]))

    def passes() -> None:
        for model, change in ((like, measured), (base, matched)):
            with torch.inference_mode(), Softmaxes(change, count()):
                model(**batch)

    list(in_order([passes], threads=torch.get_num_threads(), ahead=1))  # on one of them
    layers = getattr(base.config, "num_hidden_layers", len(found))
    if len(found) != layers:
        raise ModelError(
            f"{type(base).__name__}: {len(found)} calls of softmax in {layers} layers, so there is "
            "no temperature for each head, and no focused control"
        )
    return torch.stack(found).tolist()


def focus(base: nn.Module, factors: Sequence[Sequence[float]]) -> None:
    """Let the heads of a model's layers, and of its copies', have these temperatures."""
    device = next(base.parameters()).device
    base.register_buffer("temperatures", torch.tensor(factors, device=device), persistent=False)
    base.forward = MethodType(_forward, base)  # a copy's is bound to the copy


def _forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    def scaled(layer: int, scores: Scores, softmax: Callable) -> Scores:
        return softmax(_scaled(scores, self.temperatures[layer]))

    with Softmaxes(scaled, range(first_layer(self), len(self.temperatures))):
        return type(self).forward(self, *args, **kwargs)


def _scaled(scores: Scores, factors: Float[Tensor, " head"]) -> Scores:
    """Return each head's scores times its factor, in float32 or wider; what is masked stays so."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    seen = scores > torch.finfo(scores.dtype).min / 2
    return torch.where(seen, wide * factors[:, None, None], wide)
