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
from itertools import chain

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sklearn.preprocessing import normalize
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.heads import by_head, head_rows
from helpers.analysis.statistics import Estimate, mean_interval, ratio
from helpers.studies import head_removal
from helpers.studies.classifier import Batch, Labelled, batches
from helpers.studies.fine_tune import FineTuned, each_run
from helpers.studies.tasks import Pair

SCORED, SHARED = 800, 150  # test examples that score an order; those that random orders have, too
WEIGHED = 200  # training examples behind the importance of heads
SHARES = tuple(step / 10 for step in range(11))
STEPS = SHARES[:7]  # of random orders; of the others `SHARES[-1]`, too: no head at all
SEED_STEPS = (0.2, 0.4)  # a fifth, and what the paper's BERT can do without
RANDOM_ORDERS = 10


def mask_gradients(
    model: nn.Module,
    work: Sequence[Labelled],
    loss: Callable[[nn.Module, Batch, Tensor], Float[Tensor, ""]],
    shape: tuple[int, int],
    label: str,
    masked: Callable[[nn.Module, Tensor], AbstractContextManager] = head_removal.head_mask,
) -> Float[np.ndarray, "example layer head"]:
    """Return ``dL/dxi`` at a mask of ones, for each example by itself, batch by batch.

    ``loss`` is the sum over a batch's examples, each with a mask of its own: in one for all of
    them gradients of opposite signs would cancel.  ``masked`` is the context that scales heads.
    """

    def job(own: nn.Module, batch: Labelled) -> Float[np.ndarray, "example layer head"]:
        inputs, labels, _ = batch
        mask = torch.ones(shape[0], len(labels), shape[1], device=labels.device, requires_grad=True)
        with masked(own, mask):
            (gradient,) = torch.autograd.grad(loss(own, inputs, labels), mask)
        return gradient.transpose(0, 1).double().cpu().numpy()

    return np.concatenate(head_removal.side_by_side(model, work, job, label))


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
        pairs = head_removal.some_of(run.task.train, seed)[:WEIGHED]
        work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))
        found = mask_gradients(run.classifier, work, summed_loss, shape, "importance of heads")
        scores = np.abs(found).mean(axis=0)
        return head_rows(*shape, importance=scores, normalised=normalize(scores))

    return each_run(runs, "heads-importance", of_task, seed=seed)


def one_head_layers(runs: Sequence[FineTuned], *, seed: int) -> pd.DataFrame:
    """Return what each layer does with the best of its heads alone (section 3.3).

    The head is the one with the least loss on `CHOOSING` test examples, and is scored on others.
    Columns: task, layer, head, and those of `head_removal.in_looks`.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        choosing, others = head_removal.split_test(run, seed)
        alone = np.ones((layers, heads, layers, heads))
        for layer in range(layers):  # the only one left in its layer
            alone[layer, :, layer] = np.eye(heads)
        changes = head_removal.masking(alone.reshape(-1, layers, heads))
        tried = head_removal.scores_under(run, choosing, changes, "one head a layer")
        best = tried.loss[1:].mean(axis=1).reshape(layers, heads).argmin(axis=1)
        chosen = [changes[layer * heads + head] for layer, head in enumerate(best)]
        found, _ = head_removal.in_looks(run, others, chosen, "best head a layer")
        return pd.DataFrame({"layer": range(1, layers + 1), "head": best + 1}).join(found)

    return each_run(runs, "heads-one-head", of_task, seed=seed)


def pruning(
    runs: Sequence[FineTuned], weights: pd.DataFrame, single: pd.DataFrame, *, seed: int
) -> pd.DataFrame:
    """Return accuracy as more and more heads are pruned, a tenth at a time (section 4.2).

    Orders: by ``importance`` (normalised, least first; ``weights`` is `head_importance`), by
    ``single ablation`` (least costly first; ties by loss; ``single`` is that table) and at
    ``random`` (``draw`` numbers the draws, on fewer examples).  Columns: task, order, draw, pruned
    (percent of heads), heads (left), those of `changes_of`, and lead (points by which accuracy by
    importance is above this order's on the same examples, the mean over `STEPS` and draws) with
    its 95% interval: over examples (bootstrap), or that of one more random order (Student's t).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        own, alone = (table[table["task"] == run.task.name] for table in (weights, single))
        costs = -by_head(alone, "change"), by_head(alone, "loss_change")
        orders = {
            ("importance", 0): pruning_order(by_head(own, "normalised")),
            ("single ablation", 0): pruning_order(*costs),
        }
        generators = [np.random.default_rng([seed, draw]) for draw in range(RANDOM_ORDERS)]
        drawn = {("random", n): each.permutation(len(own)) for n, each in enumerate(generators)}
        pairs = head_removal.split_test(run, seed)[1][:SCORED]
        table, right = _along(run, orders, (*STEPS, SHARES[-1]), pairs)
        chance, by_chance = _along(run, drawn, STEPS, pairs[:SHARED])
        means = [own[1 : len(STEPS)].mean(axis=0) for own in (*right, *by_chance)]
        ahead = [100 * (means[0][: len(mean)] - mean) for mean in means]  # [example]
        leads = [ratio(own, np.ones(len(own)), seed=seed) for own in ahead[: len(orders)]]
        mean, _, high = mean_interval([own.mean() for own in ahead[len(orders) :]])
        one_more = (high - mean) * np.sqrt(RANDOM_ORDERS + 1)  # as much wider than the mean's
        leads.append(Estimate(mean, mean - one_more, mean + one_more))
        by_order = pd.DataFrame([lead.columns("lead") for lead in leads])
        by_order["order"] = ["importance", "single ablation", "random"]
        return pd.concat([table, chance]).merge(by_order, on="order")

    given = [table.to_csv() for table in (weights, single)]
    return each_run(runs, "heads-pruning", of_task, seed=seed, given=given)


def seed_pruning(by_task: Sequence[Sequence[FineTuned]], *, seed: int) -> pd.DataFrame:
    """Return what pruning by importance costs each of a task's seeds, on all that score.

    Columns: task, seed, start (accuracy of all test examples, percent), pruned (percent of heads:
    `SEED_STEPS`), heads (left) and those of `changes_of`.  A task of one seed is left out where
    others have several.
    """

    def of_run(run: FineTuned) -> pd.DataFrame:
        weights = head_importance([run], seed=seed)
        order = {("importance", 0): pruning_order(by_head(weights, "normalised"))}
        table, _ = _along(run, order, SEED_STEPS, head_removal.split_test(run, seed)[1])
        table = table.drop(columns=["order", "draw"])
        return table.assign(seed=run.recipe.seed, start=100 * run.accuracy)

    several = [some for some in by_task if len(some) > 1] or by_task
    return each_run([*chain.from_iterable(several)], "heads-seeds", of_run, seed=seed)


def _along(
    run: FineTuned, orders: Mapping[tuple, np.ndarray], steps: Sequence[float], pairs: list[Pair]
) -> tuple[pd.DataFrame, Bool[np.ndarray, "order step example"]]:
    """Return a row for each step of each order, and which examples are right there."""
    shape = run.encoder.layers, run.encoder.heads
    masks = np.concatenate([masks_along(order, shape, steps) for order in orders.values()])
    rows = [(*name, round(100 * step)) for name in orders for step in steps]
    table = pd.DataFrame(rows, columns=["order", "draw", "pruned"])
    table["heads"] = masks.sum(axis=(1, 2)).astype(int)
    # The orders begin and end with the same masks.
    different, place = np.unique(masks, axis=0, return_inverse=True)
    scores = head_removal.scores_under(run, pairs, head_removal.masking(different), "pruning")
    scores = head_removal.Scores(*(part[[0, *place.ravel() + 1]] for part in scores))
    right = scores.right[1:].reshape(len(orders), len(steps), -1)
    return table.join(head_removal.changes_of(scores)), right
