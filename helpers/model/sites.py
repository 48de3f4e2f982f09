"""Locate the attention modules of a model, and patch their softmax and their outputs.

The input of an attention's output projection holds the outputs of the heads side by side,
``[head * width]``.  Families differ only in the names of their modules, which the tables below
list.

The heads of the entropy-matched control have a temperature each.  It multiplies their scores,
including what positions add to them, before the softmax.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import cycle
from types import MethodType
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from helpers.errors import ModelError
from helpers.progress import one_thread

Outputs = Float[Tensor, "batch token head width"]
Weights = Float[Tensor, "batch head query key"]
Scores = Float[Tensor, "batch head query key"]  # whose softmax are the weights

# Types of layers in the configurations of transformers that are not those of attention.
WITHOUT_ATTENTION = ("linear_attention", "conv", "moe", "mlp")
OUTPUT_NAMES = ("dense", "out_lin", "o", "Wo", "c_proj", "out_proj", "o_proj")
# Modules that compute value vectors, by name.  The number is for those that compute queries, keys
# and values at once: the axis of the three, after the output is divided into [3, head, width] or
# [head, 3, width] behind the axes of batch and token.
VALUE_AXES = {"value": None, "value_proj": None, "v_lin": None, "v": None, "v_proj": None,
              "Wqkv": 2, "c_attn": 2, "in_proj": 3}  # fmt: skip
# Older models add -10,000 to the scores of keys that are not visible, and newer ones the lowest
# number of their precision.
LOW_SCORE = -9000.0
MAX_LOG2_TEMPERATURE = 20.0  # some heads need values in the thousands


class Site(NamedTuple):
    """The attention of one layer."""

    output: nn.Module  # the projection of the heads' outputs
    values: nn.Module  # computes the value vectors, or queries and keys as well
    axis: int | None  # of queries, keys and values in the output of that module (`VALUE_AXES`)
    heads: int
    inner: nn.Module  # computes with the maps, or all of the attention

    @property
    def output_weight(self) -> Float[Tensor, "head width features"]:
        """The part of the output projection that belongs to each head."""
        weight = cast("Tensor", self.output.weight)
        if not isinstance(self.output, Conv1D):
            weight = weight.T
        return weight.unflatten(0, (self.heads, -1))

    def value_vectors(
        self, projected: Float[Tensor, "batch token features"]
    ) -> Float[Tensor, "batch token head width"]:
        """Extract the value vectors from the output of ``values``.

        If several heads share value vectors (grouped queries), they are repeated for each head.
        RuntimeError if the output does not divide into vectors of the width of a head: GPTBigCode
        has all queries next to one key and one value.
        """
        width = self.output_weight.shape[1]
        if self.axis is None:
            vectors = projected.unflatten(-1, (-1, width))
            return vectors.repeat_interleave(self.heads // vectors.shape[-2], dim=-2)
        shape = [self.heads, width]
        shape.insert(self.axis - 2, 3)
        vectors = projected.unflatten(-1, shape).select(self.axis, 2)  # queries, keys, values
        bias = getattr(self.inner, "v_bias", None)  # DeBERTa adds it afterwards
        return vectors if bias is None else vectors + bias.view(self.heads, width)


def sites(model: nn.Module) -> list[Site]:
    """Locate the attention of each layer, in the order of computation.

    Parameters
    ----------
    model : Module
        A model of transformers.

    Returns
    -------
    list of Site
        One for each layer.  If layers share their parameters (ALBERT), one appears several times.

    Raises
    ------
    ModelError
        If there is no attention, or a layer's projections cannot be told apart.
    """
    numbers = attending_layers(model)
    parts: list[nn.Module] = [model]
    if is_hybrid(model):  # its other layers may have modules that are called attention
        layers = layer_modules(model)
        parts = [layers[number - 1] for number in numbers]
    heads = base_transformer(model).config.num_attention_heads
    modules = []
    for part in parts:
        inside: set[nn.Module] = set()  # attention modules hold others that are called attention
        for path, module in part.named_modules():
            if "Attention" in type(module).__name__ and module not in inside:
                inside.update(module.modules())
                modules.append(_site(path, module, heads))
    if not modules:
        raise ModelError(f"{type(model).__name__}: no attention layer was found")
    return [modules[layer * len(modules) // len(numbers)] for layer in range(len(numbers))]


def attending_layers(model: nn.Module) -> list[int]:
    """List the numbers, from 1, of a model's layers that attend; a hybrid has others, too."""
    config = base_transformer(model).config
    types = getattr(config, "layer_types", None) or ["attention"] * config.num_hidden_layers
    return [number for number, name in enumerate(types, 1) if name not in WITHOUT_ATTENTION]


def is_hybrid(model: nn.Module) -> bool:
    """Tell whether only some of a model's layers have attention."""
    return len(attending_layers(model)) < base_transformer(model).config.num_hidden_layers


def layer_modules(model: nn.Module) -> nn.ModuleList:
    """Find the list of a model's layers; ModelError if they are not in one."""
    n_layers = base_transformer(model).config.num_hidden_layers
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == n_layers:
            return part
    raise ModelError(f"{type(model).__name__}: its layers are not in one list of modules")


def show_attending_layers(model: nn.Module) -> None:
    """Have a hybrid return the maps of the layers that attend, and the states behind them.

    Families differ in what they return of the other layers: nothing, None, or numbers that are no
    attention weights.  The states are those of the embeddings and of each layer that attends.
    """
    numbers = attending_layers(model)

    def select(_module: nn.Module, _args: tuple, output: Any) -> None:
        maps = output.get("attentions")
        if maps and len(maps) > len(numbers):
            output["attentions"] = tuple(maps[number - 1] for number in numbers)
        states = output.get("hidden_states")
        if states:
            output["hidden_states"] = tuple(states[number] for number in (0, *numbers))

    base_transformer(model).register_forward_hook(select)


def check_softmax(model: nn.Module, inputs: Mapping[str, Tensor], layers: int) -> None:
    """Raise ModelError unless each layer calls softmax once, so that weights can be changed.

    Parameters
    ----------
    model : Module
        A model of transformers.
    inputs : mapping of str to tensor
        Any inputs of the model.
    layers : int
        The number of layers.
    """
    n_calls = 0

    def count(_layer: int, scores: Scores, softmax: Callable) -> Weights:
        nonlocal n_calls
        n_calls += 1
        return softmax(scores)

    with torch.inference_mode(), PatchSoftmax(model, count):
        model(**inputs)
    if n_calls != layers:
        problem = f"{n_calls} calls of softmax in {layers} layers, so weights cannot be changed"
        raise ModelError(f"{type(model).__name__}: {problem}. Use a relative of BERT or GPT-2.")


def base_transformer(model: nn.Module) -> PreTrainedModel:
    """Find the transformer in a model, without the heads of tasks."""
    transformers = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    return cast("PreTrainedModel", next(transformers).base_model)


# The layers of the calls of softmax in a pass; None if each layer calls it once.
_CALLS: ContextVar[Sequence[int] | None] = ContextVar("layers of calls", default=None)


@contextmanager
def softmax_calls(layers: Sequence[int]) -> Iterator[None]:
    """Tell `PatchSoftmax` the layer of each call of softmax in a pass inside the context.

    Parameters
    ----------
    layers : sequence of int
        Numbers of layers from 0, in the order of computation.  A layer that is left out is
        skipped, and one that is named several times computes its maps in parts.
    """
    token = _CALLS.set(layers)
    try:
        yield
    finally:
        _CALLS.reset(token)


class PatchSoftmax(TorchFunctionMode):
    """Replaces the softmax of attention with ``change(layer, scores, softmax)`` in this thread.

    Every family calls softmax once per layer, in the order of computation, whatever the scores
    are made of; the scores of a mixture of experts have other axes.  Layers that share their
    parameters are told apart by that order.  `softmax_calls` names another order.

    Parameters
    ----------
    model : Module
        A model of transformers.
    change : callable
        It takes the number of a layer, its scores, and a function that computes their softmax.
    """

    def __init__(
        self, model: nn.Module, change: Callable[[int, Scores, Callable], Weights]
    ) -> None:
        super().__init__()
        self.change = change
        each_layer = range(len(attending_layers(model)))
        self.layers = cycle(_CALLS.get() or each_layer)

    def __torch_function__(
        self, func: Callable, _types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call a function of torch, or ``change`` in place of softmax."""
        # Attention has the axes [batch, head, query, key].
        if func is not F.softmax or args[0].ndim != 4:
            return func(*args, **kwargs or {})
        kwargs = kwargs or {}
        scores = args[0]
        weights = self.change(next(self.layers), scores, partial(func, **kwargs))
        return weights.to(kwargs["dtype"] or scores.dtype)


def temperatures(
    base: nn.Module, target: nn.Module, batch: Mapping[str, Tensor]
) -> list[list[float]]:
    """Compute the temperatures that match the mean entropies of another model's heads.

    Temperatures are found by bisection, layer by layer, because those of one layer change what the
    layers above read.  They are the same for any number of threads.

    Parameters
    ----------
    base : Module
        The model whose heads are to be matched.
    target : Module
        The model that has the target entropies.
    batch : mapping of str to tensor
        Padded inputs.  A mean entropy is over the queries of an example, then over examples.

    Returns
    -------
    list of list of float, shape (layer, head)
        A target that cannot be reached has the temperature at which the search stops, at most
        ``2**MAX_LOG2_TEMPERATURE``.

    Raises
    ------
    ModelError
        If the layers do not call softmax once each.
    """
    mask = batch["attention_mask"]
    query_share = mask / mask.sum(dim=1, keepdim=True) / len(mask)  # of each query in the mean
    matched: list[Float[Tensor, " head"]] = []

    def mean_entropies(weights: Weights) -> Float[Tensor, " head"]:
        key_weights = weights[..., : weights.shape[-2]]  # without a learned sink
        query_entropies = torch.special.entr(key_weights).sum(dim=-1)
        return (query_entropies * query_share[:, None]).sum(dim=(0, 2))

    def match(layer: int, scores: Scores, softmax: Callable) -> Scores:
        low = torch.full_like(targets[layer], -MAX_LOG2_TEMPERATURE)
        high = torch.full_like(targets[layer], MAX_LOG2_TEMPERATURE)
        for _ in range(30):
            middle = (low + high) / 2
            weights = torch.softmax(_scaled(scores, 2**middle), dim=-1, dtype=torch.float32)
            is_too_broad = mean_entropies(weights) > targets[layer]
            low = torch.where(is_too_broad, middle, low)
            high = torch.where(is_too_broad, high, middle)
        matched.append(2**low)
        return softmax(_scaled(scores, matched[-1]))

    with one_thread(), torch.inference_mode():
        maps = target(**batch, output_attentions=True).attentions
        targets = [mean_entropies(layer.float()) for layer in maps]
        check_softmax(base, batch, len(targets))
        with PatchSoftmax(base, match):
            base(**batch)
    return torch.stack(matched).tolist()


def copy_with_layers(model: PreTrainedModel, order: Sequence[int]) -> PreTrainedModel:
    """Copy a model with its layers that attend in another order, without copying its weights.

    Raises
    ------
    ModelError
        If the layers are not in one list of modules.
    """
    copied = _copy_without_weights(model)
    modules = layer_modules(copied)
    indices = [number - 1 for number in attending_layers(model)]  # others of a hybrid stay
    layers = [modules[index] for index in indices]
    for index, layer in zip(indices, order, strict=True):
        modules[index] = layers[layer]
    return copied


def copy_with_temperatures(
    model: PreTrainedModel, factors: Sequence[Sequence[float]]
) -> PreTrainedModel:
    """Copy a model, whose heads get temperatures, without copying its weights."""
    copied = _copy_without_weights(model)
    base = base_transformer(copied)
    buffer = torch.tensor(factors, device=base.device)
    base.register_buffer("temperatures", buffer, persistent=False)
    base.forward = MethodType(_forward_with_temperatures, base)  # a copy's is bound to the copy
    return copied


def _copy_without_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Copy the modules of a model, which share its weights."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _forward_with_temperatures(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a model's own forward pass with the scores of its heads times their temperatures."""

    def scaled(layer: int, scores: Scores, softmax: Callable) -> Scores:
        return softmax(_scaled(scores, cast("Tensor", self.temperatures)[layer]))

    with PatchSoftmax(self, scaled):
        return type(self).forward(self, *args, **kwargs)


def _scaled(scores: Scores, factors: Float[Tensor, " head"]) -> Scores:
    """Multiply each head's scores by its factor, in float32 or wider; masked scores stay masked."""
    is_visible = scores > LOW_SCORE
    scaled = wide(scores) * factors[:, None, None]
    return scaled.masked_fill(~is_visible, torch.finfo(scaled.dtype).min)


def wide(values: Tensor) -> Tensor:
    """Convert values to float32 or wider, because half precision is too coarse for a sum."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _site(path: str, attention: nn.Module, heads: int) -> Site:
    """Describe one attention module; ModelError if its projections cannot be told apart."""
    modules = dict(attention.named_modules())
    names = {  # of the projections, by path
        inner_path: inner_path.rpartition(".")[2]
        for inner_path, module in modules.items()
        if isinstance(module, (nn.Linear, Conv1D))
    }
    output_paths = [inner_path for inner_path, name in names.items() if name in OUTPUT_NAMES]
    value_paths = [inner_path for inner_path, name in names.items() if name in VALUE_AXES]
    if len(output_paths) != 1 or len(value_paths) != 1:
        problem = f"it has the output and value projections {output_paths} and {value_paths}"
        remedy = "Use a relative of BERT, GPT-2, T5 or Marian, which have one of each."
        raise ModelError(f"{type(attention).__name__} ({path}): {problem}. {remedy}")
    parent_path, _, values_name = value_paths[0].rpartition(".")
    inner = modules[parent_path]
    return Site(
        modules[output_paths[0]], modules[value_paths[0]], VALUE_AXES[values_name], heads, inner
    )


def check_removable(model: nn.Module, heads: int) -> None:
    """Raise ModelError unless the outputs of all heads can be located, and so removed.

    Parameters
    ----------
    model : Module
        A model of transformers.
    heads : int
        The number of heads that have maps, in each layer.
    """
    for site in sites(model):
        if site.heads != heads:  # ConvBERT has convolutions in place of some
            problem = f"{heads} heads have maps and {site.heads} have outputs, which do not pair"
            raise ModelError(f"{type(model).__name__}: {problem}. Use a relative of BERT or GPT-2.")


@contextmanager
def patch_head_outputs(
    layers: Sequence[Site], change: Callable[[int, Outputs], Outputs]
) -> Iterator[None]:
    """Replace each layer's head outputs with ``change(layer, outputs)`` inside the context."""
    layers_of = defaultdict(list)  # one module can be several layers
    for layer, site in enumerate(layers):
        layers_of[site.output].append(layer)
    turns = {module: cycle(numbers) for module, numbers in layers_of.items()}

    def hook(module: nn.Module, args: tuple) -> tuple:
        layer = next(turns[module])
        outputs = args[0].unflatten(-1, (layers[layer].heads, -1))
        return (change(layer, outputs).flatten(-2), *args[1:])

    with ExitStack() as hooks:
        for module in turns:
            hooks.callback(module.register_forward_pre_hook(hook).remove)
        yield
