"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019).

Claims are measured only on the tasks that the model learns and needs its heads for: without any
head its accuracy falls significantly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.tables import (
    Tables,
    estimate_in,
    rows_of,
    rows_where,
    select_or_raise,
    with_bounds,
)
from helpers.metrics.statistics import Estimate, wilson_proportion, with_seed_noise
from helpers.studies.common.head_removal import MARGIN
from helpers.studies.common.tasks import estimates_by_task, learned_rows, smallest_over_tasks
from helpers.studies.michel2019.data_sets import ALL_HEADS
from helpers.studies.michel2019.pruning import RANDOM_ORDERS

MICHEL = Family("Michel et al.")
claim = MICHEL.claim
COST_LEVEL = 0.05  # the level at which a task is said to need the heads of the model


@claim(
    "Michel et al. 3.2",
    "In fine-tuning tasks (made up by default), most heads can be removed one at a time",
    how_measured=(
        "share of heads that are removable, over the tasks that the model learns and needs its "
        "heads for (output zeroed, accuracy within two percentage points by an equivalence test at "
        "5%, on at most 300 test examples); Wilson's interval over heads; the threshold, half, is "
        "ours: the paper counts 88 of 96 heads of a translation model without a change of p < 0.01"
    ),
    above=0.5,
    unit="heads",
)
def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable one at a time, over all tasks."""
    removable = _rows_that_need_heads(tables, "ablation", "removable")["removable"]
    return wilson_proportion(removable.sum(), len(removable))


@claim(
    "Michel et al. 3.3",
    "In fine-tuning tasks (made up by default), most layers can do with one head",
    how_measured=(
        "share of the layers of all tasks that the model learns and needs its heads for whose "
        "other heads are shown to be removable (accuracy within two percentage points, equivalence "
        "test at 5%); the lower bound is Wilson's, the upper bound counts all layers that are not "
        "shown to lose two points; threshold: half"
    ),
    above=0.5,
    unit="layers",
)
def share_of_layers_with_one_head(tables: Tables) -> Estimate:
    """Compute the share of layers whose heads are removable, except one."""
    rows = _rows_that_need_heads(tables, "one_head", "removable", "change_high")
    removable = wilson_proportion(rows["removable"].sum(), len(rows))
    at_most = wilson_proportion((rows["change_high"] >= -MARGIN).sum(), len(rows))
    return replace(removable, high=at_most.high)


@claim(
    "Michel et al. 3.4",
    (
        "Heads that matter more on one half of the test articles matter more on the other, in "
        "every fine-tuning task (made up by default)"
    ),
    how_measured=(
        "Spearman's correlation, over heads, of what zeroing each costs on the two halves, "
        "smallest over the tasks where a head changes anything; bootstrap interval over heads, its "
        "upper bound widened for the choice of the task; in the paper Pearson's correlation "
        "between two data sets is 0.68 (MNLI matched and mismatched)"
    ),
    above=0,
)
def rank_correlation_of_halves(tables: Tables) -> Estimate:
    """Find the smallest rank correlation, over tasks, between the halves of the articles."""
    correlations = estimates_by_task(
        tables, "cross_data", "rank_correlation", select=_learned_rows, heads=ALL_HEADS
    )
    return smallest_over_tasks(correlations.values())


PRUNING_MEASURE = (
    "change of accuracy (percentage points) on the test examples that score, lowest over the tasks "
    "that the model learns and needs its heads for; mean over the seeds of the fine-tuning, whose "
    "interval (Student's t) and that over examples are combined; over examples only if a task has "
    "one seed; the upper bound is widened for the choice of the task; threshold: a loss of two "
    "points, which is ours"
)


def smallest_change(tables: Tables, *, pruned: int) -> Estimate:
    """Find the lowest change of accuracy, over tasks, with ``pruned`` percent of the heads pruned.

    A task has several seeds if the appendix of notebook 08 was run for it, and one otherwise.  All
    seeds of a task are scored on the same examples.  Therefore the interval of their mean over
    examples has the mean bounds of the seeds.
    """
    columns = ("pruned", "examples", *with_bounds("change"))
    rows = _rows_that_need_heads(tables, "pruning", "order", *columns)
    rows = rows_where(rows, order="importance")
    if "pruning_seeds" in tables:
        of_seeds = _rows_that_need_heads(tables, "pruning_seeds", *columns)
        has_seeds = rows["task"].isin(of_seeds["task"])
        rows = pd.concat([of_seeds, rows[~has_seeds]])
    changes = []
    for _, seeds in rows_where(rows, pruned=pruned).groupby("task"):
        means = seeds.mean(numeric_only=True)
        over_examples = estimate_in(means, "change", df=means["examples"] - 1)
        changes.append(with_seed_noise(over_examples, seeds["change"].to_numpy()))
    return smallest_over_tasks(changes)


# Statements by the percentage of the heads that are pruned.
PRUNED = {
    20: (
        "A fifth of the heads can be pruned by importance at a cost of less than two percentage "
        "points, in every fine-tuning task (made up by default)"
    ),
    40: (
        "Two fifths of the heads can be pruned by importance at a cost of less than two percentage "
        "points, in every fine-tuning task (made up by default), as in the paper's BERT on MNLI"
    ),
}
for pruned, statement in PRUNED.items():
    claim(
        "Michel et al. 4.2",
        statement,
        how_measured=PRUNING_MEASURE,
        above=-MARGIN,
        unit="points",
    )(partial(smallest_change, pruned=pruned))


def lead_over_single_ablation(tables: Tables) -> Estimate:
    """Find the smallest lead, over tasks, of importance over the ablation of single heads."""
    return smallest_over_tasks(_leads(tables, "single ablation"))


def lead_over_random_order(tables: Tables, *, factor: float = 1.0) -> Estimate:
    """Find the smallest lead, over tasks, of importance over one more random order.

    Its interval is multiplied by a factor.
    """
    leads = []
    for value, low, high in _leads(tables, "random"):
        half_width = factor * (high - low) / 2
        leads.append(Estimate(value, value - half_width, value + half_width, df=RANDOM_ORDERS - 1))
    return smallest_over_tasks(leads)


# The interval of one more order is as many times as wide as that of the mean.
lead_over_mean_random_order = partial(lead_over_random_order, factor=1 / np.sqrt(RANDOM_ORDERS + 1))


LEAD_MEASURE = (
    "accuracy with the heads left by importance (divided by the norm of its layer) minus that by "
    "the other order on the same examples, mean over 20, 40 and 60% of the heads, percentage "
    "points, smallest over the tasks that the model learns and needs its heads for; "
)
# The other order, the interval, and the measure of each claim.
LEADS = (
    (
        "what each costs alone",
        "bootstrap interval over examples",
        lead_over_single_ablation,
    ),
    (
        "random orders are on average",
        "interval of the mean over ten random orders (Student's t)",
        lead_over_mean_random_order,
    ),
    (
        "any one random order",
        "interval of one more random order (Student's t)",
        lead_over_random_order,
    ),
)
for other_order, interval, measure in LEADS:
    claim(
        "Michel et al. 4.2",
        (
            f"Importance is a better order to prune heads in than {other_order}, in every "
            "fine-tuning task (made up by default)"
        ),
        how_measured=LEAD_MEASURE + interval,
        above=0,
        unit="points",
    )(measure)


def _leads(tables: Tables, order: str) -> list[Estimate]:
    """Read the lead of pruning by importance over another order in each task."""
    leads = estimates_by_task(
        tables, "pruning", "lead", select=_rows_that_need_heads, clusters="examples", order=order
    )
    return list(leads.values())


def _rows_that_need_heads(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of the learned tasks whose accuracy falls significantly without any head."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    without_heads = rows_where(pruning, pruned=100)
    is_loss = (without_heads["change"] < 0) & (without_heads["p_value"] < COST_LEVEL)
    rows = _learned_rows(tables, table, *columns)
    needs_heads = rows["task"].isin(without_heads.loc[is_loss, "task"])
    return select_or_raise(rows, needs_heads, "a task that the model needs its heads for")


def _learned_rows(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of the learned tasks, or all rows if notebook 07 was not run.

    Its table fine_tuning.csv has the column that says which tasks are learned.
    """
    select = learned_rows if "fine_tuning" in tables else rows_of
    return select(tables, table, "task", *columns)


CLAIMS = MICHEL.claims
