"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.metrics.paper import Claim, Measure, Tables, read_claims, rows_of, select_or_raise
from helpers.metrics.statistics import Estimate, wilson_proportion
from helpers.studies.common.tasks import learned_rows, minimum_over_tasks, smallest_share
from helpers.studies.michel2019.summaries import (
    ALL_HEADS,
    HALVES,
    OTHER_CORPUS,
    WITHOUT_OUTLIERS,
)

COST_LEVEL = 0.05  # the level at which a task is said to need the heads of the model


def pruning_claims() -> list[Claim]:
    """Read the claims about removing heads.

    Returns
    -------
    list of Claim
        With the functions that measure them.
    """
    return read_claims(__file__, MEASURES)


def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable one at a time, smallest over tasks."""
    return smallest_share(tables, "ablation", "removable", select=_rows_that_need_heads)


def share_of_layers_with_one_head(tables: Tables) -> Estimate:
    """Compute the share of layers whose heads are removable, except one."""
    removable = _rows_that_need_heads(tables, "one_head", "removable")["removable"]
    return wilson_proportion(removable.sum(), len(removable))


def smallest_correlation(tables: Tables, *, column: str, test_sets: str, heads: str) -> Estimate:
    """Find the smallest correlation, over tasks, of the changes on two test sets."""
    where = {"set": test_sets, "heads": heads}
    return minimum_over_tasks(tables, "cross_data", column, select=_learned_rows, **where)


def smallest_change(tables: Tables, *, pruned: int) -> Estimate:
    """Find the lowest change of accuracy, over tasks, with ``pruned`` percent of the heads pruned.

    It is a mean over fine-tuning seeds.
    """
    return minimum_over_tasks(
        tables, "seed_intervals", "change", select=_rows_that_need_heads, pruned=pruned
    )


def smallest_lead(tables: Tables, *, order: str) -> Estimate:
    """Find the smallest lead, over tasks, of pruning by importance over another order."""
    return minimum_over_tasks(tables, "pruning", "lead", select=_rows_that_need_heads, order=order)


def _rows_that_need_heads(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of the learned tasks whose accuracy falls significantly without any head."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    is_loss = (pruning["change"] < 0) & (pruning["p_value"] < COST_LEVEL)
    without_heads = pruning["pruned"] == 100
    tasks = set(pruning.loc[is_loss & without_heads, "task"])
    rows = _learned_rows(tables, table, *columns)
    return select_or_raise(
        rows, rows["task"].isin(tasks), "a task that the model needs its heads for"
    )


def _learned_rows(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Select the rows of the learned tasks, or all rows if notebook 07 was not run.

    Its table fine_tuning.csv has the column that says which tasks are learned.
    """
    select = learned_rows if "fine_tuning" in tables else rows_of
    return select(tables, table, "task", *columns)


MEASURES: dict[str, Measure] = {
    "removable alone": share_of_removable_heads,
    "layers with one head": share_of_layers_with_one_head,
    "transfer": partial(
        smallest_correlation, column="correlation", test_sets=HALVES, heads=ALL_HEADS
    ),
    "transfer of the rest": partial(
        smallest_correlation, column="correlation", test_sets=HALVES, heads=WITHOUT_OUTLIERS
    ),
    "transfer of ranks": partial(
        smallest_correlation, column="rank_correlation", test_sets=HALVES, heads=ALL_HEADS
    ),
    "other corpus": partial(
        smallest_correlation, column="correlation", test_sets=OTHER_CORPUS, heads=ALL_HEADS
    ),
    "prunable": partial(smallest_change, pruned=20),
    "prunable as there": partial(smallest_change, pruned=40),
    "over single ablation": partial(smallest_lead, order="single ablation"),
    "over random order": partial(smallest_lead, order="random"),
}
