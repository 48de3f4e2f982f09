"""Summaries of the tables of pruning, over heads, halves of the test articles, and seeds."""

from __future__ import annotations

import pandas as pd
from scipy.stats import rankdata

from helpers.metrics.statistics import correlation, mean_interval

SIGNIFICANT = 0.01  # the level of the paper
# The columns of the table of ablation with the change on either half of the articles.
HALVES = ["change_one", "change_other"]
OUTLIERS = 2  # heads with the largest effects; correlations are computed with and without them
# Values of the column ``heads``.
ALL_HEADS = "all"
WITHOUT_OUTLIERS = f"without the {OUTLIERS} largest effects"


def cross_data(single: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Correlate, over heads, the changes of accuracy on two halves of the articles (section 3.4).

    Parameters
    ----------
    single
        From `single_ablation`.
    seed
        Seed of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        One row per task and selection of heads.  Columns: task; set (what the two test sets are);
        heads (`ALL_HEADS`, or `WITHOUT_OUTLIERS`: without the two of the largest mean effect); the
        mean one_change and other_change (percentage points); correlation (Pearson's) and
        rank_correlation (Spearman's) with 95% bootstrap intervals over heads.  Correlations are NaN
        if no head changes the accuracy.
    """
    rows = []
    for task, heads in single.groupby("task", sort=False):
        outliers = heads[HALVES].sum(axis=1).abs().nlargest(OUTLIERS).index
        selections = {ALL_HEADS: heads, WITHOUT_OUTLIERS: heads.drop(outliers)}
        for name, selected in selections.items():
            changes = selected[HALVES].to_numpy()
            one_change, other_change = changes.mean(axis=0)
            row = {
                "task": task,
                "set": "halves of the articles",
                "heads": name,
                "one_change": one_change,
                "other_change": other_change,
                **correlation(changes, seed=seed).columns("correlation"),
                **correlation(rankdata(changes, axis=0), seed=seed).columns("rank_correlation"),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def seed_intervals(pruned: pd.DataFrame) -> pd.DataFrame:
    """Average the changes of accuracy over fine-tuning seeds.

    Parameters
    ----------
    pruned
        From `pruning.seed_pruning`.

    Returns
    -------
    pandas.DataFrame
        One row per task and share of heads.  Columns: task, pruned (percent of heads), seeds (their
        number), start (mean accuracy before, percent), change with its 95% interval over seeds
        (change_low, change_high; Student's t), smallest and largest change (percentage points).
    """
    rows = []
    for (task, share), seeds in pruned.groupby(["task", "pruned"], sort=False):
        change = seeds["change"]
        row = {
            "task": task,
            "pruned": share,
            "seeds": len(seeds),
            "start": seeds["start"].mean(),
            **mean_interval(change).columns("change"),
            "smallest": change.min(),
            "largest": change.max(),
        }
        rows.append(row)
    return pd.DataFrame(rows)
