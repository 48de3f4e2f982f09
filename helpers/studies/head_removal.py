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
from jaxtyping import Bool, Float
from scipy.stats import false_discovery_control
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import equivalence, mcnemar, paired_interval
from helpers.model.sites import Outputs, Softmaxes, Weights, first_layer, owner, replaced, sites
from helpers.studies.classifier import Batch, batches
from helpers.studies.fine_tune import FineTuned, each_run
from helpers.studies.jobs import StepDone, run_jobs
from helpers.studies.tasks import Pair

MARGIN = 2.0  # points of accuracy: less is no change
LEVEL = 0.05
LOOKS = (300, 800)  # at so many examples: most changes do hardly anything
CHOOSING = 80  # test examples, a third at most, that choose what others score
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


def uniform_attention(model: nn.Module, layer: int, head: int | None = None) -> Softmaxes:
    """Let a head, or all heads of a layer, attend uniformly inside the context.

    So Kovaleva et al. (2019, section 4.6) disable a head: it gives the mean value vector of all
    real tokens (of those that the layer lets a query see: a decoder's earlier ones, ModernBERT's
    window).  ``layer`` and ``head`` count from 0; ``model`` is an encoder or a decoder alone.
    """

    def flat(current: int, scores: Weights, softmax: Callable) -> Weights:
        weights, own = softmax(scores), slice(None) if head is None else [head]
        if current == layer:
            visible = (scores > torch.finfo(scores.dtype).min / 2).to(weights)
            uniform = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)  # padding sees none
            weights[:, own] = uniform[:, own]
        return weights

    return reweighted(model, flat)


def reweighted(
    model: nn.Module, change: Callable[[int, Weights, Callable], Weights]
) -> AbstractContextManager[Any]:
    """Change attention inside the context, see `Softmaxes`, of the layers that are computed."""
    return Softmaxes(change, range(first_layer(model), len(sites(model))))


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
    removable = enough & equivalence(*pair, margin=MARGIN / 100, error=error)
    accuracy, loss = 100 * scores.right.mean(axis=1), scores.loss.mean(axis=1)
    return pd.DataFrame({"examples": len(before), "accuracy": accuracy[1:]}).assign(
        change=accuracy[1:] - accuracy[0], ci_low=low, ci_high=high, removable=removable,
        loss_change=loss[1:] - loss[0], p_value=mcnemar(before, after),
    )  # fmt: skip


def in_looks(
    run: FineTuned,
    pairs: Sequence[Pair],
    changes: Sequence[Change],
    label: str,
    looks: Sequence[int] = LOOKS,
) -> tuple[pd.DataFrame, Scores]:
    """Return `changes_of`, on as many of ``pairs`` as each change needs, up to the last look.

    What is shown to be removable at a look is settled; the looks share the 5% between them.
    Beside it, the scores of the first look: the same examples for every change.
    """
    ends = sorted({min(look, len(pairs)) for look in looks})
    left, found, first, settled = np.arange(len(changes)), None, None, []
    for start, end in pairwise([0, *ends]):
        own = [changes[index] for index in left]
        more = scores_under(run, pairs[start:end], own, f"{label}, {end} examples")
        found = Scores(*map(np.hstack, zip(found, more, strict=True))) if found else more
        first = first or found
        table = changes_of(found, looks=len(ends)).set_index(left)
        done = table["removable"].to_numpy() | (end == ends[-1])
        settled.append(table[done])
        if done.all():
            break
        left, found = left[~done], Scores(*(part[[True, *~done]] for part in found))
    return pd.concat(settled).sort_index(), first


def single_ablation(
    runs: Sequence[FineTuned],
    *,
    seed: int,
    tests: Mapping[str, Sequence[Pair]] | None = None,
    looks: Sequence[int] = LOOKS,
) -> pd.DataFrame:
    """Return what zeroing each head alone does (Michel et al. 2019, section 3.2).

    ``tests`` are examples to score on by the name of the task; left out, those of `split_test`.
    Columns: task, layer, head, those of `in_looks` and q_value (adjusted for the number of heads
    of the task).  Of the first look, which all heads share: loss_change, first_change, change_one
    and change_other (on one half of its articles and on the other).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        pairs = tests[run.task.name] if tests else split_test(run, seed)[1]
        without_each = (1 - np.eye(layers * heads)).reshape(-1, layers, heads)
        table, shared = in_looks(run, pairs, masking(without_each), "single heads", looks)
        one = _half(pairs[: shared.right.shape[1]], seed)
        own = 100 * (shared.right[1:].astype(float) - shared.right[0])
        return head_rows(layers, heads).join(table).assign(
            loss_change=shared.loss[1:].mean(axis=1) - shared.loss[0].mean(),
            first_change=own.mean(axis=1),
            change_one=own[:, one].mean(axis=1),
            change_other=own[:, ~one].mean(axis=1),
            q_value=false_discovery_control(table["p_value"]),
        )  # fmt: skip

    return each_run(runs, "heads-ablation", of_task, seed=seed, tests=tests, looks=looks)


def split_test(run: FineTuned, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return the test examples, `CHOOSING` at most, that choose, and the others, which score."""
    drawn = some_of(run.task.test, seed)
    count = min(CHOOSING, len(drawn) // 3)
    return drawn[:count], drawn[count:]


def some_of(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Return examples in random order."""
    return [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]


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


def outputs_under(
    model: nn.Module, batch: Batch, changes: Sequence[Change]
) -> Float[Tensor, "row example output"]:
    """Return what a model gives for a batch unchanged (first), and under each change."""
    passes = passes_under(model, partial(model, **batch), changes)
    return torch.stack([output for output, _ in passes]).cpu()


@torch.inference_mode()
def passes_under(
    model: nn.Module, run: Callable[[], Result], changes: Sequence[Change]
) -> Iterator[tuple[Result, Any]]:
    """Yield what one pass of a model gives unchanged, and under each change, with its context.

    The layers below a change give what they gave unchanged, which halves the time of a sweep over
    all heads.  Results are those of full passes to the last bit.
    """
    layers, given = [own for path, own in model.named_modules() if LAYER.fullmatch(path)], {}
    if len(layers) != len(sites(model)):
        layers = []  # they share their weights (ALBERT), and are one module

    def keep(layer: nn.Module, _args: tuple, output: Any) -> None:
        given[layer] = output

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(keep).remove)
        unchanged = run()
    yield unchanged, None
    for first, context in changes:
        known = {layer: given[layer] for layer in layers[:first]}
        with _giving(model, known), context(model) as seen:
            found = run()
        yield found, seen


def _half(pairs: Sequence[Pair], seed: int) -> Bool[np.ndarray, " example"]:
    """Return which examples are of one half of the articles; of no known one, each has its own."""
    sources = [pair.source or str(number) for number, pair in enumerate(pairs)]
    article = np.unique(sources, return_inverse=True)[1]
    sizes = np.bincount(article)
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen = order[np.cumsum(sizes[order]) <= max(len(pairs) / 2, sizes[order[0]])]
    return np.isin(article, chosen)


@contextmanager
def _giving(model: nn.Module, outputs: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Let a model's first layers give the outputs that are known, uncomputed, in the context."""
    try:
        owner(model).given = len(outputs)
        for module, output in outputs.items():
            module.forward = lambda *_, output=output, **__: output
        yield
    finally:
        del owner(model).given
        for module in outputs:
            module.__dict__.pop("forward", None)
