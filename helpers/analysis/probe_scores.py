"""Attachment scores of the probes, and the table of them (section 5, Table 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_interval, paired_interval

if TYPE_CHECKING:  # figures need the names below, not torch
    from torch import nn

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
RANDOM_ATTN = "Random-init Attn"
RANDOM_ATTN_GLOVE = "Random-init Attn + GloVe"
ATTN = "Attn"
ATTN_GLOVE = "Attn + GloVe"
STRUCTURAL = "Structural probe"

UAS = "UAS"
UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
CONTROL_TASK = "control task"
SELECTIVITY = "selectivity"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # what the paper's Table 3 is in
COLUMNS = ["probe", "metric", "value", "ci_low", "ci_high", "n_train", "n_dev", "paper_value"]
# What section 5 says of two probes.
COMPARISONS = (
    (ATTN, RIGHT_BRANCHING), (ATTN_GLOVE, ATTN), (ATTN_GLOVE, DISTANCES_GLOVE),
    (ATTN_GLOVE, RANDOM_ATTN_GLOVE), (STRUCTURAL, ATTN_GLOVE),
)  # fmt: skip


@dataclass(frozen=True)
class Counts:
    """How many attachments are right, for every seed and dev sentence, and out of how many."""

    right: Int[np.ndarray, "seed sentence"]
    total: Int[np.ndarray, " sentence"]

    @property
    def by_seed(self) -> np.ndarray:
        """Percent right of each seed."""
        return 100 * self.right.sum(1) / max(self.total.sum(), 1)


@dataclass(frozen=True)
class ProbeResult:
    """The scores of one probe on dev, by metric, and the trained model, a member a seed.

    ``articles`` has the article of each dev sentence.
    """

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    articles: Shaped[np.ndarray, " sentence"]
    model: nn.Module | None = field(default=None, repr=False)

    def by_article(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return how many are right in each article, a seed on average, and out of how many."""
        owner, counts = np.unique(self.articles, return_inverse=True)[1], self.counts[metric]
        return np.bincount(owner, counts.right.mean(0)), np.bincount(owner, counts.total)


def pool(results: Sequence[ProbeResult]) -> ProbeResult:
    """Join results of a probe on the same dev sentences as if they were seeds of one.

    A metric may be of the first of them alone.
    """
    counts = {}
    for metric, own in results[0].counts.items():
        right = [result.counts[metric].right for result in results if metric in result.counts]
        counts[metric] = Counts(np.concatenate(right), own.total)
    return replace(results[0], counts=counts, model=None)


def with_selectivity(result: ProbeResult) -> ProbeResult:
    """Add how far a probe's UAS is above its accuracy on the control task.

    Both leave punctuation out (Hewitt and Liang 2019, section 2.2).
    """
    own, random = (result.counts[name] for name in (UAS_WITHOUT_PUNCTUATION, CONTROL_TASK))
    above = Counts(own.right - random.right, own.total)
    return replace(result, counts={**result.counts, SELECTIVITY: above})


def probe_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return probes.csv: a row for every probe and metric, in percent; a mean over seeds.

    The 95% interval is a bootstrap over the dev articles; it does not cover the choice of training
    data.  The paper's value stands beside the metric that it is in: punctuation is left out.
    """
    rows, paper = [], values_of("Table 3")
    for result in results:
        for metric, counts in result.counts.items():
            low, high = bootstrap_interval(*result.by_article(metric))
            sizes = result.n_train, len(result.articles)
            known = paper.get(result.probe, np.nan) if metric in COMPARED else np.nan
            value = counts.by_seed.mean()
            rows.append((result.probe, metric, value, 100 * low, 100 * high, *sizes, known))
    return pd.DataFrame(rows, columns=COLUMNS)


def difference_table(results: Mapping[str, ProbeResult]) -> pd.DataFrame:
    """Return how far apart the probes of `COMPARISONS` are, in points, punctuation left out.

    Columns: probe, other, difference, ci_low, ci_high: a 95% bootstrap interval over the dev
    articles, which are the same ones for both.
    """
    rows = []
    for pair in COMPARISONS:
        sides = []
        for result in (results[name] for name in pair):
            metric = next(name for name in COMPARED if name in result.counts)
            sides.append(result.by_article(metric))
        one, other = (right.sum() / max(total.sum(), 1) for right, total in sides)
        low, high = paired_interval(*sides)
        rows.append((*pair, 100 * (one - other), 100 * low[0], 100 * high[0]))
    return pd.DataFrame(rows, columns=["probe", "other", "difference", "ci_low", "ci_high"])


def seed_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return the spread over seeds: probe, metric, seeds, mean, sd (of a sample), min, max."""
    by_seed = [
        (result.probe, metric, value)
        for result in results
        for metric, counts in result.counts.items()
        for value in counts.by_seed
    ]
    table = pd.DataFrame(by_seed, columns=["probe", "metric", "value"])
    spread = ["count", "mean", "std", "min", "max"]
    table = table.groupby(["probe", "metric"], sort=False)["value"].agg(spread).reset_index()
    return table.rename(columns={"count": "seeds", "std": "sd"})
