"""The claims of Kovaleva et al. (2019), *Revealing the Dark Secrets of BERT*.

Claims about fine-tuning are measured only on tasks that the model learns: the interval of its
accuracy is above the accuracies of the most frequent label and of a bag of words.  On other tasks
the measurements would show the effect of training on noise.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate, difference, exact
from beyond.claims.tables import Tables, rows_where
from beyond.papers.common import tasks

COLUMN = "vertical, with or without diagonal"
SPECIAL_COLUMN = "of these, the darkest column is a special token"
LEAST_ON_LINKS = 0.05  # more attention on links than on random pairs


def smallest_pattern_share(tables: Tables, pattern: str) -> TestedEstimate:
    """Find the smallest share of a pattern over fine-tuned tasks.

    It is exact, because it counts all heads of the models.
    """
    shares = tasks.estimates_by_task(
        tables, "pattern_shares", "share", weights=tasks.FINE_TUNED, pattern=pattern
    )
    return exact(min(shares.values()).value)


def pattern_share_in_text(tables: Tables) -> TestedEstimate:
    """Read the share of the heads whose map of the text has a column; it is exact."""
    where = {"task": "none (segments of the text)", "pattern": COLUMN}
    return exact(rows_where(tables, "pattern_shares", **where)["share"].iloc[0])


def largest_excess_on_links(tables: Tables) -> TestedEstimate:
    """Find the largest difference between attention on links and on random pairs of a head.

    The bounds hold for the largest of all heads.
    """
    rows = rows_where(tables, "semantic_links")
    values = rows["difference"]
    lows = values - tasks.bonferroni_factor(len(rows)) * (values - rows["difference_low"])
    return TestedEstimate(values.max(), lows.max(), rows["difference_high"].max())


def share_of_linked_heads(tables: Tables) -> TestedEstimate:
    """Compute the share of the heads with more attention on links, of all heads of the model."""
    rows = rows_where(tables, "semantic_links")
    return exact((rows["difference"] > LEAST_ON_LINKS).mean())


def gain_of_pretraining(tables: Tables) -> TestedEstimate:
    """Compute the accuracy from pretrained minus that from random weights: a lead in most tasks."""
    accuracies = partial(
        tasks.estimates_by_task, tables, "fine_tuning", "accuracy", clusters="test"
    )
    random = accuracies(start=tasks.RANDOM)
    leads = [
        difference(pretrained, random[task])
        for task, pretrained in accuracies(start=tasks.PRETRAINED).items()
    ]
    return sorted(leads)[len(leads) // 2]


CLAIMS = read_claims(
    Path(__file__).with_suffix(".toml"),
    {
        "kovaleva-columns-in-tasks": partial(smallest_pattern_share, pattern=COLUMN),
        "kovaleva-columns-in-text": pattern_share_in_text,
        "kovaleva-columns-are-special": partial(smallest_pattern_share, pattern=SPECIAL_COLUMN),
        "kovaleva-links-some-head": largest_excess_on_links,
        "kovaleva-links-few-heads": share_of_linked_heads,
        "kovaleva-random-weights-nearly-as-well": gain_of_pretraining,
    },
)
