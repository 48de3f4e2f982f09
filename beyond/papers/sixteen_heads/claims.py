"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019).

What they say is in ``michel2019.toml``; here is how they are measured.  Claims are measured only on
the tasks that the model learns and needs its heads for: without any head its accuracy falls
significantly.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate, combine_in_quadrature, exact
from beyond.claims.tables import NotMeasurable, Tables, estimate_in, rows_where
from beyond.papers.common.statistics import mean_interval
from beyond.papers.common.tasks import estimates_by_task, learned_rows, smallest_over_tasks

HALF = 0.5  # the threshold of the claim about layers
MARGIN = 2  # percentage points of accuracy within which heads count as removable
COST_LEVEL = 0.05  # the level at which a task is said to need the heads of the model
RANDOM_ORDERS = 10


def share_of_removable_heads(tables: Tables) -> TestedEstimate:
    """Compute the share of heads that are removable one at a time, over all tasks.

    It is exact: each head is shown to be removable by a test of its own, on the same test
    examples, and these are all heads of the model.
    """
    return exact(_rows_that_need_heads(tables, "ablation")["removable"].mean())


def share_of_layers_with_one_head(tables: Tables) -> TestedEstimate:
    """Compute the share of layers whose heads are removable, except one.

    The low bound counts the layers that are shown to need no more, and the high bound also those
    that are not shown to lose.  The share is exact if there is none of the latter, and otherwise
    has no standard error: the claim is open if half is between the bounds.
    """
    rows = _rows_that_need_heads(tables, "one_head")
    removable_share = rows["removable"].mean()
    at_most = (rows["change_high"] >= -MARGIN).mean()
    if removable_share > HALF or at_most <= HALF:
        return exact(removable_share)
    return TestedEstimate(removable_share, removable_share, at_most, own_p=1.0)


def smallest_change(tables: Tables, *, pruned: int) -> TestedEstimate:
    """Find the lowest change of accuracy, over tasks, with ``pruned`` percent of the heads pruned.

    All seeds of a task are scored on the same examples.  Therefore the interval of their mean over
    examples has the mean bounds of the seeds.
    """
    by_seed = _pruning_by_seed(tables)
    rows = by_seed[by_seed["pruned"] == pruned]
    changes = []
    for _, seeds in rows.groupby("task"):
        means = seeds.mean(numeric_only=True)
        over_examples = estimate_in(means, "change", df=means["examples"] - 1)
        if len(seeds) > 1:
            over_examples = combine_in_quadrature(over_examples, mean_interval(seeds["change"]))
        changes.append(over_examples)
    return smallest_over_tasks(changes)


def _pruning_by_seed(tables: Tables) -> pd.DataFrame:
    """Select the rows of pruning by importance, for each task and each seed of its fine-tuning.

    A task has several seeds if the appendix of notebook 08 was run for it, and one otherwise.
    """
    rows = _rows_that_need_heads(tables, "pruning")
    with_one_seed = rows[rows["order"] == "importance"]
    if "pruning_seeds" not in tables:
        return with_one_seed
    with_several_seeds = _rows_that_need_heads(tables, "pruning_seeds")
    has_several = with_one_seed["task"].isin(with_several_seeds["task"])
    return pd.concat([with_several_seeds, with_one_seed[~has_several]])


def lead_over_single_ablation(tables: Tables) -> TestedEstimate:
    """Find the smallest lead, over tasks, of importance over the ablation of single heads."""
    return smallest_over_tasks(_leads(tables, "single ablation"))


def lead_over_random_order(tables: Tables, *, factor: float = 1.0) -> TestedEstimate:
    """Find the smallest lead, over tasks, of importance over one more random order.

    Its interval is multiplied by a factor.
    """
    leads = []
    for lead in _leads(tables, "random"):
        value = lead.value
        half_width = factor * (lead.high - lead.low) / 2
        leads.append(
            TestedEstimate(value, value - half_width, value + half_width, df=RANDOM_ORDERS - 1)
        )
    return smallest_over_tasks(leads)


# The interval of one more order is as many times as wide as that of the mean.
lead_over_mean_random_order = partial(lead_over_random_order, factor=1 / np.sqrt(RANDOM_ORDERS + 1))


def _leads(tables: Tables, order: str) -> list[TestedEstimate]:
    """Read the lead of pruning by importance over another order in each task."""
    leads = estimates_by_task(
        tables, "pruning", "lead", select=_rows_that_need_heads, clusters="examples", order=order
    )
    return list(leads.values())


def _rows_that_need_heads(tables: Tables, table: str) -> pd.DataFrame:
    """Select the rows of the learned tasks whose accuracy falls significantly without any head."""
    without_heads = rows_where(tables, "pruning", pruned=100)
    is_loss = (without_heads["change"] < 0) & (without_heads["p_value"] < COST_LEVEL)
    rows = _learned_rows(tables, table)
    rows = rows[rows["task"].isin(without_heads.loc[is_loss, "task"])]
    if rows.empty:
        raise NotMeasurable("the model needs its heads for no task")
    return rows


def _learned_rows(tables: Tables, table: str) -> pd.DataFrame:
    """Select the rows of the learned tasks, or all rows if notebook 07 was not run.

    Its table fine_tuning.csv has the column that says which tasks are learned.
    """
    select = learned_rows if "fine_tuning" in tables else rows_where
    return select(tables, table)


MEASURES = {
    "michel-heads-removable": share_of_removable_heads,
    "michel-one-head-enough": share_of_layers_with_one_head,
    "michel-prune-a-fifth": partial(smallest_change, pruned=20),
    "michel-prune-two-fifths": partial(smallest_change, pruned=40),
    "michel-importance-over-single-ablation": lead_over_single_ablation,
    "michel-importance-over-mean-random-order": lead_over_mean_random_order,
    "michel-importance-over-random-order": lead_over_random_order,
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
