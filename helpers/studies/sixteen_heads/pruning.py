"""The experiments of Michel et al. (2019) on fine-tuned classifiers: heads taken out.

The importance of a head is how much the loss would change if the head were scaled a little
(equation 5); it gives the order in which heads are pruned.  Pruned heads are zeros of a mask
``[layer, head]``.  Every table is over some fine-tuned runs: accuracies and their changes are in
percent, losses in nats; layers and heads count from 1.  What is removable is said in
`head_removal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import false_discovery_control
from sklearn.preprocessing import normalize
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.heads import by_head, head_rows
from helpers.studies.classifier import Batch, Labelled, batches
from helpers.studies.fine_tune import FineTuned, each_run
from helpers.studies.head_removal import (
    Scores,
    changes_of,
    head_mask,
    in_looks,
    masking,
    scores_under,
    side_by_side,
)
from helpers.studies.tasks import Pair

SCORED = 300  # test examples that score what takes long: many heads taken out, in many orders
CHOOSING = 80  # test examples that choose the one head that a layer keeps; others score it
WEIGHED = 200  # training examples behind the importance of heads
SHARES = tuple(step / 10 for step in range(11))
RANDOM_SHARES = (0.0, 0.3, 0.6, 1.0)  # of random orders, which are many
RANDOM_ORDERS = 20


def mask_gradients(
    model: nn.Module,
    work: Sequence[Labelled],
    loss: Callable[[nn.Module, Batch, Tensor], Float[Tensor, ""]],
    shape: tuple[int, int],
    label: str,
    masked: Callable[[nn.Module, Tensor], AbstractContextManager] = head_mask,
) -> list[Float[np.ndarray, "example layer head"]]:
    """Return ``dL/dxi`` at a mask of ones, for each example of each batch by itself.

    ``loss`` is the sum over a batch's examples, each with a mask of its own: in one for all of
    them gradients of opposite signs would cancel.  ``masked`` is the context that scales heads.
    """

    def job(own: nn.Module, batch: Labelled) -> Float[np.ndarray, "example layer head"]:
        inputs, labels, _ = batch
        mask = torch.ones(shape[0], len(labels), shape[1], device=labels.device, requires_grad=True)
        with masked(own, mask):
            (gradient,) = torch.autograd.grad(loss(own, inputs, labels), mask)
        return gradient.transpose(0, 1).double().cpu().numpy()

    return side_by_side(model, work, job, label)


def summed_loss(model: nn.Module, inputs: Batch, labels: Tensor) -> Float[Tensor, ""]:
    """Return a classifier's cross-entropy, the sum over the examples of a batch."""
    return F.cross_entropy(model(**inputs).float(), labels, reduction="sum")


def pruning_order(*scores: Float[np.ndarray, "layer head"]) -> Int[np.ndarray, " head"]:
    """Return the heads as indices into the flat scores, the least important first.

    Ties of the first scores are broken by the next, and in the end by position.
    """
    return np.lexsort([score.ravel() for score in reversed(scores)])


def masks_along(
    order: Int[np.ndarray, " head"], shape: tuple[int, int], shares: Sequence[float]
) -> Float[np.ndarray, "mask layer head"]:
    """Return head masks in which the first ``share`` of ``order`` is zero, for each share (0-1)."""
    kept = [np.argsort(order) >= round(share * len(order)) for share in shares]
    return np.reshape(kept, (len(shares), *shape)).astype(float)


def head_importance(runs: Sequence[FineTuned], *, seed: int) -> pd.DataFrame:
    """Return the importance of each head on each task (equation 5; section 4.1).

    Columns: task, layer, head, importance (``E|dL/dxi|`` over training examples, in nats) and
    normalised (divided by the l2 norm of its layer, if that is not zero).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        shape = run.encoder.layers, run.encoder.heads
        pairs = _drawn(run.task.train, seed)[:WEIGHED]
        work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))
        found = mask_gradients(run.classifier, work, summed_loss, shape, "importance of heads")
        scores = np.abs(np.concatenate(found)).mean(axis=0)
        return head_rows(*shape, importance=scores, normalised=normalize(scores))

    return each_run(runs, "heads-importance", of_task, seed=seed)


def single_ablation(
    runs: Sequence[FineTuned], *, seed: int, tests: Mapping[str, Sequence[Pair]] | None = None
) -> pd.DataFrame:
    """Return what removing each head alone does (section 3.2).

    ``tests`` are examples to score on by the name of the task; left out, all test examples but
    those that choose.  Columns: task, layer, head, those of `head_removal.in_looks` and q_value
    (adjusted for the number of heads of the task).  Of the first look, which all heads share:
    loss_change, change_one and change_other (on one half of its articles and on the other).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        pairs = tests[run.task.name] if tests else split_test(run, seed)[1]
        without_each = (1 - np.eye(layers * heads)).reshape(-1, layers, heads)
        table, shared = in_looks(run, pairs, masking(without_each), "single heads")
        one = _half(pairs[: shared.right.shape[1]], seed)
        own = 100 * (shared.right[1:].astype(float) - shared.right[0])
        rows = head_rows(layers, heads).join(table)
        return rows.assign(
            loss_change=shared.loss[1:].mean(axis=1) - shared.loss[0].mean(),
            change_one=own[:, one].mean(axis=1),
            change_other=own[:, ~one].mean(axis=1),
            q_value=false_discovery_control(table["p_value"]),
        )

    return each_run(runs, "heads-ablation", of_task, seed=seed, tests=tests)


def one_head_layers(runs: Sequence[FineTuned], *, seed: int) -> pd.DataFrame:
    """Return what each layer does with the best of its heads alone (section 3.3).

    The head is the one with the least loss on `CHOOSING` test examples, and is scored on others.
    Columns: task, layer, head, and those of `head_removal.in_looks`.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        choosing, others = split_test(run, seed)
        alone = np.ones((layers, heads, layers, heads))
        for layer in range(layers):  # the only one left in its layer
            alone[layer, :, layer] = np.eye(heads)
        changes = masking(alone.reshape(-1, layers, heads))
        tried = scores_under(run, choosing, changes, "one head a layer")
        best = tried.loss[1:].mean(axis=1).reshape(layers, heads).argmin(axis=1)
        chosen = [changes[layer * heads + head] for layer, head in enumerate(best)]
        found, _ = in_looks(run, others, chosen, "best head a layer")
        return pd.DataFrame({"layer": range(1, layers + 1), "head": best + 1}).join(found)

    return each_run(runs, "heads-one-head", of_task, seed=seed)


def pruning(
    runs: Sequence[FineTuned],
    weights: pd.DataFrame,
    single: pd.DataFrame | None = None,
    *,
    seed: int,
) -> pd.DataFrame:
    """Return accuracy as more and more heads are pruned, a tenth at a time (section 4.2).

    Orders: by ``importance`` (normalised, least first; ``weights`` is `head_importance`) and,
    with `single_ablation`, by ``single ablation`` (least costly first; ties by loss), and at
    ``random`` (``draw`` numbers the draws; at `RANDOM_SHARES`).  Columns: task, order, draw,
    pruned (percent of heads), heads (left), and those of `changes_of`.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        shape = run.encoder.layers, run.encoder.heads
        own = weights[weights["task"] == run.task.name]
        orders = [("importance", 0, pruning_order(by_head(own, "normalised")), SHARES)]
        if single is not None:
            own = single[single["task"] == run.task.name]
            costs = -by_head(own, "change"), by_head(own, "loss_change")
            orders.append(("single ablation", 0, pruning_order(*costs), SHARES))
            for draw in range(RANDOM_ORDERS):
                order = np.random.default_rng([seed, draw]).permutation(shape[0] * shape[1])
                orders.append(("random", draw, order, RANDOM_SHARES))
        masks = np.concatenate([masks_along(order, shape, steps) for *_, order, steps in orders])
        rows = [(*name, round(100 * step)) for *name, _, steps in orders for step in steps]
        table = pd.DataFrame(rows, columns=["order", "draw", "pruned"])
        table["heads"] = masks.sum(axis=(1, 2)).astype(int)
        # The orders begin and end with the same masks.
        different, place = np.unique(masks, axis=0, return_inverse=True)
        pairs = split_test(run, seed)[1][:SCORED]
        scores = scores_under(run, pairs, masking(different), "pruning")
        chosen = [0, *(place.ravel() + 1)]
        return table.join(changes_of(Scores(scores.right[chosen], scores.loss[chosen])))

    given = [table.to_csv() for table in (weights, single) if table is not None]
    return each_run(runs, "heads-pruning", of_task, seed=seed, given=given)


def split_test(run: FineTuned, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return the test examples, a third at most, that choose, and the others, which score."""
    drawn = _drawn(run.task.test, seed)
    count = min(CHOOSING, len(drawn) // 3)
    return drawn[:count], drawn[count:]


def _drawn(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    return [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]


def _half(pairs: Sequence[Pair], seed: int) -> Bool[np.ndarray, " example"]:
    """Return which examples are of one half of the articles; of no known one, each has its own."""
    sources = [pair.source or str(number) for number, pair in enumerate(pairs)]
    article = np.unique(sources, return_inverse=True)[1]
    sizes = np.bincount(article)
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen = order[np.cumsum(sizes[order]) <= max(len(pairs) / 2, sizes[order[0]])]
    return np.isin(article, chosen)
