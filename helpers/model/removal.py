"""Remove attention heads from a model: their outputs are replaced before the output projection."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from operator import index
from typing import Any

import torch
from torch import nn

from helpers.errors import InputError, ModelError
from helpers.model.loading import Model
from helpers.model.sites import Outputs, Site, attending_layers, base_transformer, sites


@contextmanager
def remove_heads(model: Any, heads: Iterable[Any]) -> Iterator[None]:
    """Remove attention heads from a model inside the context.

    The output of a removed head is zero, so that nothing of it reaches the layers above.  Its own
    attention weights stay as they are; those of the layers above change.

    Parameters
    ----------
    model : Model or Module
        What `load_model` returns, or a model of transformers.
    heads : iterable of str or (int, int)
        Names of heads, such as "3-1", or layer and head.  Both count from 1, as in tables.

    Raises
    ------
    InputError
        For a head that the model does not have, or a name in place of a model.
    ModelError
        If the outputs of the model's heads cannot be located.

    Examples
    --------
    >>> model = load_model("minilm")
    >>> text = "The committee rejected my plan."
    >>> with remove_heads(model, ["3-1", (5, 2)]):
    ...     without_heads = read(text, model)
    """
    if isinstance(model, Model):
        n_heads = model.heads
        model = model.model
    elif not isinstance(model, nn.Module):
        raise InputError(f"{model!r:.60} is no model; give what load_model returns")
    else:
        config = base_transformer(model).config
        n_heads = config.num_attention_heads // getattr(config, "head_ratio", 1)  # ConvBERT's
    check_removable(model, n_heads)
    layers = sites(model)
    numbers = attending_layers(model)
    mask = torch.ones(len(layers), n_heads, 1)
    for head in [heads] if isinstance(heads, str) else heads:
        layer_number, head_number = _numbers(head)
        if layer_number not in numbers or not 1 <= head_number <= n_heads:
            ends = f"{numbers[0]}-1 to {numbers[-1]}-{n_heads}"
            raise InputError(f"there is no head {layer_number}-{head_number}; the model has {ends}")
        mask[numbers.index(layer_number), head_number - 1] = 0

    def remove(layer: int, outputs: Outputs) -> Outputs:
        return outputs * mask[layer].to(outputs)

    with patch_head_outputs(layers, remove):
        yield


def _numbers(head: Any) -> tuple[int, int]:
    """Read the name of a head, or its layer and head, both from 1."""
    name = re.fullmatch(r"(\d+)-(\d+)", str(head))
    try:
        layer_number, head_number = map(int, name.groups()) if name else map(index, head)
        return layer_number, head_number
    except (TypeError, ValueError) as error:
        raise InputError(f'{head!r} is no head; write "3-1" or (3, 1)') from error


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
            raise ModelError(
                f"{type(model).__name__}: a layer has {heads} heads with maps, and {site.heads} "
                "outputs in the configuration, so it is not known which output belongs to which "
                "head. Use a relative of BERT, GPT-2, T5 or Marian."
            )


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
