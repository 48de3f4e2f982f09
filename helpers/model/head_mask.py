"""Where the heads of a layer meet, and how to switch them off, in whole or in part.

The input of an attention's output projection holds the outputs of the heads side by side,
``[head * width]``.  Families differ in the names of their modules only; what is known of them is
in the tables below.  transformers 5 has no ``head_mask``: a forward pre-hook on that projection
scales each head's output by its entry of the mask, as Michel et al. (2019, section 2.3) define
it: ``xi[layer, head] * output``.  A mask of ones multiplies by one, which changes no bit; a zero
does what removing the head's columns of the projection does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from helpers.errors import InputError, ModelError

Outputs = Float[Tensor, "batch token head width"]

OUTPUTS = ("dense", "out_lin", "o", "Wo", "c_proj", "out_proj", "o_proj")
VALUES = ("value", "value_proj", "v_lin", "v", "v_proj")
# Projections that give queries, keys and values at once, and the axis of the three in
# [batch, token, ...] once their output is cut into [3, head, width] or [head, 3, width].
FUSED = {"Wqkv": 2, "c_attn": 2, "in_proj": 3}
HEAD_COUNTS = ("num_attention_heads", "n_heads", "num_heads")
CROSS = ("cross", "encdec", "encoder_attn")


@dataclass(frozen=True)
class Site:
    """The attention of one layer: ``attention`` has everything below in it."""

    attention: nn.Module = field(repr=False)
    output: nn.Module = field(repr=False)  # the projection of the heads' outputs
    values: nn.Module = field(repr=False)  # gives the value vectors (maybe queries and keys too)
    values_name: str  # of that module in its parent
    heads: int
    inner: nn.Module = field(repr=False)  # computes with the maps (maybe ``attention`` itself)

    @cached_property
    def width(self) -> int:
        """The width of one head's output."""
        return input_width(self.output) // self.heads

    @property
    def output_weight(self) -> Float[Tensor, "head width features"]:
        """The part of the output projection that belongs to each head."""
        weight = self.output.weight if isinstance(self.output, Conv1D) else self.output.weight.T
        return weight.unflatten(0, (self.heads, self.width))

    def value_vectors(
        self, projected: Float[Tensor, "batch token features"]
    ) -> Float[Tensor, "batch token head width"]:
        """Return the value vectors in the output of ``values``.

        Where several heads share them (grouped queries), each of the heads has them.
        """
        axis = FUSED.get(self.values_name)
        if axis is None:
            vectors = projected.unflatten(-1, (-1, self.width))
            return vectors.repeat_interleave(self.heads // vectors.shape[-2], dim=-2)
        shape = [self.heads, self.width]
        shape.insert(axis - 2, 3)
        vectors = projected.unflatten(-1, shape).select(axis, 2)  # queries, keys, values
        bias = getattr(self.inner, "v_bias", None)  # DeBERTa adds it afterwards
        return vectors if bias is None else vectors + bias.view(self.heads, self.width)


def sites(model: nn.Module, *, cross: bool = False) -> list[Site]:
    """Return the attention of each layer, in the order of computation.

    A model that uses one layer's weights for several layers (ALBERT) has the same site several
    times.  ``cross`` asks for a decoder's attention to the encoder instead of to itself.

    Raises:
        ModelError: a layer whose projections cannot be told apart, or no attention at all.
    """
    whole = owner(model)
    found = [
        _site(path, module, whole)
        for path, module in _attentions(model)
        if _is_cross(path, module) == cross
    ]
    if not found:
        raise ModelError(
            f"{type(model).__name__}: no {'cross-' if cross else ''}attention layer was found"
        )
    if len({site.heads for site in found}) > 1:
        raise ModelError(f"{type(model).__name__}: its layers differ in their number of heads")
    config = getattr(whole, "config", None)
    if not hasattr(config, "num_hidden_groups"):  # no layers that share their weights
        return found
    layers = config.num_hidden_layers
    if getattr(config, "inner_group_num", 1) > 1:
        raise ModelError(f"{type(model).__name__}: groups of several layers cannot be masked")
    return [found[layer * len(found) // layers] for layer in range(layers)]


def owner(model: nn.Module) -> nn.Module:
    """Return the innermost transformer that has all of a model's attention in it."""
    wanted = {id(module) for _, module in _attentions(model)}
    innermost = model
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and wanted <= {
            id(part) for part in module.modules()
        }:
            innermost = module
    return innermost


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
        InputError: the mask has another shape than the model's layers and heads.
        ModelError: the model's attention has parts that are not known.
    """
    layers = sites(model, cross=cross)
    shape = len(layers), layers[0].heads
    if (len(mask), mask.shape[-1]) != shape or mask.ndim > 3:
        raise InputError(f"a head mask of shape {tuple(mask.shape)}; this model needs {shape}")

    def scaled(layer: int, outputs: Outputs) -> Outputs:
        return outputs * mask[layer].to(outputs)[..., None, :, None]  # [(example), 1, head, 1]

    with _replaced(model, layers, scaled):
        yield


@contextmanager
def head_output(
    model: nn.Module, layer: int, head: int, output: Float[Tensor, " width"]
) -> Iterator[None]:
    """Let a head give the same output at every position inside the context.

    Zeros take the head out (as `head_mask` does); the head's mean over a corpus takes out what
    it tells one position from another by.  ``layer`` and ``head`` count from 0.
    """

    def fixed(current: int, outputs: Outputs) -> Outputs:
        if current != layer:
            return outputs
        outputs = outputs.clone()
        outputs[..., head, :] = output.to(outputs)
        return outputs

    with _replaced(model, sites(model), fixed):
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
        InputError: there is no such layer or head.
        ModelError: the model's attention has parts that are not known.
    """
    layers = sites(model)
    heads = layers[0].heads
    if not 0 <= layer < len(layers) or not (head is None or 0 <= head < heads):
        raise InputError(
            f"no layer {layer} with head {head}: there are {len(layers)} layers of {heads} heads, "
            "counted from 0 here"
        )
    site, seen = layers[layer], {}
    chosen = torch.arange(heads) == head if head is not None else torch.ones(heads).bool()

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
        with _replaced(model, layers, averaged):
            yield


def input_width(projection: nn.Module) -> int:
    """Return the number of inputs of a linear layer (of GPT-2's transposed kind too)."""
    return projection.weight.shape[0 if isinstance(projection, Conv1D) else 1]


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


@contextmanager
def _replaced(
    model: nn.Module, layers: Sequence[Site], change: Callable[[int, Outputs], Outputs]
) -> Iterator[None]:
    """Put ``change(layer, outputs)`` in the place of each layer's head outputs."""
    turns = {
        site.output: [layer for layer, other in enumerate(layers) if other.output is site.output]
        for site in layers
    }
    calls = dict.fromkeys(turns, 0)

    def start(_model: nn.Module, _args: tuple) -> None:
        calls.update(dict.fromkeys(turns, 0))  # an interrupted pass may have left its count

    def hook_of(site: Site) -> Callable[[nn.Module, tuple], tuple]:
        def hook(module: nn.Module, args: tuple) -> tuple:
            layer = turns[module][calls[module] % len(turns[module])]
            calls[module] += 1
            outputs = args[0].unflatten(-1, (site.heads, site.width))
            return (change(layer, outputs).flatten(-2), *args[1:])

        return hook

    with ExitStack() as hooks:
        hooks.callback(owner(model).register_forward_pre_hook(start).remove)
        for site in {id(site.output): site for site in layers}.values():
            hooks.callback(site.output.register_forward_pre_hook(hook_of(site)).remove)
        yield


def _attentions(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the outermost modules that are called attention, with their paths."""
    inside: set[int] = set()
    for path, module in model.named_modules():
        if "Attention" in type(module).__name__ and id(module) not in inside:
            inside.update(id(part) for part in module.modules())
            yield path, module


def _is_cross(path: str, module: nn.Module) -> bool:
    name = f"{path.rpartition('.')[2]} {type(module).__name__}".lower()
    return any(mark in name for mark in CROSS)


def _site(path: str, attention: nn.Module, model: nn.Module) -> Site:
    linear = {
        name: part
        for name, part in attention.named_modules()
        if isinstance(part, nn.Linear | Conv1D)
    }
    outputs = [name for name in linear if name.rpartition(".")[2] in OUTPUTS]
    values = [name for name in linear if name.rpartition(".")[2] in (*VALUES, *FUSED)]
    if len(outputs) != 1 or len(values) != 1:
        raise ModelError(
            f"{type(attention).__name__} ({path}): expected one output and one value projection, "
            f"found {outputs} and {values}; masks know BERT's relatives, GPT-2, T5 and Marian"
        )
    parent, _, values_name = values[0].rpartition(".")
    inner = attention.get_submodule(parent)
    output = linear[outputs[0]]
    heads = _head_count(inner, model)
    if not heads or input_width(output) % heads:
        raise ModelError(f"{type(attention).__name__} ({path}): its heads cannot be counted")
    return Site(attention, output, linear[values[0]], values_name, heads, inner)


def _head_count(attention: nn.Module, model: nn.Module) -> int | None:
    for holder in (attention, getattr(model, "config", None)):
        for name in HEAD_COUNTS:
            if isinstance(count := getattr(holder, name, None), int):
                return count
    return None
