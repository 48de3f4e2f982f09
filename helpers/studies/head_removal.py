"""What a fine-tuned classifier gets right with heads changed or taken out, and what can go.

Switching off a head of layer 5 leaves layers 1 to 4 as they are.  Their outputs are kept from an
unchanged pass over the same batch, so that a sweep over all heads costs about half of its passes.

*Removable* is what an equivalence test says: two one-sided tests at 5%, over the test examples,
that the accuracy changes by less than `MARGIN`.  A change that is not significant says no such
thing: with few examples none is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.statistics import equivalence, mcnemar, paired_interval
from helpers.model.parallel import StepDone, run_jobs
from helpers.model.sites import sites
from helpers.studies.classifier import Batch, batches
from helpers.studies.fine_tune import FineTuned
from helpers.studies.head_mask import head_mask
from helpers.studies.tasks import Pair

MARGIN = 2.0  # points of accuracy: less is no change
LEVEL = 0.05
LOOKS = (300, 800)  # of so many examples, before that of all: most changes do hardly anything

Item = TypeVar("Item")
Result = TypeVar("Result")


class Change(NamedTuple):
    """A change of a model inside ``context(model)``, and the first layer (from 0) it touches."""

    layer: int
    context: Callable[[nn.Module], AbstractContextManager]


class Scores(NamedTuple):
    """Row 0 is the unchanged classifier, row i + 1 that under change i."""

    right: Bool[np.ndarray, "row example"]
    loss: Float[np.ndarray, "row example"]  # nats


def masking(masks: Float[np.ndarray, "mask layer head"]) -> list[Change]:
    """Return the changes that scale the output of each head by its entry of each mask."""
    firsts = (masks != 1).any(axis=2).argmax(axis=1)
    return [
        Change(int(first), partial(head_mask, mask=torch.from_numpy(mask).float()))
        for first, mask in zip(firsts, masks, strict=True)
    ]


def scores_under(
    run: FineTuned, pairs: Sequence[Pair], changes: Sequence[Change], label: str
) -> Scores:
    """Return which of ``pairs`` a classifier gets right, and its losses, under each change."""
    work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))
    inputs, label = [batch for batch, _, _ in work], f"{label} ({run.task.name})"
    found = outputs_under(run.classifier, inputs, changes, label)
    right = np.zeros((len(changes) + 1, len(pairs)), bool)
    loss = np.zeros(right.shape)
    for (_, labels, order), logits in zip(work, found, strict=True):  # [row, example, label]
        own = labels.cpu().expand(len(logits), -1)
        right[:, order] = (logits.argmax(dim=-1) == own).numpy()
        losses = F.cross_entropy(logits.double().transpose(1, 2), own, reduction="none")
        loss[:, order] = losses.numpy()
    return Scores(right, loss)


def changes_of(scores: Scores, *, looks: int = 1) -> pd.DataFrame:
    """Return a row for each change; of several ``looks`` each has its share of the 5%.

    Columns: examples, accuracy (percent), change (of it, in points) with its 95% interval (ci_low,
    ci_high), removable (see the module; fewer than 150 examples never show that, not even
    unchanged), loss_change (nats) and p_value (`mcnemar`).
    """
    before, after, error = scores.right[0], scores.right[1:], LEVEL / looks
    examples = len(before)
    changed = after.T.astype(float)  # [example, change]
    whole = np.repeat(before[:, None], len(after), axis=1).astype(float)
    each = np.ones_like(changed)
    pair = (changed, each), (whole, each)
    low, high = (100 * bound for bound in paired_interval(*pair))
    # Of n examples none has changed: up to 3 in n still may (the rule of three, at 5%).
    enough = -100 * np.log(error) / examples <= MARGIN
    accuracy, loss = 100 * scores.right.mean(axis=1), scores.loss.mean(axis=1)
    return pd.DataFrame(
        {
            "examples": examples,
            "accuracy": accuracy[1:],
            "change": accuracy[1:] - accuracy[0],
            "ci_low": low,
            "ci_high": high,
            "removable": enough & equivalence(*pair, margin=MARGIN / 100, error=error),
            "loss_change": loss[1:] - loss[0],
            "p_value": mcnemar(before, after),
        }
    )


def in_looks(
    run: FineTuned, pairs: Sequence[Pair], changes: Sequence[Change], label: str
) -> tuple[pd.DataFrame, Scores]:
    """Return `changes_of`, with all of ``pairs`` for every change that needs them.

    What is shown to be removable on the first `LOOKS` of them is settled; everything else is
    scored on all.  The looks share the 5% between them, so that all together err no more often
    than one would.  Beside it, the scores of the first look: the same examples for every change.
    """
    ends = [*(look for look in LOOKS if look < len(pairs)), len(pairs)]
    open_changes, start = np.arange(len(changes)), 0
    found, first, settled = None, None, []
    for end in ends:
        own = [changes[index] for index in open_changes]
        more = scores_under(run, pairs[start:end], own, f"{label}, {end} examples")
        if found is not None:
            more = Scores(*(np.hstack(both) for both in zip(found, more, strict=True)))
        first = first or more
        table = changes_of(more, looks=len(ends)).set_index(open_changes)
        done = table["removable"].to_numpy() | (end == len(pairs))
        settled.append(table[done])
        if done.all():
            break
        found = Scores(*(part[[True, *~done]] for part in more))
        open_changes, start = open_changes[~done], end
    return pd.concat(settled).sort_index(), first


def outputs_under(
    model: nn.Module, batches: Sequence[Batch], changes: Sequence[Change], label: str
) -> list[Float[Tensor, "change example output"]]:
    """Return, for each batch, what the model gives unchanged (first) and under each change.

    A change must not touch layers before its own.  Results are those of full passes to the last
    bit.  ``label`` is the bar's.
    """

    @torch.inference_mode()
    def job(model: nn.Module, batch: Batch) -> Float[Tensor, "change example output"]:
        memory = LayerMemory(model)
        with memory.recording():
            found = [model(**batch)]
        for layer, context in changes:
            with memory.resumed_at(layer), context(model):
                found.append(model(**batch))
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
