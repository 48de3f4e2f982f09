"""Heads scaled, or made uniform, and what a fine-tuned classifier still gets right.

A forward pre-hook on the output projection (`model.sites`) scales each head's output by its entry
of the mask, ``xi[layer, head] * output`` (Michel et al. 2019, section 2.3).  A mask of ones changes
no bit; a zero does what removing the head's columns of the projection does.

*Removable* is what an equivalence test says: two one-sided tests at 5%, over the test examples,
that the accuracy changes by less than `MARGIN`.  Of few examples no change is significant.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.statistics import equivalence, mcnemar, paired_interval
from helpers.model.sites import Outputs, Site, owner, replaced, sites
from helpers.studies.classifier import Batch, batches
from helpers.studies.fine_tune import FineTuned
from helpers.studies.jobs import StepDone, run_jobs
from helpers.studies.tasks import Pair

MARGIN = 2.0  # points of accuracy: less is no change
LEVEL = 0.05
LOOKS = (300, 800)  # of so many examples, before that of all: most changes do hardly anything
LAYER = re.compile(r"\D+\.\d+")  # the path of a layer; what is in it has a longer one

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


@contextmanager
def head_mask(
    model: nn.Module, mask: Float[Tensor, "layer *example head"], *, cross: bool = False
) -> Iterator[None]:
    """Scale the output of each head by its entry of ``mask`` inside the context.

    ``mask`` may have a row for each example of the batch; outputs are differentiable in it.
    ``model`` is an encoder or a decoder alone; ``cross``: a decoder's attention to the encoder.
    ModelError where the model's attention has parts that are not known.
    """

    def scaled(layer: int, outputs: Outputs) -> Outputs:
        return outputs * mask[layer].to(outputs)[..., None, :, None]  # [(example), 1, head, 1]

    with replaced(model, sites(model, cross=cross), scaled):
        yield


@contextmanager
def uniform_attention(model: nn.Module, layer: int, head: int | None = None) -> Iterator[None]:
    """Let a head, or all heads of a layer, attend uniformly inside the context.

    So Kovaleva et al. (2019, section 4.6) disable a head: it gives the mean value vector of all
    real tokens (of those that the layer lets a query see: a decoder's earlier ones, ModernBERT's
    window).  ``layer`` and ``head`` count from 0; ``model`` is an encoder or a decoder alone.
    ModelError where the model's attention has parts that are not known.
    """
    layers = sites(model)
    site, seen = layers[layer], {}
    chosen = torch.ones(site.heads).bool() if head is None else torch.arange(site.heads) == head

    def keep_padding(_model: nn.Module, _args: tuple, kwargs: dict[str, Any]) -> None:
        seen["mask"] = kwargs["attention_mask"]

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
        hooks.callback(site.values.register_forward_hook(keep_values).remove)  # noqa: PD011
        with replaced(model, layers, averaged):
            yield


def _uniform_outputs(site: Site, values: Outputs, mask: Int[Tensor, "batch key"]) -> Outputs:
    """Return what uniform attention over the visible real tokens gives, for every head."""
    positions = torch.arange(values.shape[1], device=values.device)
    distance = positions - positions[:, None]  # [query, key]
    visible = mask.bool()[:, None, :].expand(-1, len(positions), -1)  # [batch, query, key]
    if getattr(site.inner, "is_causal", False):
        visible = visible & (distance <= 0)
    if getattr(site.inner, "sliding_window", None):
        # The module holds its half-width plus one, for kernels that count it exclusively.
        visible = visible & (distance.abs() < site.inner.sliding_window)
    weights = visible.to(values)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)  # padding may see nothing
    return torch.einsum("bqk,bkhw->bqhw", weights, values)


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
    job, inputs = partial(outputs_under, changes=changes), [batch for batch, _, _ in work]
    found = side_by_side(run.classifier, inputs, job, f"{label} ({run.task.name})")
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
    ci_high), removable (see the module; fewer than 150 examples never show that), loss_change
    (nats) and p_value (`mcnemar`).
    """
    before, after, error = scores.right[0], scores.right[1:], LEVEL / looks
    changed = after.T.astype(float)  # [example, change]
    each = np.ones_like(changed)
    pair = (changed, each), (before[:, None] * each, each)
    low, high = (100 * bound for bound in paired_interval(*pair))
    # Of n examples none has changed: up to 3 in n still may (the rule of three, at 5%).
    enough = -100 * np.log(error) / len(before) <= MARGIN
    accuracy, loss = 100 * scores.right.mean(axis=1), scores.loss.mean(axis=1)
    return pd.DataFrame(
        {
            "examples": len(before),
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

    What is shown to be removable on the first `LOOKS` of them is settled; the looks share the 5%
    between them.  Beside it, the scores of the first look: the same examples for every change.
    """
    ends = [*(look for look in LOOKS if look < len(pairs)), len(pairs)]
    left, found, first, settled = np.arange(len(changes)), None, None, []
    for start, end in pairwise([0, *ends]):
        own = [changes[index] for index in left]
        more = scores_under(run, pairs[start:end], own, f"{label}, {end} examples")
        found = Scores(*map(np.hstack, zip(found, more, strict=True))) if found else more
        first = first or found
        table = changes_of(found, looks=len(ends)).set_index(left)
        done = table["removable"].to_numpy() | (end == len(pairs))
        settled.append(table[done])
        if done.all():
            break
        left, found = left[~done], Scores(*(part[[True, *~done]] for part in found))
    return pd.concat(settled).sort_index(), first


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
        own = free.pop()  # should the job fail, all others end
        result = job(own, item)
        free.append(own)
        step_done()
        return result

    jobs = [partial(with_own_copy, item) for item in items]
    return run_jobs(jobs, device, label=label, unit="batch", total=len(items))


@torch.inference_mode()
def outputs_under(
    model: nn.Module, batch: Batch, changes: Sequence[Change]
) -> Float[Tensor, "row example output"]:
    """Return what a model gives for a batch unchanged (first), and under each change.

    The layers below a change give what they gave unchanged, which halves the time of a sweep over
    all heads.  Results are those of full passes to the last bit.
    """
    layers, given = _layers(model), {}

    def keep(layer: nn.Module, _args: tuple, output: Any) -> None:
        given[layer] = output

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(keep).remove)
        found = [model(**batch)]
    for first, context in changes:
        with _giving({layer: given[layer] for layer in layers[:first]}), context(model):
            found.append(model(**batch))
    return torch.stack(found).cpu()


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return a model's layers; none where they share their weights (ALBERT), and are one module.

    Nor where heads have temperatures: these are counted from the first layer.
    """
    layers = [module for path, module in model.named_modules() if LAYER.fullmatch(path)]
    whole = len(layers) == len(sites(model)) and not hasattr(owner(model), "temperatures")
    return layers if whole else []


@contextmanager
def _giving(outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Let modules give the outputs that are known, uncomputed, inside the context."""
    try:
        for module, output in outputs.items():
            module.forward = lambda *_, output=output, **__: output
        yield
    finally:
        for module in outputs:
            module.__dict__.pop("forward", None)
