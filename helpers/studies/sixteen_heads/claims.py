"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.analysis.paper import Claim, Measure, Tables, chosen_rows, read_claims, rows_of
from helpers.analysis.statistics import Estimate, mean_interval, share_of
from helpers.studies.sixteen_heads.summaries import ARTICLES
from helpers.studies.tasks import learned_rows

NOTICEABLE = 0.05  # a loss that is significant at this level is noticed
DEEP = 60  # percent of the heads: where cross-attention breaks in the paper


def pruning_claims() -> list[Claim]:
    """Return the claims about removing heads."""
    return read_claims(__file__, MEASURES)


def over_seeds(tables: Tables, column: str) -> Estimate:
    """Return a column of `summaries.seed_measures`, the mean over tasks, over seeds."""
    rows = _learned(tables, "pruning_seeds", "seed", column)
    return mean_interval(rows.groupby("seed")[column].mean())


def layers_with_one_head(tables: Tables) -> Estimate:
    """Return the share of layers whose heads but one are removable."""
    removable = _learned(tables, "one_head", "removable")["removable"]
    return share_of(removable.sum(), len(removable))


def transfer(tables: Tables) -> Estimate:
    """Return the mean correlation of heads' ablation on two sets of articles."""
    table = _learned(tables, "cross_data", "correlation", "ci_low", "ci_high", "set")
    own = table.loc[table["set"] == ARTICLES, ["correlation", "ci_low", "ci_high"]]
    return Estimate(*own.mean())


def over_single_ablation(tables: Tables) -> Estimate:
    """Return by how many points importance orders heads better than their ablation alone."""
    means = _orders(tables, "task")
    return mean_interval(means["importance"] - means["single ablation"])


def over_random_order(tables: Tables) -> Estimate:
    """Return by how many points importance orders heads better than chance."""
    means = _orders(tables, "draw")
    own, random = means["importance"].mean(), means["random"]
    return Estimate(own - random.mean(), own - random.quantile(0.975), own - random.quantile(0.025))


def cross_less_self(tables: Tables) -> float:
    """Return the BLEU left with few heads of cross-attention, less that with few of others."""
    table = rows_of(tables, "translation_pruning", "kind", "kept", "bleu")
    deep = table[table["kept"] <= 1 - DEEP / 100 + 1e-9].groupby("kind")["bleu"].mean()
    return float(deep["cross"] - min(deep["encoder"], deep["decoder"]))


def _learned(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned, and of which no head at all is worse."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    lost = (pruning["change"] < 0) & (pruning["p_value"] < NOTICEABLE)
    tasks = set(pruning.loc[lost & (pruning["pruned"] == 100), "task"])
    own_rows = learned_rows if "fine_tuning" in tables else rows_of  # 07 says what is learned
    rows = own_rows(tables, table, "task", *columns)
    return chosen_rows(rows, rows["task"].isin(tasks), "a task that the model needs its heads for")


def _orders(tables: Tables, *by: str) -> pd.Series:
    """Return mean accuracies over the steps where all orders have been."""
    table = _learned(tables, "pruning", "order", "draw", "accuracy")
    steps = table.loc[table["order"] == "random", "pruned"]
    between = table["pruned"].between(1, 99) & table["pruned"].isin(steps)  # the ends are the same
    return table[between].groupby(["order", *by])["accuracy"].mean()


MEASURES: dict[str, Measure] = {
    "removable alone": partial(over_seeds, column="removable"),
    "layers with one head": layers_with_one_head,
    "transfer": transfer,
    "prunable": partial(over_seeds, column="prunable"),
    "over single ablation": over_single_ablation,
    "over random order": over_random_order,
    "cross-attention": cross_less_self,
}
