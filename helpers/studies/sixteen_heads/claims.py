"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

import pandas as pd

from helpers.analysis.claim_measures import share_of
from helpers.analysis.claims import Claim, Estimate, NotMeasurable, Tables, rows_of
from helpers.analysis.paper import values_of
from helpers.studies.estimates import mean_interval

LEVEL = 0.01  # of significance, as in the paper
WITHIN = "removable (accuracy within two points, equivalence test at 5%)"
NOTICEABLE = 0.05  # a loss that is significant at this level is noticed
EARLY = 30  # percent of the training
ALIKE = 0.5  # correlation
SEEDS = "mean over tasks that need heads, in pruning_seeds; interval over seeds of the fine-tuning"
TASKS = "tasks that the model needs its heads for"  # of any other, all heads can go
ARTICLES = "other articles"  # the second test set of a task, in cross_data
DEEP = 60  # percent of the heads: where cross-attention breaks in the paper


def pruning_claims() -> list[Claim]:
    """Return the claims about removing heads."""
    return [*_single(), *_pruned(), *_translation_and_training()]


def _single() -> list[Claim]:
    paper = values_of("Michel")
    return [
        Claim(
            "Michel et al. 3.2",
            "Most heads can be removed alone",
            f"percent of heads that are {WITHIN}; {SEEDS}; holds above half; in the paper: without "
            f"a change of p below {LEVEL}",
            lambda t: _over_seeds(t, "removable"),
            paper=100
            * (
                1
                - paper["heads with a significant change"] / paper["heads of the translation model"]
            ),
            threshold=50,
        ),
        Claim(
            "Michel et al. 3.3",
            "Most layers can do with one head",
            f"share of layers, {TASKS}, whose other heads are {WITHIN}; Wilson's interval; holds "
            "above half",
            lambda t: share_of(_learned(t, "one_head", "removable")["removable"]),
            threshold=0.5,
        ),
        Claim(
            "Michel et al. 3.4",
            "Heads that matter on one data set matter on another",
            "correlation, over heads, of the accuracies without each on two sets of test articles; "
            f"mean over {TASKS}, and of the ends of its 95% intervals",
            _transfers,
            paper=paper["correlation between MNLI matched and mismatched"],
            threshold=0,
        ),
    ]


def _pruned() -> list[Claim]:
    paper = values_of("Michel")
    return [
        Claim(
            "Michel et al. 4.2",
            "A fifth of the heads or more can be pruned by importance",
            f"percent of heads up to which they are, at every tenth, {WITHIN}; {SEEDS}; "
            "threshold: half a step below 20",
            lambda t: _over_seeds(t, "prunable"),
            paper=paper["heads of BERT pruned without loss"],
            threshold=15,
        ),
        Claim(
            "Michel et al. 4.2",
            "Importance orders heads better than their ablation alone does",
            "accuracy by importance less that by single ablation, mean over steps, points; mean "
            f"over {TASKS}, and its interval (Student's t)",
            _less_single,
            threshold=0,
        ),
        Claim(
            "Michel et al. 4.2",
            "Importance orders heads better than chance does",
            f"accuracy by importance less that in random order, mean over steps and {TASKS}, "
            "points; ends: less what all but a fortieth of the random orders have",
            _less_random,
            threshold=0,
        ),
        Claim(
            "Michel et al. 4.3",
            "Removing half of the heads makes a model faster",
            "largest speed-up over batch sizes, percent; ends: its quartiles over turns",
            _speed_up,
            paper=paper["largest speed-up with half of the heads"],
            threshold=0,
        ),
    ]


def _translation_and_training() -> list[Claim]:
    return [
        Claim(
            "Michel et al. 5",
            "Cross-attention needs its heads most",
            f"BLEU with {DEEP}% or more of its heads pruned, less that with as many of the "
            "encoder's or the decoder's, whichever is lower; holds below 0",
            _cross_less_self,
            threshold=0,
            below=True,
        ),
        Claim(
            "Michel et al. 6",
            "Which heads are important is settled early in the training",
            f"correlation of importance after {EARLY}% of the steps with that at the end; holds "
            f"above {ALIKE}",
            lambda t: _early(rows_of(t, "importance_course", "trained", "correlation")),
            threshold=ALIKE,
        ),
    ]


def _learned(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned, and of which no head at all is worse."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    bare = pruning[pruning["pruned"] == 100]
    tasks = set(bare.loc[_lost(bare, NOTICEABLE), "task"])
    if "fine_tuning" in tables:  # of notebook 07, which says what is learned
        accuracy = rows_of(tables, "fine_tuning", "task", "start", "learned")
        own = accuracy[(accuracy["start"] == "pretrained") & accuracy["learned"].astype(bool)]
        tasks &= set(own["task"])
    rows = rows_of(tables, table, "task", *columns)
    rows = rows[rows["task"].isin(tasks)]
    if rows.empty:
        raise NotMeasurable("no task that the model needs its heads for")
    return rows


def _lost(table: pd.DataFrame, level: float) -> pd.Series:
    return (table["change"] < 0) & (table["p_value"] < level)


def _transfers(tables: Tables) -> Estimate:
    table = _learned(tables, "cross_data", "correlation", "ci_low", "ci_high", "set")
    own = table.loc[table["set"] == ARTICLES, ["correlation", "ci_low", "ci_high"]]
    return Estimate(*own.mean())


def _early(summary: pd.DataFrame) -> float:
    early = summary.loc[summary["trained"] <= EARLY, "correlation"]
    if early.empty:
        raise NotMeasurable("no checkpoint as early as that")
    return float(early.iloc[-1])


def _over_seeds(tables: Tables, column: str) -> Estimate:
    """Return a column of `summaries.seed_measures`, the mean over tasks, over seeds."""
    rows = _learned(tables, "pruning_seeds", "seed", column)
    return mean_interval(rows.groupby("seed")[column].mean())


def _orders(tables: Tables, *by: str) -> pd.Series:
    """Return mean accuracies over the steps where all orders have been."""
    table = _learned(tables, "pruning", "order", "draw", "accuracy")
    steps = table.loc[table["order"] == "random", "pruned"]
    between = table["pruned"].between(1, 99) & table["pruned"].isin(steps)  # the ends are the same
    return table[between].groupby(["order", *by])["accuracy"].mean()


def _less_single(tables: Tables) -> Estimate:
    means = _orders(tables, "task")
    return mean_interval(means["importance"] - means["single ablation"])


def _less_random(tables: Tables) -> Estimate:
    means = _orders(tables, "draw")
    own, random = means["importance"].mean(), means["random"]
    return Estimate(own - random.mean(), own - random.quantile(0.975), own - random.quantile(0.025))


def _speed_up(tables: Tables) -> Estimate:
    columns = ["speed_up", "speed_up_low", "speed_up_high"]
    table = rows_of(tables, "head_removal", "pruned", *columns)
    half = table.loc[table["pruned"] == 50, columns]
    if half.empty:
        raise NotMeasurable("the heads of this family can only be masked")
    return Estimate(*half.loc[half["speed_up"].idxmax()])


def _cross_less_self(tables: Tables) -> float:
    table = rows_of(tables, "translation_pruning", "kind", "kept", "bleu")
    deep = table[table["kept"] <= 1 - DEEP / 100 + 1e-9].groupby("kind")["bleu"].mean()
    if len(deep) < 3:
        raise NotMeasurable("not all kinds of attention were pruned as far")
    return float(deep["cross"] - min(deep["encoder"], deep["decoder"]))
