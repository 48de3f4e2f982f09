"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019).

Each is a row of ``claims.csv``, which names the function here that measures it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from helpers.analysis.claims import (
    Claim,
    Estimate,
    NotMeasurable,
    Tables,
    chosen_rows,
    read_claims,
    rows_of,
    with_bounds,
)
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import mean_interval, share_of
from helpers.studies.tasks import learned_tasks

LEVEL = 0.01  # of significance, as in the paper
NOTICEABLE = 0.05  # a loss that is significant at this level is noticed
EARLY = 30  # percent of the training
ARTICLES = "other articles"  # the second test set of a task, in cross_data
DEEP = 60  # percent of the heads: where cross-attention breaks in the paper


def pruning_claims() -> list[Claim]:
    """Return the claims about removing heads."""
    paper = values_of("Michel")
    kept = paper["heads with a significant change"] / paper["heads of the translation model"]
    numbers = paper | {"over_seeds: removable": 100 * (1 - kept)}
    return read_claims(Path(__file__).with_name("claims.csv"), globals(), numbers)


def over_seeds(tables: Tables, column: str) -> Estimate:
    """Return a column of `summaries.seed_measures`, the mean over tasks, over seeds."""
    rows = _learned(tables, "pruning_seeds", "seed", column)
    return Estimate(*mean_interval(rows.groupby("seed")[column].mean()))


def layers_with_one_head(tables: Tables) -> Estimate:
    """Return the share of layers whose heads but one are removable."""
    return share_of(_learned(tables, "one_head", "removable")["removable"])


def transfer(tables: Tables) -> Estimate:
    """Return the mean correlation of heads' ablation on two sets of articles."""
    table = _learned(tables, "cross_data", "correlation", "ci_low", "ci_high", "set")
    own = table.loc[table["set"] == ARTICLES, ["correlation", "ci_low", "ci_high"]]
    return Estimate(*own.mean())


def over_single_ablation(tables: Tables) -> Estimate:
    """Return by how many points importance orders heads better than their ablation alone."""
    means = _orders(tables, "task")
    return Estimate(*mean_interval(means["importance"] - means["single ablation"]))


def over_random_order(tables: Tables) -> Estimate:
    """Return by how many points importance orders heads better than chance."""
    means = _orders(tables, "draw")
    own, random = means["importance"].mean(), means["random"]
    return Estimate(own - random.mean(), own - random.quantile(0.975), own - random.quantile(0.025))


def speed_up(tables: Tables) -> Estimate:
    """Return the largest speed-up with half of the heads removed, in percent."""
    columns = with_bounds("speed_up")
    table = rows_of(tables, "head_removal", "pruned", *columns)
    half = chosen_rows(table, table["pruned"] == 50, "a family whose heads can be removed")
    return Estimate(*half.loc[half["speed_up"].idxmax(), columns])


def cross_less_self(tables: Tables) -> float:
    """Return the BLEU left with few heads of cross-attention, less that with few of others."""
    table = rows_of(tables, "translation_pruning", "kind", "kept", "bleu")
    deep = table[table["kept"] <= 1 - DEEP / 100 + 1e-9].groupby("kind")["bleu"].mean()
    if len(deep) < 3:
        raise NotMeasurable("not all kinds of attention were pruned as far")
    return float(deep["cross"] - min(deep["encoder"], deep["decoder"]))


def settled_early(tables: Tables) -> float:
    """Return how far the importance of heads is what it will be, early in the training."""
    table = rows_of(tables, "importance_course", "trained", "correlation")
    early = chosen_rows(table, table["trained"] <= EARLY, "a checkpoint as early as that")
    return float(early["correlation"].iloc[-1])


def _learned(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned, and of which no head at all is worse."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    lost = (pruning["change"] < 0) & (pruning["p_value"] < NOTICEABLE)
    tasks = set(pruning.loc[lost & (pruning["pruned"] == 100), "task"])
    if "fine_tuning" in tables:  # of notebook 07, which says what is learned
        tasks &= learned_tasks(tables)
    rows = rows_of(tables, table, "task", *columns)
    return chosen_rows(rows, rows["task"].isin(tasks), "a task that the model needs its heads for")


def _orders(tables: Tables, *by: str) -> pd.Series:
    """Return mean accuracies over the steps where all orders have been."""
    table = _learned(tables, "pruning", "order", "draw", "accuracy")
    steps = table.loc[table["order"] == "random", "pruned"]
    between = table["pruned"].between(1, 99) & table["pruned"].isin(steps)  # the ends are the same
    return table[between].groupby(["order", *by])["accuracy"].mean()
