"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

Each is a row of ``claims.csv``, which names the function here that measures it.  A task counts
where the fine-tuned model beats its most frequent label and a bag of words beyond its interval:
what is shown for any other is what training on noise does.
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
)
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import mean_interval
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER
from helpers.studies.dark_secrets.links import linked_heads
from helpers.studies.dark_secrets.patterns import ANY_COLUMN
from helpers.studies.dark_secrets.token_features import (
    AFTER,
    FEATURES,
    FROM_CLS,
    SPECIAL,
    UNIFORM,
    WORDS,
)
from helpers.studies.tasks import PRETRAINED, RANDOM, learned_tasks

LAST_PART = 1 / 6  # of the layers: the last two of BERT's twelve
ALPHA = 0.05


def finetuning_claims() -> list[Claim]:
    """Return the claims about patterns, fine-tuning, semantic links and disabled heads."""
    paper = values_of("Kovaleva")
    share = paper["heads with frame-semantic links"] / paper["heads of the model"]
    path = Path(__file__).with_name("claims.csv")
    return read_claims(path, globals(), paper | {"share_with_links": share})


def most_heterogeneous(tables: Tables) -> Estimate:
    """Return the largest share of heterogeneous maps of a fine-tuned task."""
    return Estimate(*_class_shares(tables, "heterogeneous").max())


def fewest_columns(tables: Tables) -> Estimate:
    """Return the smallest share of maps with columns of a fine-tuned task."""
    return Estimate(*_class_shares(tables, ANY_COLUMN).min())


def heads_with_links(tables: Tables) -> int:
    """Return how many heads attend along links beyond chance."""
    return len(linked_heads(rows_of(tables, "semantic_links", "p_holm")))


def share_with_links(tables: Tables) -> float:
    """Return the share of such heads."""
    return heads_with_links(tables) / len(rows_of(tables, "semantic_links", "head"))


def last_layers_change_most(tables: Tables) -> float:
    """Return the share of tasks whose last layers have the least similarity."""
    rows = rows_of(tables, "finetuning_similarity", "task", "layer", "similarity")
    by_task = _of_learned(tables, rows).pivot_table(
        index="task", columns="layer", values="similarity"
    )
    count = max(1, round(LAST_PART * by_task.columns.max()))
    last = by_task.columns > by_task.columns.max() - count
    if last.all():
        raise NotMeasurable("one layer has no last part")
    return (by_task.loc[:, last].mean(axis=1) < by_task.loc[:, ~last].min(axis=1)).mean()


def gain_of_pretraining(tables: Tables) -> Estimate:
    """Return the smallest difference of accuracy to a model from random weights."""
    value, low, high = (_accuracies(tables, name) for name in ("accuracy", "ci_low", "ci_high"))
    own, random = PRETRAINED, RANDOM
    return Estimate(
        (value[own] - value[random]).min(),
        (low[own] - high[random]).min(),
        (high[own] - low[random]).min(),
    )


def special_over_words(tables: Tables) -> float:
    """Return by how much special tokens exceed words, as multiples of uniform attention."""
    ratios = _over_uniform(tables, "")
    return (ratios["special"] - ratios[list(WORDS)].max(axis=1)).min()


def sep_from_cls(tables: Tables) -> float:
    """Return the share of tasks in which [CLS] attends to [SEP] more than to words."""
    ratios = _over_uniform(tables, FROM_CLS)
    return (ratios["sep"] > ratios[list(WORDS)].max(axis=1)).mean()


def heads_with_gain(tables: Tables) -> int:
    """Return how many heads can be disabled with a gain beyond chance (Bonferroni, by task)."""
    rows = _disabled(tables, whole=False)
    corrected = rows["p_value"] * rows.groupby("task")["p_value"].transform("size")
    return ((rows["change"] > 0) & (corrected < ALPHA)).sum()


def removable_heads(tables: Tables) -> Estimate:
    """Return the share of heads that can be disabled, over tasks."""
    rows = _disabled(tables, "removable", whole=False)
    return Estimate(*mean_interval(rows.groupby("task")["removable"].mean()))


def largest_gain(tables: Tables) -> float:
    """Return the largest gain without a layer that is beyond chance, in points, or 0."""
    rows = _disabled(tables, whole=True)
    sure = rows.loc[rows["p_value"] * len(rows) < ALPHA, "change"]
    return max([0.0, *sure])


def _of_learned(tables: Tables, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tasks that are learned beyond both of their baselines."""
    chosen = rows["task"].isin(learned_tasks(tables))
    return chosen_rows(rows, chosen, "no task is learned beyond what its words give away")


def _class_shares(tables: Tables, pattern: str) -> pd.DataFrame:
    """Return a pattern's share and its interval, by fine-tuned task."""
    columns = ["share", "ci_low", "ci_high"]
    rows = rows_of(tables, "pattern_shares", "task", "weights", "pattern", *columns)
    tuned = rows[(rows["weights"] == AFTER) & (rows["pattern"] == pattern)]
    return _of_learned(tables, tuned)[columns]


def _accuracies(tables: Tables, column: str = "accuracy") -> pd.DataFrame:
    """Return test accuracies by task and start."""
    rows = rows_of(tables, "fine_tuning", "task", "start", column)
    found = _of_learned(tables, rows).pivot(index="task", columns="start", values=column)
    if not {PRETRAINED, RANDOM} <= set(found):
        raise NotMeasurable("fine_tuning: one of the two starts is missing")
    return found


def _over_uniform(tables: Tables, prefix: str) -> pd.DataFrame:
    """Return shares of attention by task, each divided by that of uniform attention."""
    columns = {f"{prefix}{name}": name for name in FEATURES}
    rows = rows_of(tables, "token_features", "task", "weights", *columns)
    rows = rows[["task", "weights", *columns]].rename(columns=columns)
    uniform = rows.loc[rows["weights"] == UNIFORM, list(FEATURES)].mean()
    tuned = _of_learned(tables, rows[rows["weights"] == AFTER]).groupby("task")[list(FEATURES)]
    shares = tuned.mean()
    special = list(SPECIAL)
    if shares[special].isna().any(axis=None):
        raise NotMeasurable("a model without [CLS] or [SEP]")
    together = shares[special].sum(axis=1) / uniform[special].sum()
    return (shares / uniform).assign(special=together)


def _disabled(tables: Tables, *columns: str, whole: bool) -> pd.DataFrame:
    rows = rows_of(tables, "disabling", "task", "layer", "head", "change", "p_value", *columns)
    return _of_learned(tables, rows[(rows["head"] == WHOLE_LAYER) == whole])
