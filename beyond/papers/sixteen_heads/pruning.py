"""The experiments of Michel et al. (2019) on fine-tuned classifiers: heads are removed.

The importance of a head is the derivative of the loss by the head's mask (equation 5), in absolute
value.  It gives the order in which heads are pruned.  Pruned heads are zeros in a mask
``[layer, head]``.

In all tables, accuracies and their changes are in percent and percentage points, losses are in
nats, and layers and heads count from 1.  `head_removal` defines when a head is removable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sklearn.preprocessing import normalize
from torch.nn import functional as F

from beyond.papers.common import head_removal
from beyond.papers.common.classifier import Classifier, LabelledBatch, batches
from beyond.papers.common.fine_tune import FineTuningRun, table_by_task
from beyond.papers.common.statistics import mean_interval
from beyond.papers.common.tasks import Pair
from beyond.papers.sixteen_heads import CODE
from helpers.metrics.heads import by_head, head_rows
from helpers.metrics.statistics import Estimate, ratio

SCORED_EXAMPLES = 400  # test examples that score an order or a layer's best head, at most
RANDOM_SCORED_EXAMPLES = 100  # the first of them, which score random orders
IMPORTANCE_EXAMPLES = 200  # training examples for the importance of heads
SHARES = (0, 0.2, 0.4, 0.6, 1)  # of the heads, from none to all
SEED_SHARES = (0.2, 0.4)  # a fifth, and the share that the paper's BERT does not need
RANDOM_ORDERS = 10


def mask_gradients(
    classifier: Classifier, work: Sequence[LabelledBatch], shape: tuple[int, int]
) -> Float[np.ndarray, "example layer head"]:
    """Compute ``dL/dxi`` at a mask of ones, for each example separately.

    L is the cross-entropy of an example, in nats.  Each example has a mask of its own, because with
    one mask for a batch gradients of opposite signs would cancel.

    Parameters
    ----------
    classifier
        The fine-tuned model.
    work
        Batches; the examples of the result are in their order.
    shape
        The numbers of layers and of heads per layer.
    """
    layers, heads = shape

    def gradient(
        model: Classifier, batch: LabelledBatch
    ) -> Float[np.ndarray, "example layer head"]:
        inputs, labels, _ = batch
        mask = torch.ones(layers, len(labels), heads, device=labels.device, requires_grad=True)
        with head_removal.head_mask(model, mask):
            loss = F.cross_entropy(model(**inputs).float(), labels, reduction="sum")
            (slopes,) = torch.autograd.grad(loss, mask)
        return slopes.transpose(0, 1).double().cpu().numpy()

    gradients = head_removal.map_over_model_copies(
        classifier, work, gradient, "importance of heads"
    )
    return np.concatenate(gradients)


def pruning_order(*scores: Float[np.ndarray, "layer head"]) -> Int[np.ndarray, " all_heads"]:
    """Sort the heads (indices into the flat scores) by their scores, the lowest first.

    Ties in the first scores are broken by the next ones, and in the end by position.
    """
    return np.lexsort([score.ravel() for score in reversed(scores)])


def masks_along(
    order: Int[np.ndarray, " all_heads"], shape: tuple[int, int], shares: Sequence[float]
) -> Float[np.ndarray, "mask layer head"]:
    """Make one head mask per share (0-1), in which this share of the heads is 0: the first ones."""
    rank = np.argsort(order)
    masks = [rank >= round(share * len(order)) for share in shares]
    return np.reshape(masks, (len(shares), *shape)).astype(float)


def head_importance(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Compute the importance of each head on each task (equation 5; section 4.1).

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    seed
        Seed of the sample of training examples.

    Returns
    -------
    pandas.DataFrame
        One row per task and head.  Columns: task, layer, head, importance (``E|dL/dxi|`` over
        training examples, in nats) and normalised (divided by the l2 norm of its layer, unless that
        is zero).
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        shape = (run.encoder.layers, run.encoder.heads)
        pairs = head_removal.shuffled(run.task.train, seed)[:IMPORTANCE_EXAMPLES]
        work = list(batches(run.encoder, pairs, max_tokens=run.recipe.max_tokens))
        gradients = mask_gradients(run.classifier, work, shape)
        importance = np.abs(gradients).mean(axis=0)
        return head_rows(*shape, importance=importance, normalised=normalize(importance))

    return table_by_task(runs, "heads-importance", compute, code=CODE, seed=seed)


def one_head_layers(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Measure the change of accuracy when a layer keeps only the best of its heads (section 3.3).

    The best head has the lowest loss on the examples of `split_test` for choices.  It is scored on
    the others.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    seed
        Seed of `split_test`.

    Returns
    -------
    pandas.DataFrame
        One row per task and layer.  Columns: task, layer, head (the best one), and those of
        `accuracy_changes`, on at most `SCORED_EXAMPLES` test examples; and those of
        `mean_output_changes`, with the mean outputs of the other heads in place of zeros.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        layers = run.encoder.layers
        heads = run.encoder.heads
        choosing, scored = head_removal.split_test(run, seed)
        masks = np.ones((layers, heads, layers, heads))
        for layer in range(layers):
            masks[layer, :, layer] = np.eye(heads)  # mask [layer, head] keeps head in its layer
        interventions = head_removal.mask_interventions(masks.reshape(-1, layers, heads))
        scores = head_removal.evaluate_interventions(run, choosing, interventions)
        losses = scores.loss[1:].mean(axis=1).reshape(layers, heads)
        best_heads = losses.argmin(axis=1)
        best_masks = masks[np.arange(layers), best_heads]  # [layer that is masked, layer, head]
        examples = scored[:SCORED_EXAMPLES]
        best = head_removal.mask_interventions(best_masks)
        zeroed = head_removal.evaluate_interventions(run, examples, best)
        means = head_removal.mean_head_outputs(run, seed=seed)
        best_with_means = head_removal.mask_interventions(best_masks, means)
        averaged = head_removal.evaluate_interventions(run, examples, best_with_means)
        table = pd.DataFrame({"layer": range(1, layers + 1), "head": best_heads + 1})
        changes = head_removal.accuracy_changes(zeroed)
        return table.join([changes, head_removal.mean_output_changes(averaged)])

    return table_by_task(runs, "heads-one-head", compute, code=CODE, seed=seed)


def pruning(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Measure the accuracy as more and more heads are pruned, a fifth at a time (section 4.2).

    Heads are pruned in three kinds of order: by ``importance`` (`head_importance`, normalised, the
    lowest first), by ``single ablation`` (`head_removal.single_ablation`, the least costly first;
    ties by the loss), and in `RANDOM_ORDERS` random orders, which are scored on fewer examples.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per task.
    seed
        Seed of the random orders, of `split_test`, and of the scores that give the other orders.

    Returns
    -------
    pandas.DataFrame
        One row per task, order and share of heads.  Columns: task, order, pruned
        (percent of heads), heads (that are left), those of
        `accuracy_changes`, and lead with lead_low and lead_high: the accuracy by importance minus
        that by this order, on the same examples, in percentage points, averaged over 20, 40 and
        60% of the heads and over random orders.  Its 95% interval is over examples (bootstrap); for
        random orders it is that of one more random order (Student's t).
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        importance = head_importance([run], seed=seed)
        ablation = head_removal.single_ablation([run], seed=seed)
        by_importance = pruning_order(by_head(importance, "normalised"))
        by_ablation = pruning_order(-by_head(ablation, "change"), by_head(ablation, "loss_change"))
        orders = [("importance", by_importance), ("single ablation", by_ablation)]
        random_orders = []
        for draw in range(RANDOM_ORDERS):
            order = np.random.default_rng([seed, draw]).permutation(len(importance))
            random_orders.append(("random", order))
        _, scored = head_removal.split_test(run, seed)
        pairs = scored[:SCORED_EXAMPLES]
        table, right = _prune_along(run, orders, SHARES, pairs)
        random_table, random_right = _prune_along(
            run, random_orders, SHARES, pairs[:RANDOM_SCORED_EXAMPLES]
        )
        leads = _lead_table(right, random_right)
        return pd.concat([table, random_table]).merge(leads, on="order")

    return table_by_task(runs, "heads-pruning", compute, code=CODE, seed=seed)


def seed_pruning(runs: Sequence[FineTuningRun], *, seed: int) -> pd.DataFrame:
    """Measure the cost of pruning by importance for each seed of the fine-tuning.

    Parameters
    ----------
    runs
        Fine-tuned classifiers, one per seed (`fine_tune_seeds`).
    seed
        Seed of `head_importance` and of `split_test`.

    Returns
    -------
    pandas.DataFrame
        One row per run and share of heads.  Columns: task, seed, pruned (percent of heads:
        `SEED_SHARES`), heads (that are left) and those of `accuracy_changes`, on all examples of
        `split_test` that score.
    """

    def compute(run: FineTuningRun) -> pd.DataFrame:
        importance = head_importance([run], seed=seed)
        order = [("importance", pruning_order(by_head(importance, "normalised")))]
        _, scored = head_removal.split_test(run, seed)
        table, _ = _prune_along(run, order, SEED_SHARES, scored)
        table = table.drop(columns="order")
        table.insert(0, "seed", run.recipe.seed)
        return table

    return table_by_task(runs, "heads-seeds", compute, code=CODE, seed=seed)


def _prune_along(
    run: FineTuningRun,
    orders: Sequence[tuple[str, Int[np.ndarray, " all_heads"]]],
    shares: Sequence[float],
    pairs: Sequence[Pair],
) -> tuple[pd.DataFrame, Bool[np.ndarray, "order share example"]]:
    """Prune shares of the heads along each order; return the table and which examples are right.

    Each order has the name that is its value in the column order.
    """
    shape = (run.encoder.layers, run.encoder.heads)
    masks = np.concatenate([masks_along(order, shape, shares) for _, order in orders])
    rows = [(name, round(100 * share)) for (name, _), share in product(orders, shares)]
    table = pd.DataFrame(rows, columns=["order", "pruned"])
    table["heads"] = masks.sum(axis=(1, 2)).astype(int)
    # All orders have the masks of no head and of all heads, which are scored once.
    different_masks, mask_rows = np.unique(masks, axis=0, return_inverse=True)
    interventions = head_removal.mask_interventions(different_masks)
    scores = head_removal.evaluate_interventions(run, pairs, interventions)
    chosen = [0, *(1 + mask_rows)]
    scores = head_removal.Scores(scores.right[chosen], scores.loss[chosen])
    right = scores.right[1:].reshape(len(orders), len(shares), -1)
    return table.join(head_removal.accuracy_changes(scores)), right


def _lead_table(
    right: Bool[np.ndarray, "order share example"],
    random_right: Bool[np.ndarray, "order share example"],
) -> pd.DataFrame:
    """Compute the lead of importance over each order; ``right`` is of importance and ablation."""
    partly_pruned = slice(1, -1)  # of `SHARES`
    importance, ablation = right[:, partly_pruned].mean(axis=1)  # [example]
    random_accuracies = random_right[:, partly_pruned].mean(axis=1)  # [order, example]
    same_examples = importance[: random_accuracies.shape[1]]
    random_leads = 100 * (same_examples - random_accuracies).mean(axis=1)
    mean_lead = mean_interval(random_leads)
    # The prediction interval of one more order is wider than that of the mean by this factor.
    half_width = (mean_lead.high - mean_lead.value) * np.sqrt(RANDOM_ORDERS + 1)
    leads = {
        "importance": Estimate(0.0, 0.0, 0.0),
        "single ablation": ratio(100 * (importance - ablation), np.ones(len(importance))),
        "random": Estimate(
            mean_lead.value, mean_lead.value - half_width, mean_lead.value + half_width
        ),
    }
    rows = [{"order": order, **lead.columns("lead")} for order, lead in leads.items()]
    return pd.DataFrame(rows)
