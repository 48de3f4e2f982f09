"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

What they say is in ``kovaleva2019.toml``; here is how they are measured.  Claims are measured only
on tasks that the fine-tuned model learns: the interval of its accuracy is above the accuracies of
the most frequent label and of a bag of words.  On other tasks the measurements would show the
effect of training on noise.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from beyond.claims.claim import read_claims
from beyond.claims.tables import Measure, Tables, rows_of, rows_where
from beyond.papers.common import tasks
from beyond.papers.dark_secrets.fine_tuning import WHOLE_LAYER
from beyond.papers.dark_secrets.links import linked_heads
from beyond.papers.dark_secrets.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT
from helpers.metrics.statistics import Estimate, difference, exact


def smallest_pattern_share(tables: Tables, pattern: str) -> Estimate:
    """Find the smallest share of a pattern over fine-tuned tasks.

    It is exact, because it counts all heads of the models.
    """
    shares = tasks.estimates_by_task(
        tables, "pattern_shares", "share", weights=tasks.FINE_TUNED, pattern=pattern
    )
    return exact(min(shares.values()).value)


def pattern_share_in_text(tables: Tables) -> Estimate:
    """Read the share of the heads whose map of the text has a column; it is exact."""
    where = {"task": TEXT, "pattern": ANY_COLUMN}
    rows = rows_where(rows_of(tables, "pattern_shares", "share", *where), **where)
    return exact(rows["share"].iloc[0])


def largest_excess_on_links(tables: Tables) -> Estimate:
    """Find the largest difference between attention on links and on random pairs of a head."""
    return _largest_effect(rows_of(tables, "semantic_links", "difference"), "difference")


def share_of_linked_heads(tables: Tables) -> Estimate:
    """Compute the share of the heads with more attention on links, of all heads of the model."""
    rows = rows_of(tables, "semantic_links", "difference")
    return exact(len(linked_heads(rows)) / len(rows), cases=len(rows))


def gain_of_pretraining(tables: Tables) -> Estimate:
    """Compute the accuracy from pretrained minus that from random weights: a lead in most tasks."""
    by_start = {}
    for start in (tasks.PRETRAINED, tasks.RANDOM):
        by_start[start] = tasks.estimates_by_task(
            tables, "fine_tuning", "accuracy", clusters="test", start=start
        )
    random = by_start[tasks.RANDOM]
    leads = [
        difference(pretrained, random[task])
        for task, pretrained in by_start[tasks.PRETRAINED].items()
    ]
    return sorted(leads)[len(leads) // 2]


def largest_gain_without_head(tables: Tables) -> Estimate:
    """Find the largest change of accuracy when a head is disabled (percentage points)."""
    return _largest_effect(_single_heads(tables, "change"), "change")


def share_of_removable_heads(tables: Tables) -> Estimate:
    """Compute the share of heads that are removable with uniform attention, over all tasks."""
    removable = _single_heads(tables, "removable")["removable"]
    return exact(removable.mean(), cases=len(removable))


def largest_gain_without_layer(tables: Tables) -> Estimate:
    """Find the largest change of accuracy when a layer is disabled (percentage points)."""
    rows = tasks.learned_rows(tables, "disabling", "head", "change")
    return _largest_effect(rows[rows["head"] == WHOLE_LAYER], "change")


def _largest_effect(rows: pd.DataFrame, column: str) -> Estimate:
    """Find the largest number of a column, with bounds that hold for the largest of all rows."""
    values = rows[column]
    lows = values - tasks.bonferroni_factor(len(rows)) * (values - rows[f"{column}_low"])
    return Estimate(values.max(), lows.max(), rows[f"{column}_high"].max())


def _single_heads(tables: Tables, *columns: str) -> pd.DataFrame:
    """Select the rows of single heads of the tasks that are learned."""
    rows = tasks.learned_rows(tables, "disabling", "head", *columns)
    return rows[rows["head"] != WHOLE_LAYER]


MEASURES: dict[str, Measure] = {
    "kovaleva-columns-in-tasks": partial(smallest_pattern_share, pattern=ANY_COLUMN),
    "kovaleva-columns-in-text": pattern_share_in_text,
    "kovaleva-columns-are-special": partial(smallest_pattern_share, pattern=SPECIAL_COLUMN),
    "kovaleva-links-some-head": largest_excess_on_links,
    "kovaleva-links-few-heads": share_of_linked_heads,
    "kovaleva-random-weights-nearly-as-well": gain_of_pretraining,
    "kovaleva-disabled-head-gains": largest_gain_without_head,
    "kovaleva-most-heads-disabled": share_of_removable_heads,
    "kovaleva-disabled-layer-gains": largest_gain_without_layer,
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
