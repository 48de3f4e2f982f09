"""Where the heads of a layer meet; how to put something else in the place of what they give.

The input of an attention's output projection holds the outputs of the heads side by side,
``[head * width]``.  Families differ in the names of their modules only: the tables below.

Heads that are as focused as another model's (the *focused* control) have a temperature each, which
multiplies their scores, what positions add to them included, before the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count, cycle
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from helpers.errors import ModelError
from helpers.work import in_order

Outputs = Float[Tensor, "batch token head width"]
Weights = Float[Tensor, "batch head query key"]
Scores = Float[Tensor, "batch head query key"]  # whose softmax are the weights

OUTPUTS = ("dense", "out_lin", "o", "Wo", "c_proj", "out_proj", "o_proj")
VALUES = ("value", "value_proj", "v_lin", "v", "v_proj")
# Projections that give queries, keys and values at once, and the axis of the three in
# [batch, token, ...] once their output is cut into [3, head, width] or [head, 3, width].
FUSED = {"Wqkv": 2, "c_attn": 2, "in_proj": 3}
HEAD_COUNTS = ("num_attention_heads", "n_heads", "num_heads")
CROSS = ("cross", "encdec", "encoder_attn")
LARGEST, HALVINGS = 20.0, 30  # of a temperature, as a power of two; heads have asked for thousands


@dataclass(frozen=True)
class Site:
    """The attention of one layer."""

    output: nn.Module = field(repr=False)  # the projection of the heads' outputs
    values: nn.Module = field(repr=False)  # gives the value vectors (maybe queries and keys too)
    values_name: str  # of that module in its parent
    heads: int
    inner: nn.Module = field(repr=False)  # computes with the maps (maybe all of the attention)

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

    One whose weights several layers share (ALBERT) is there several times.  ``cross`` asks for a
    decoder's attention to the encoder instead of to itself.  ModelError for a layer whose
    projections cannot be told apart, or no attention at all.
    """
    whole, name, found = owner(model), type(model).__name__, []
    for path, module in _attentions(model):
        called = f"{path.rpartition('.')[2]} {type(module).__name__}".lower()
        if any(mark in called for mark in CROSS) == cross:
            found.append(_site(path, module, whole))
    if not found:
        raise ModelError(f"{name}: no {'cross-' if cross else ''}attention layer was found")
    if len({site.heads for site in found}) > 1:
        raise ModelError(f"{name}: its layers differ in their number of heads")
    config = getattr(whole, "config", None)
    if not hasattr(config, "num_hidden_groups"):  # no layers that share their weights
        return found
    if getattr(config, "inner_group_num", 1) > 1:
        raise ModelError(f"{name}: groups of several layers cannot be masked")
    layers = config.num_hidden_layers
    return [found[layer * len(found) // layers] for layer in range(layers)]


def owner(model: nn.Module) -> nn.Module:
    """Return the innermost transformer that has all of a model's attention in it."""
    wanted, innermost = {module for _, module in _attentions(model)}, model
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and wanted <= set(module.modules()):
            innermost = module
    return innermost


@contextmanager
def replaced(
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


def first_layer(model: nn.Module) -> int:
    """Return how many layers a pass leaves out because what they give is known."""
    return getattr(owner(model), "given", 0)


class Softmaxes(TorchFunctionMode):
    """Puts ``change(layer, scores, softmax)`` in the place of attention, in this thread.

    Every family calls softmax once a layer, in the order of computation, whatever the scores are
    made of; ``layers`` are those of a pass.  Layers that share their weights are told apart.
    """

    def __init__(
        self, change: Callable[[int, Weights, Callable], Weights], layers: Iterable[int]
    ) -> None:
        super().__init__()
        self.change, self.layers = change, cycle(layers)

    def __torch_function__(
        self, func: Callable, _types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call a function of torch; softmax as ``change`` says."""
        if func is not F.softmax:
            return func(*args, **kwargs or {})
        found = self.change(next(self.layers), args[0], partial(func, **kwargs))
        return found.to(kwargs["dtype"] or args[0].dtype)


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
    base.forward = MethodType(_focused_forward, base)  # a copy's is bound to the copy


def _focused_forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    def scaled(layer: int, scores: Scores, softmax: Callable) -> Scores:
        return softmax(_scaled(scores, self.temperatures[layer]))

    with Softmaxes(scaled, range(first_layer(self), len(self.temperatures))):
        return type(self).forward(self, *args, **kwargs)


def _scaled(scores: Scores, factors: Float[Tensor, " head"]) -> Scores:
    """Return each head's scores times its factor, in float32 or wider; what is masked stays so."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    seen = scores > torch.finfo(scores.dtype).min / 2
    return torch.where(seen, wide * factors[:, None, None], wide)


def input_width(projection: nn.Module) -> int:
    """Return the number of inputs of a linear layer (of GPT-2's transposed kind too)."""
    return projection.weight.shape[0 if isinstance(projection, Conv1D) else 1]


def _attentions(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the outermost modules that are called attention, with their paths."""
    inside: set[nn.Module] = set()
    for path, module in model.named_modules():
        if "Attention" in type(module).__name__ and module not in inside:
            inside.update(module.modules())
            yield path, module


def _site(path: str, attention: nn.Module, model: nn.Module) -> Site:
    kinds, parts = (nn.Linear, Conv1D), dict(attention.named_modules())
    linear = [name for name, part in parts.items() if isinstance(part, kinds)]
    outputs = [name for name in linear if name.rpartition(".")[2] in OUTPUTS]
    values = [name for name in linear if name.rpartition(".")[2] in (*VALUES, *FUSED)]
    if len(outputs) != 1 or len(values) != 1:
        raise ModelError(
            f"{type(attention).__name__} ({path}): expected one output and one value projection, "
            f"found {outputs} and {values}; masks know BERT's relatives, GPT-2, T5 and Marian"
        )
    parent, _, values_name = values[0].rpartition(".")
    inner, output = parts[parent], parts[outputs[0]]
    holders = inner, getattr(model, "config", None)
    counts = (getattr(holder, name, None) for holder in holders for name in HEAD_COUNTS)
    heads = next((own for own in counts if isinstance(own, int)), 0)
    if not heads or input_width(output) % heads:
        raise ModelError(f"{type(attention).__name__} ({path}): its heads cannot be counted")
    return Site(output, parts[values[0]], values_name, heads, inner)
