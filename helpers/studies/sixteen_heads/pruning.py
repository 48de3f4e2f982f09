"""Which heads matter: the experiments of Michel et al. (2019) on a study's fine-tuned tasks.

Every table is over the runs of `fine_tuned`.  Accuracies and their changes are in
percent, losses in nats; layers and heads count from 1 in tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import false_discovery_control

from helpers.analysis.heads import head_rows
from helpers.analysis.statistics import mcnemar
from helpers.cache import cached_table
from helpers.studies.fine_tune import FineTuned
from helpers.studies.sixteen_heads import importance
from helpers.studies.sixteen_heads import importance as gradients
from helpers.studies.sixteen_heads.importance import Scores, by_layer_norm, scores_under
from helpers.studies.tasks import Pair
from helpers.study import Study

SCORED = 160  # test examples that a change is scored on
CHOOSING = 80  # others, which choose the one head that a layer keeps
WEIGHED = 200  # training examples behind the importance of heads
COURSE = 100  # the same, for each checkpoint
SHARES = tuple(step / 10 for step in range(1, 11))
RANDOM_ORDERS = 2


def head_importance(study: Study, runs: Sequence[FineTuned]) -> pd.DataFrame:
    """Return the importance of each head on each task (equation 5; section 4.1).

    Columns: task, layer, head, importance (``E|dL/dxi|`` over training examples, in nats) and
    normalised (divided by the l2 norm of its layer).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        found = gradients.mask_gradients(
            run.classifier, run.encoder, _weighed(run, study.seed, WEIGHED),
            max_tokens=run.recipe.max_tokens,
        )  # fmt: skip
        return _importance_rows(importance.importance(found))

    return _each(study, runs, "importance", of_task, {"examples": WEIGHED})


def single_ablation(study: Study, runs: Sequence[FineTuned]) -> pd.DataFrame:
    """Return what removing each head alone does (section 3.2).

    Columns: task, layer, head, examples, accuracy (without the head), change (of accuracy, in
    points), loss_change, p_value (sign test, paired by example) and q_value (adjusted for the
    number of heads of the task).
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        scores = _scores(study, run, importance.without_each(layers, heads), "single heads")
        table = head_rows(layers, heads).join(_changes(scores))
        return table.assign(q_value=false_discovery_control(table["p_value"]))

    return _each(study, runs, "ablation", of_task, {"examples": SCORED})


def one_head_layers(study: Study, runs: Sequence[FineTuned]) -> pd.DataFrame:
    """Return what each layer does with the best of its heads alone (section 3.3).

    The head is the one with the least loss on ``CHOOSING`` test examples, and is scored on
    others, so that it is not favoured by its choice.  Columns: task, layer, head, examples,
    accuracy, change, loss_change, p_value.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        layers, heads = run.encoder.layers, run.encoder.heads
        masks = importance.with_one_in_layer(layers, heads)
        _, choosing = _test_parts(run, study.seed)
        tried = _scores(study, run, masks, "one head a layer", pairs=choosing)
        best = tried.loss[1:].mean(axis=1).reshape(layers, heads).argmin(axis=1)
        chosen = masks.reshape(layers, heads, layers, heads)[range(layers), best]
        scores = _scores(study, run, chosen, "best head a layer")
        table = pd.DataFrame({"layer": range(1, layers + 1), "head": best + 1})
        return table.join(_changes(scores))

    return _each(study, runs, "one-head", of_task, {"examples": [SCORED, CHOOSING]})


def pruning(
    study: Study, runs: Sequence[FineTuned], weights: pd.DataFrame, single: pd.DataFrame
) -> pd.DataFrame:
    """Return accuracy as more and more heads are pruned, a tenth at a time (section 4.2).

    Orders: by ``importance`` (normalised, least first), by ``single ablation`` (those whose
    removal costs least first; ties by loss), and at ``random`` (``draw`` numbers the draws).
    Columns: task, order, draw, pruned (percent of heads), heads (left), examples, accuracy,
    change, loss_change, p_value.
    """

    def of_task(run: FineTuned) -> pd.DataFrame:
        shape = run.encoder.layers, run.encoder.heads
        mine = weights[weights["task"] == run.task.name]
        own = single[single["task"] == run.task.name]
        orders = [
            ("importance", 0, importance.pruning_order(as_array(mine, "normalised", shape))),
            (
                "single ablation",
                0,
                importance.pruning_order(
                    -as_array(own, "change", shape), as_array(own, "loss_change", shape)
                ),
            ),
        ]
        for draw in range(RANDOM_ORDERS):
            generator = np.random.default_rng([study.seed, draw])
            orders.append(("random", draw, generator.permutation(shape[0] * shape[1])))
        masks = [importance.masks_along(order, shape, (0, *SHARES)) for _, _, order in orders]
        # The orders begin and end with the same masks.
        different, place = np.unique(np.concatenate(masks), axis=0, return_inverse=True)
        scores = _scores(study, run, different, "pruning").rows([0, *(place.ravel() + 1)])
        frame = pd.DataFrame(
            [
                (name, draw, round(100 * share), int(mask.sum()))
                for (name, draw, _), steps in zip(orders, masks, strict=True)
                for share, mask in zip((0, *SHARES), steps, strict=True)
            ],
            columns=["order", "draw", "pruned", "heads"],
        )
        return frame.join(_changes(scores))

    sizes = {"examples": SCORED, "weighed": WEIGHED, "draws": RANDOM_ORDERS}
    return _each(study, runs, "pruning", of_task, sizes)


def importance_course(study: Study, run: FineTuned) -> pd.DataFrame:
    """Return the importance of heads at each checkpoint of a fine-tuning (section 6).

    Columns: trained (percent of the steps; 0 is the start), layer, head, importance, normalised.
    """

    def compute() -> pd.DataFrame:
        pairs = _weighed(run, study.seed, COURSE)
        frames = []
        for number in range(run.recipe.checkpoints + 1):
            found = gradients.mask_gradients(
                run.checkpoint(number), run.encoder, pairs, max_tokens=run.recipe.max_tokens,
                label=f"importance, checkpoint {number}",
            )  # fmt: skip
            rows = _importance_rows(importance.importance(found))
            rows.insert(0, "trained", 100 * number / run.recipe.checkpoints)
            frames.append(rows)
        return pd.concat(frames, ignore_index=True)

    depends = {"run": run.folder.name, "examples": COURSE, "seed": study.seed}
    return cached_table(
        "importance-course",
        compute,
        depends_on=depends,
        code="studies.sixteen_heads.pruning.importance_course",
    )


def _each(
    study: Study,
    runs: Sequence[FineTuned],
    name: str,
    of_task: Callable[[FineTuned], pd.DataFrame],
    sizes: dict[str, Any],
) -> pd.DataFrame:
    """Return a table of all runs, the task in its first column; each run's part is kept."""
    frames = {
        run.task.name: cached_table(
            f"heads-{name}",
            lambda run=run: of_task(run),
            depends_on={"run": run.folder.name, "seed": study.seed, **sizes},
            code=f"studies.sixteen_heads.pruning.{of_task.__qualname__.partition('.')[0]}",
        )
        for run in runs
    }
    table = pd.concat(frames, names=["task", None]).reset_index("task")
    return table.reset_index(drop=True)


def _scores(
    study: Study,
    run: FineTuned,
    masks: Float[np.ndarray, "mask layer head"],
    what: str,
    *,
    pairs: Sequence[Pair] | None = None,
) -> Scores:
    scored, _ = _test_parts(run, study.seed)
    return scores_under(
        run.classifier, run.encoder, scored if pairs is None else pairs, masks,
        max_tokens=run.recipe.max_tokens, label=f"{what} ({run.task.name})",
    )  # fmt: skip


def _changes(scores: Scores) -> pd.DataFrame:
    """Return the columns that describe each row but the first, the unchanged classifier."""
    accuracy, loss = 100 * scores.right.mean(axis=1), scores.loss.mean(axis=1)
    return pd.DataFrame(
        {
            "examples": scores.right.shape[1],
            "accuracy": accuracy[1:],
            "change": accuracy[1:] - accuracy[0],
            "loss_change": loss[1:] - loss[0],
            "p_value": mcnemar(scores.right[0], scores.right[1:]),
        }
    )


def _test_parts(run: FineTuned, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return test examples to score on, and others to choose with."""
    test = run.task.test
    order = np.random.default_rng(seed).permutation(len(test))
    cut = min(SCORED, -(-2 * len(test) // 3))
    return [test[i] for i in order[:cut]], [test[i] for i in order[cut : cut + CHOOSING]]


def _weighed(run: FineTuned, seed: int, count: int) -> list[Pair]:
    train = run.task.train
    order = np.random.default_rng(seed).permutation(len(train))
    return [train[i] for i in order[:count]]


def _importance_rows(scores: Float[np.ndarray, "layer head"]) -> pd.DataFrame:
    return head_rows(*scores.shape, importance=scores, normalised=by_layer_norm(scores))


def as_array(
    table: pd.DataFrame, column: str, shape: tuple[int, int] | None = None
) -> Float[np.ndarray, "layer head"]:
    """Return a column of a table of heads as a map; ``shape`` is checked if given."""
    values = table.pivot(index="layer", columns="head", values=column).to_numpy(float)
    assert shape in (None, values.shape)
    return values
