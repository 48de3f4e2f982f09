"""Many small changes to one model: compute what comes before a change only once.

Switching off a head of layer 5 leaves layers 1 to 4 as they are.  Their outputs are kept from an
unchanged pass over the same batch, so that a sweep over all heads costs about half of its passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.model.head_mask import sites
from helpers.model.parallel import side_by_side

Batch = dict[str, Tensor]


class Change(NamedTuple):
    """A change of a model inside ``context(model)``, and the first layer (from 0) it touches."""

    layer: int
    context: Callable[[nn.Module], AbstractContextManager]


def outputs_under(
    model: nn.Module, batches: Sequence[Batch], changes: Sequence[Change], *, label: str
) -> list[Float[Tensor, "change example output"]]:
    """Return, for each batch, what the model gives unchanged (first) and under each change.

    ``model(**batch)`` returns ``[example, output]``; a change must not touch layers before its
    own.  Batches run side by side, each on one thread with a copy of the model, so that results
    are those of full passes to the last bit, on any number of threads.  ``label`` is the bar's.
    """
    return side_by_side(model, batches, partial(_outputs, changes=changes), label)


@torch.inference_mode()
def _outputs(
    model: nn.Module, batch: Batch, changes: Sequence[Change]
) -> Float[Tensor, "change example output"]:
    memory = LayerMemory(model)
    with memory.recording():
        outputs = [model(**batch)]
    for layer, context in changes:
        with memory.resumed_at(layer), context(model):
            outputs.append(model(**batch))
    return torch.stack(outputs).cpu()


class LayerMemory:
    """The outputs of each layer in the last recorded pass of a model.

    Layers that share weights (ALBERT) are one module, and are never skipped.
    """

    def __init__(self, model: nn.Module) -> None:
        layers = sites(model)
        paths = {id(module): path for path, module in model.named_modules()}
        self._layers = [model.get_submodule(_layer_path(paths[id(s.attention)])) for s in layers]
        if len({id(layer) for layer in self._layers}) < len(self._layers):
            self._layers = []
        self._outputs: dict[int, Any] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep what each layer gives inside the context."""

        def keeper(number: int) -> Callable[[nn.Module, tuple, Any], None]:
            return lambda _module, _args, output: self._outputs.update({number: output})

        with ExitStack() as hooks:
            for number, layer in enumerate(self._layers):
                hooks.callback(layer.register_forward_hook(keeper(number)).remove)
            yield

    @contextmanager
    def resumed_at(self, layer: int) -> Iterator[None]:
        """Inside the context, let the layers before ``layer`` give what they gave last time."""
        skipped = self._layers[:layer]
        try:
            for number, module in enumerate(skipped):
                module.forward = lambda *_, number=number, **__: self._outputs[number]
            yield
        finally:
            for module in skipped:
                module.__dict__.pop("forward", None)


def _layer_path(attention: str) -> str:
    """Return the path of the layer that an attention module is in: up to the first number."""
    parts = attention.split(".")
    before = list(takewhile(lambda part: not part.isdecimal(), parts))
    return ".".join(parts[: len(before) + 1])
