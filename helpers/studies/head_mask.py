"""Heads switched off, in whole or in part.

transformers 5 has no ``head_mask``: a forward pre-hook on the output projection (`model.sites`)
scales each head's output by its entry of the mask, as Michel et al. (2019, section 2.3) define
it: ``xi[layer, head] * output``.  A mask of ones multiplies by one, which changes no bit; a zero
does what removing the head's columns of the projection does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from helpers.model.sites import Outputs, Site, owner, replaced, sites


@contextmanager
def head_mask(
    model: nn.Module, mask: Float[Tensor, "layer *example head"], *, cross: bool = False
) -> Iterator[None]:
    """Scale the output of each head by its entry of ``mask`` inside the context.

    ``mask`` is ``[layer, head]``, or ``[layer, example, head]`` with a row for each example of
    the batch.  The output of the model is differentiable in it.  On leaving, by an exception too,
    the model is as it was.  Encoder, decoder and cross-attention are masked apart:
    ``head_mask(model.get_encoder(), a)``, ``head_mask(model.get_decoder(), b)``,
    ``head_mask(model.get_decoder(), c, cross=True)``.

    Raises:
        ModelError: the model's attention has parts that are not known.
    """
    layers = sites(model, cross=cross)

    def scaled(layer: int, outputs: Outputs) -> Outputs:
        return outputs * mask[layer].to(outputs)[..., None, :, None]  # [(example), 1, head, 1]

    with replaced(model, layers, scaled):
        yield


@contextmanager
def uniform_attention(model: nn.Module, layer: int, head: int | None = None) -> Iterator[None]:
    """Let a head, or all heads of a layer, attend uniformly inside the context.

    This is how Kovaleva et al. (2019, section 4.6) disable a head: the weights of each query are
    the same for all real tokens (of those that the layer lets a query see: a decoder's earlier
    ones, ModernBERT's window).  The head's output is then the mean of their value vectors, which
    takes the place of what the head computes.  ``layer`` and ``head`` count from 0; ``model`` is
    an encoder or a decoder alone, not both.

    Raises:
        ModelError: the model's attention has parts that are not known.
    """
    layers = sites(model)
    site, seen = layers[layer], {}
    chosen = torch.ones(site.heads).bool() if head is None else torch.arange(site.heads) == head

    def keep_padding(model: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        given = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
        seen["mask"] = given.get("attention_mask", given.get("kwargs", {}).get("attention_mask"))

    def keep_values(_module: nn.Module, _args: tuple, projected: Tensor) -> None:
        seen["values"] = site.value_vectors(projected)

    def averaged(current: int, outputs: Outputs) -> Outputs:
        if current != layer:
            return outputs
        uniform = _uniform_outputs(site, seen["values"], seen["mask"]).to(outputs)
        return torch.where(chosen.to(outputs.device)[:, None], uniform, outputs)

    with ExitStack() as hooks:
        register = owner(model).register_forward_pre_hook
        hooks.callback(register(keep_padding, with_kwargs=True).remove)
        hooks.callback(site.values.register_forward_hook(keep_values).remove)
        with replaced(model, layers, averaged):
            yield


def _uniform_outputs(
    site: Site,
    values: Float[Tensor, "batch key head width"],
    mask: Float[Tensor, "batch key"] | None,
) -> Outputs:
    """Return what uniform attention over the visible real tokens gives, for every head."""
    visible = _visible(site, values).expand(len(values), -1, -1)  # [batch, query, key]
    if mask is not None:
        visible = visible & mask.bool()[:, None, :]
    weights = visible.to(values)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)  # padding may see nothing
    return torch.einsum("bqk,bkhw->bqhw", weights, values)


def _visible(site: Site, values: Outputs) -> Bool[Tensor, "query key"]:
    """Return which keys a layer lets a query see, padding aside."""
    positions = torch.arange(values.shape[1], device=values.device)
    distance = positions - positions[:, None]  # [query, key]
    visible = torch.ones_like(distance, dtype=torch.bool)
    if getattr(site.inner, "is_causal", False):
        visible = distance <= 0
    if getattr(site.inner, "sliding_window", None):
        # The module holds its half-width plus one, for kernels that count it exclusively.
        visible = visible & (distance.abs() < site.inner.sliding_window)
    return visible
