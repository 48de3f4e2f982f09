"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.tables import Tables, rows_of, select_or_raise
from helpers.metrics.statistics import Estimate, wilson_proportion
from helpers.studies.common.tasks import learned_rows, minimum_over_tasks, smallest_share
from helpers.studies.michel2019.summaries import (
    ALL_HEADS,
    HALVES,
    OTHER_CORPUS,
    WITHOUT_OUTLIERS,
)

MICHEL = Family("Michel et al.")
claim = MICHEL.claim
COST_LEVEL = 0.05  # the level at which a task is said to need the heads of the model


@claim(
    "Michel et al. 3.2",
    "In every task most heads can be removed alone",
    how_measured=(
        "share of heads that are removable (output zeroed, accuracy within two points by an "
        "equivalence test at 5%, on 300 or 800 test examples), smallest over the tasks that the "
        "model learns and needs its heads for; Wilson's interval; holds above half; in the paper: "
        "without a change of p below 0.01"
    ),
    above=0.5,
    paper=0.916667,  # section 3.2: of 96 heads on WMT, all but 8 (p < 0.01)
)
def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable one at a time, smallest over tasks."""
    return smallest_share(tables, "ablation", "removable", select=_rows_that_need_heads)


@claim(
    "Michel et al. 3.3",
    "Most layers can do with one head",
    how_measured=(
        "share of layers, of the tasks that the model learns and needs its heads for, whose other "
        "heads are removable (accuracy within two points, equivalence test at 5%); Wilson's "
        "interval; holds above half"
    ),
    above=0.5,
)
def share_of_layers_with_one_head(tables: Tables) -> Estimate:
    """Compute the share of layers whose heads are removable, except one."""
    removable = _rows_that_need_heads(tables, "one_head", "removable")["removable"]
    return wilson_proportion(removable.sum(), len(removable))


@claim(
    "Michel et al. 3.4",
    "Heads that matter on one half of the test articles matter on the other, in every task",
    how_measured=(
        "Pearson's correlation, over heads, of what zeroing each costs on the two halves, smallest "
        "over the tasks where a head changes anything; bootstrap interval over heads; holds above 0"
    ),
    above=0,
    about_training=True,
)
def correlation_of_halves(tables: Tables) -> Estimate:
    """Find the smallest correlation, over tasks, between the halves of the articles."""
    return _smallest_correlation(tables, "correlation", HALVES, ALL_HEADS)


@claim(
    "Michel et al. 3.4",
    "So they do without the two that matter most",
    how_measured=(
        "the same without the two heads of the largest mean effect, smallest over the tasks where "
        "a head changes anything; bootstrap interval over heads; holds above 0"
    ),
    above=0,
    about_training=True,
)
def correlation_without_outliers(tables: Tables) -> Estimate:
    """Find the smallest correlation between the halves without the two heads that matter most."""
    return _smallest_correlation(tables, "correlation", HALVES, WITHOUT_OUTLIERS)


@claim(
    "Michel et al. 3.4",
    "So do the ranks of all heads",
    how_measured=(
        "Spearman's correlation of all heads, smallest over the tasks where a head changes "
        "anything; bootstrap interval over heads; holds above 0"
    ),
    above=0,
    about_training=True,
)
def rank_correlation_of_halves(tables: Tables) -> Estimate:
    """Find the smallest rank correlation, over tasks, between the halves of the articles."""
    return _smallest_correlation(tables, "rank_correlation", HALVES, ALL_HEADS)


@claim(
    "Michel et al. 3.4",
    "Heads that matter on one corpus matter on another, in every task",
    how_measured=(
        "Pearson's correlation, over heads, of what zeroing each costs on test articles and on a "
        "treebank's sentences, smallest over the tasks where a head changes anything; bootstrap "
        "interval over heads; holds above 0"
    ),
    above=0,
    paper=0.68,  # section 3.4, Figure 2: MNLI, matched and mismatched
)
def correlation_with_other_corpus(tables: Tables) -> Estimate:
    """Find the smallest correlation, over tasks, between the articles and a treebank."""
    return _smallest_correlation(tables, "correlation", OTHER_CORPUS, ALL_HEADS)


@claim(
    "Michel et al. 4.2",
    (
        "A fifth of the heads can be pruned by importance at a cost of less than two points, in "
        "every task with several seeds"
    ),
    how_measured=(
        "change of accuracy (points) without the fifth of the heads that is least important, on "
        "all test examples that score, mean over seeds of the fine-tuning and its interval "
        "(Student's t), lowest over the tasks that the model learns and needs its heads for; "
        "holds above -2"
    ),
    above=-2,
)
def change_without_a_fifth(tables: Tables) -> Estimate:
    """Find the lowest change of accuracy, over tasks, without a fifth of the heads."""
    return _smallest_change(tables, pruned=20)


@claim(
    "Michel et al. 4.2",
    "So can two fifths, as in the paper's BERT",
    how_measured="the same without two fifths of the heads; holds above -2",
    above=-2,
)
def change_without_two_fifths(tables: Tables) -> Estimate:
    """Find the lowest change of accuracy, over tasks, without two fifths of the heads."""
    return _smallest_change(tables, pruned=40)


@claim(
    "Michel et al. 4.2",
    "Importance orders heads better than their ablation alone does, in every task",
    how_measured=(
        "accuracy by importance minus that by single ablation on the same examples, mean over 10 "
        "to 60% of the heads, points, smallest over the tasks that the model learns and needs its "
        "heads for; bootstrap interval over examples; holds above 0"
    ),
    above=0,
)
def lead_over_single_ablation(tables: Tables) -> Estimate:
    """Find the smallest lead, over tasks, of importance over the ablation of single heads."""
    return _smallest_lead(tables, order="single ablation")


@claim(
    "Michel et al. 4.2",
    "Importance orders heads better than a random order does, in every task",
    how_measured=(
        "accuracy by importance minus that in random order on the same examples, mean over 10 to "
        "60% of the heads and ten orders, points, smallest over the tasks that the model learns "
        "and needs its heads for; interval of one more random order (Student's t); holds above 0"
    ),
    above=0,
)
def lead_over_random_order(tables: Tables) -> Estimate:
    """Find the smallest lead, over tasks, of importance over a random order."""
    return _smallest_lead(tables, order="random")


def _smallest_correlation(tables: Tables, column: str, test_sets: str, heads: str) -> Estimate:
    """Find the smallest correlation, over tasks, of the changes on two test sets."""
    return minimum_over_tasks(
        tables, "cross_data", column, select=_learned_rows, set=test_sets, heads=heads
    )


def _smallest_change(tables: Tables, *, pruned: int) -> Estimate:
    """Find the lowest change of accuracy, over tasks, with ``pruned`` percent of the heads pruned.

    It is a mean over fine-tuning seeds.
    """
    return minimum_over_tasks(
        tables, "seed_intervals", "change", select=_rows_that_need_heads, pruned=pruned
    )


def _smallest_lead(tables: Tables, *, order: str) -> Estimate:
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


CLAIMS = MICHEL.claims
