"""The experiments of Michel et al. (2019) on fine-tuned classifiers: heads taken out.

Every table is over some fine-tuned runs.  Accuracies and their changes are in percent, losses in
nats; layers and heads count from 1.  What is removable is said in `head_removal`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import false_discovery_control

from helpers.analysis.heads import by_head, head_rows
from helpers.cache import cached_table
from helpers.studies.classifier import Classifier
from helpers.studies.fine_tune import FineTuned, each_run, stacked
from helpers.studies.head_removal import Scores, changes_of, in_looks, masking, scores_under
from helpers.studies.sixteen_heads.importance import (
    by_layer_norm,
    importance,
    mask_gradients,
    masks_along,
    pruning_order,
    with_one_in_layer,
    without_each,
)
from helpers.studies.tasks import Pair

SCORED = 300  # test examples that score what takes long: many heads taken out, in many orders
CHOOSING = 80  # test examples that choose the one head that a layer keeps; others score it
WEIGHED = 200  # training examples behind the importance of heads
COURSE = 100  # the same, for each checkpoint
SHARES = tuple(step / 10 for step in range(11))
RANDOM_SHARES = (0.0, 0.3, 0.6, 1.0)  # of random orders, which are many
RANDOM_ORDERS = 20

Masks = Float[np.ndarray, "mask layer head"]


def head_importance(runs: Sequence[FineTuned], *, seed: int) -> pd.DataFrame:
    """Return the importance of each head on each task (equation 5; section 4.1).

    Columns: task, layer, head, importance (``E|dL/dxi|`` over training examples, in nats) and
    normalised (divided by the l2 norm of its layer).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        return _importance_rows(run, run.classifier, WEIGHED, seed, "importance of heads")

    return each_run(runs, "heads-importance", of_task, seed=seed)


def single_ablation(
    runs: Sequence[FineTuned], *, seed: int, tests: Mapping[str, Sequence[Pair]] | None = None
) -> pd.DataFrame:
    """Return what removing each head alone does (section 3.2).

    ``tests`` are examples to score on by the name of the task; left out, all test examples but
    those that choose.

    Columns: task, layer, head, those of `changes_of` (on as many examples as it takes:
    `head_removal.in_looks`) and q_value (adjusted for the number of heads of the task).  Of the
    first look, which all heads share: loss_change, change_one and change_other (on the one half of
    its articles and on the other).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        pairs = tests[run.task.name] if tests else other_pairs(run, seed)
        changes = [masking(mask) for mask in without_each(layers, heads)]
        table, shared = in_looks(run, pairs, changes, "single heads")
        one = _half(pairs[: shared.right.shape[1]], seed)
        own = 100 * (shared.right[1:].astype(float) - shared.right[0])
        rows = head_rows(layers, heads).join(table)
        return rows.assign(
            loss_change=shared.loss[1:].mean(axis=1) - shared.loss[0].mean(),
            change_one=own[:, one].mean(axis=1),
            change_other=own[:, ~one].mean(axis=1),
            q_value=false_discovery_control(table["p_value"]),
        )

    digest = hashlib.sha256(repr(tests).encode()).hexdigest() if tests else ""
    return each_run(runs, "heads-ablation", of_task, seed=seed, tests=digest)


def one_head_layers(runs: Sequence[FineTuned], *, seed: int) -> pd.DataFrame:
    """Return what each layer does with the best of its heads alone (section 3.3).

    The head is the one with the least loss on `CHOOSING` test examples, and is scored on others
    (`head_removal.in_looks`), so that it is not favoured by its choice.  Columns: task, layer,
    head, and those of `changes_of`.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        masks = with_one_in_layer(layers, heads)  # layer by layer
        tried = _scores(run, masks, choosing_pairs(run, seed), "one head a layer")
        best = tried.loss[1:].mean(axis=1).reshape(layers, heads).argmin(axis=1)
        chosen = [masking(mask) for mask in masks[np.arange(layers) * heads + best]]
        found, _ = in_looks(run, other_pairs(run, seed), chosen, "best head a layer")
        return pd.DataFrame({"layer": range(1, layers + 1), "head": best + 1}).join(found)

    return each_run(runs, "heads-one-head", of_task, seed=seed)


def pruning(
    runs: Sequence[FineTuned], weights: pd.DataFrame, single: pd.DataFrame, *, seed: int
) -> pd.DataFrame:
    """Return accuracy as more and more heads are pruned, a tenth at a time (section 4.2).

    Orders: by ``importance`` (normalised, least first; ``weights`` is `head_importance`), by
    ``single ablation`` (those whose removal costs least first; ties by loss), and at ``random``
    (``draw`` numbers the draws; at `RANDOM_SHARES`).  Columns: task, order, draw, pruned
    (percent of heads), heads (left), and those of `changes_of`.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        shape = run.encoder.layers, run.encoder.heads
        mine = weights[weights["task"] == run.task.name]
        own = single[single["task"] == run.task.name]
        costs = -by_head(own, "change"), by_head(own, "loss_change")
        orders = [
            ("importance", 0, pruning_order(by_head(mine, "normalised")), SHARES),
            ("single ablation", 0, pruning_order(*costs), SHARES),
        ]
        for draw in range(RANDOM_ORDERS):
            generator = np.random.default_rng([seed, draw])
            order = generator.permutation(shape[0] * shape[1])
            orders.append(("random", draw, order, RANDOM_SHARES))
        masks = [masks_along(order, shape, shares) for _, _, order, shares in orders]
        # The orders begin and end with the same masks.
        different, place = np.unique(np.concatenate(masks), axis=0, return_inverse=True)
        scores = _scores(run, different, scored_pairs(run, seed), "pruning")
        rows = [0, *(place.ravel() + 1)]
        frame = pd.DataFrame(
            [
                (name, draw, round(100 * share), int(mask.sum()))
                for (name, draw, _, shares), steps in zip(orders, masks, strict=True)
                for share, mask in zip(shares, steps, strict=True)
            ],
            columns=["order", "draw", "pruned", "heads"],
        )
        return frame.join(changes_of(Scores(scores.right[rows], scores.loss[rows])))

    given = [weights.to_csv(), single.to_csv()]
    return each_run(runs, "heads-pruning", of_task, seed=seed, given=given)


def heads_over_seeds(runs: Mapping[int, Sequence[FineTuned]], *, seed: int) -> pd.DataFrame:
    """Return `head_importance` and `single_ablation` of runs by the seed of their fine-tuning.

    Columns: seed, and those of both.
    """
    parts = {
        own: head_importance(some, seed=seed).merge(single_ablation(some, seed=seed))
        for own, some in runs.items()
    }
    return stacked(parts, "seed")


def pruning_over_seeds(
    runs: Mapping[int, Sequence[FineTuned]], heads: pd.DataFrame, *, seed: int
) -> pd.DataFrame:
    """Return what is left as heads are pruned by importance, for each seed of the fine-tuning.

    ``heads`` is `heads_over_seeds`.  Columns: seed, task, whole (accuracy on all test examples,
    percent), pruned (percent of heads), and those of `changes_of`.
    """

    def of_task(run: FineTuned, own: pd.DataFrame) -> pd.DataFrame:
        scores = by_head(own[own["task"] == run.task.name], "normalised")
        masks = masks_along(pruning_order(scores), scores.shape, SHARES)
        table = changes_of(_scores(run, masks, scored_pairs(run, seed), "pruning"))
        table.insert(0, "whole", 100 * run.accuracy)
        table.insert(1, "pruned", [round(100 * share) for share in SHARES])
        return table

    parts = {}
    for number, some in runs.items():
        own = heads[heads["seed"] == number]
        parts[number] = each_run(
            some, "pruning-seeds", partial(of_task, own=own), seed=seed, given=own.to_csv()
        )  # fmt: skip
    return stacked(parts, "seed")


def importance_course(run: FineTuned, *, seed: int) -> pd.DataFrame:
    """Return the importance of heads at each checkpoint of a fine-tuning (section 6).

    Columns: trained (percent of the steps; 0 is the start), layer, head, importance, normalised.
    """

    def compute() -> pd.DataFrame:
        count = run.recipe.checkpoints
        frames = {}
        for number in range(count + 1):
            label = f"importance, checkpoint {number}"
            rows = _importance_rows(run, run.checkpoint(number), COURSE, seed, label)
            frames[100 * number / count] = rows
        return stacked(frames, "trained")

    return cached_table(
        "importance-course", compute, depends_on={"run": run.folder.name, "seed": seed}
    )


def _scores(run: FineTuned, masks: Masks, pairs: Sequence[Pair], what: str) -> Scores:
    return scores_under(run, pairs, [masking(mask) for mask in masks], what)


def choosing_pairs(run: FineTuned, seed: int) -> list[Pair]:
    """Return the test examples, a third at most, that choose what others score."""
    return _drawn(run.task.test, seed)[: min(CHOOSING, len(run.task.test) // 3)]


def other_pairs(run: FineTuned, seed: int) -> list[Pair]:
    """Return the test examples that choose nothing, in the order in which they score."""
    return _drawn(run.task.test, seed)[len(choosing_pairs(run, seed)) :]


def scored_pairs(run: FineTuned, seed: int) -> list[Pair]:
    """Return the first `SCORED` of them, which score a run with many heads taken out."""
    return other_pairs(run, seed)[:SCORED]


def _drawn(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    return [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]


def articles_of(pairs: Sequence[Pair]) -> Int[np.ndarray, " example"]:
    """Return the number of each example's article, or its own where that is not known."""
    sources = [pair.source or str(number) for number, pair in enumerate(pairs)]
    return np.unique(sources, return_inverse=True)[1]


def _half(pairs: Sequence[Pair], seed: int) -> Bool[np.ndarray, " example"]:
    """Return which examples are of one half of the articles, or one half of them all."""
    article = articles_of(pairs)
    sizes = np.bincount(article)
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen = order[np.cumsum(sizes[order]) <= max(len(pairs) / 2, sizes[order[0]])]
    return np.isin(article, chosen)


def _importance_rows(
    run: FineTuned, classifier: Classifier, count: int, seed: int, label: str
) -> pd.DataFrame:
    pairs, longest = _drawn(run.task.train, seed)[:count], run.recipe.max_tokens
    found = mask_gradients(classifier, run.encoder, pairs, max_tokens=longest, label=label)
    scores = importance(found)
    return head_rows(*scores.shape, importance=scores, normalised=by_layer_norm(scores))
