"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.analysis.claims import (
    Claim,
    Tables,
    chosen_rows,
    rows_of,
    with_bounds,
)
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import Estimate, mean_interval, share_of
from helpers.studies.sixteen_heads.summaries import ARTICLES
from helpers.studies.tasks import learned_tasks

NOTICEABLE = 0.05  # a loss that is significant at this level is noticed
DEEP = 60  # percent of the heads: where cross-attention breaks in the paper


def pruning_claims() -> list[Claim]:
    """Return the claims about removing heads."""
    paper = values_of("Michel")
    kept = paper["heads with a significant change"] / paper["heads of the translation model"]
    return [
        Claim(
            "Michel et al. 3.2",
            "Most heads can be removed alone",
            "percent of heads that are removable (accuracy within two points, equivalence test at "
            "5%); mean over tasks that need heads, in pruning_seeds; interval over seeds of the "
            "fine-tuning; holds above half; in the paper: without a change of p below 0.01",
            partial(over_seeds, column="removable"),
            threshold=50,
            paper=100 * (1 - kept),
        ),
        Claim(
            "Michel et al. 3.3",
            "Most layers can do with one head",
            "share of layers, tasks that the model needs its heads for, whose other heads are "
            "removable (accuracy within two points, equivalence test at 5%); Wilson's interval; "
            "holds above half",
            layers_with_one_head,
            threshold=0.5,
        ),
        Claim(
            "Michel et al. 3.4",
            "Heads that matter on one data set matter on another",
            "correlation, over heads, of the accuracies without each on two sets of test articles; "
            "mean over tasks that the model needs its heads for, and of the ends of its 95% "
            "intervals",
            transfer,
            threshold=0,
            paper=paper["correlation between MNLI matched and mismatched"],
        ),
        Claim(
            "Michel et al. 4.2",
            "A fifth of the heads or more can be pruned by importance",
            "percent of heads up to which they are, at every tenth, removable (accuracy within two "
            "points, equivalence test at 5%); mean over tasks that need heads, in pruning_seeds; "
            "interval over seeds of the fine-tuning; threshold: half a step below 20",
            partial(over_seeds, column="prunable"),
            threshold=15,
            paper=paper["heads of BERT pruned without loss"],
        ),
        Claim(
            "Michel et al. 4.2",
            "Importance orders heads better than their ablation alone does",
            "accuracy by importance less that by single ablation, mean over steps, points; mean "
            "over tasks that the model needs its heads for, and its interval (Student's t)",
            over_single_ablation,
            threshold=0,
        ),
        Claim(
            "Michel et al. 4.2",
            "Importance orders heads better than chance does",
            "accuracy by importance less that in random order, mean over steps and tasks that the "
            "model needs its heads for, points; ends: less what all but a fortieth of the random "
            "orders have",
            over_random_order,
            threshold=0,
        ),
        Claim(
            "Michel et al. 4.3",
            "Removing half of the heads makes a model faster",
            "largest speed-up over batch sizes, percent; ends: its quartiles over turns",
            speed_up,
            threshold=0,
            paper=paper["largest speed-up with half of the heads"],
        ),
        Claim(
            "Michel et al. 5",
            "Cross-attention needs its heads most",
            "BLEU with 60% or more of its heads pruned, less that with as many of the encoder's or "
            "the decoder's, whichever is lower; holds below 0",
            cross_less_self,
            threshold=0,
            below=True,
        ),
    ]


def over_seeds(tables: Tables, column: str) -> Estimate:
    """Return a column of `summaries.seed_measures`, the mean over tasks, over seeds."""
    rows = _learned(tables, "pruning_seeds", "seed", column)
    return mean_interval(rows.groupby("seed")[column].mean())


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
    return mean_interval(means["importance"] - means["single ablation"])


def over_random_order(tables: Tables) -> Estimate:
    """Return by how many points importance orders heads better than chance."""
    means = _orders(tables, "draw")
    own, random = means["importance"].mean(), means["random"]
    return Estimate(own - random.mean(), own - random.quantile(0.975), own - random.quantile(0.025))


def speed_up(tables: Tables) -> Estimate:
    """Return the largest speed-up with half of the heads removed, in percent."""
    columns = with_bounds("speed_up")
    table = rows_of(tables, "head_removal", *columns)
    rows = chosen_rows(table, table["speed_up"].notna(), "a family whose heads can be removed")
    return Estimate(*rows.loc[rows["speed_up"].idxmax(), columns])


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
