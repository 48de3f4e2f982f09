"""Many small changes to one model: compute what comes before a change only once.

Switching off a head of layer 5 leaves layers 1 to 4 as they are.  Their outputs are kept from an
unchanged pass over the same batch, so that a sweep over all heads costs about half of its passes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.model.parallel import StepDone, run_jobs
from helpers.model.sites import sites

Batch = dict[str, Tensor]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Change(NamedTuple):
    """A change of a model inside ``context(model)``, and the first layer (from 0) it touches."""

    layer: int
    context: Callable[[nn.Module], AbstractContextManager]


def whole_output(model: nn.Module, batch: Batch, _intact: tuple | None) -> tuple[Tensor]:
    """Read all that a model gives: ``[example, output]``."""
    return (model(**batch),)


def outputs_under(
    model: nn.Module,
    batches: Sequence[Any],
    changes: Sequence[Change],
    read: Callable[[nn.Module, Any, tuple | None], tuple] = whole_output,
    *,
    label: str,
) -> list[Float[Tensor, "change ..."]]:
    """Return, for each batch, what the model gives unchanged (first) and under each change.

    ``read(model, batch, intact)`` runs a batch; the first part of what it gives counts, and from
    the second time on it gets as ``intact`` what it gave unchanged.  A change must not touch
    layers before its own.  Batches run side by side, each on one thread with a copy of the model,
    so that results are those of full passes to the last bit, on any number of threads.  ``label``
    is the bar's.
    """

    @torch.inference_mode()
    def job(model: nn.Module, batch: Any) -> Float[Tensor, "change ..."]:
        memory = LayerMemory(model)
        with memory.recording():
            intact = read(model, batch, None)
        found = [intact[0]]
        for layer, context in changes:
            with memory.resumed_at(layer), context(model):
                found.append(read(model, batch, intact)[0])
        return torch.stack(found).cpu()

    return side_by_side(model, batches, job, label)


def side_by_side(
    model: nn.Module, items: Sequence[Item], job: Callable[[nn.Module, Item], Result], label: str
) -> list[Result]:
    """Return ``job(model, item)`` for each item, in order, behind a bar called ``label``.

    Each job computes on one thread, with a copy of the model that is its own for that time, so
    that results do not depend on the number of threads.
    """
    device = next(model.parameters()).device
    threads = min(torch.get_num_threads(), len(items)) if device.type == "cpu" else 1
    free = [model, *(copy.deepcopy(model) for _ in range(threads - 1))]

    def with_own_copy(item: Item, step_done: StepDone) -> Result:
        own = free.pop()
        try:
            result = job(own, item)
        finally:
            free.append(own)
        step_done()
        return result

    jobs = [partial(with_own_copy, item) for item in items]
    return run_jobs(jobs, device, label=label, unit="batch", total=len(items))


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
