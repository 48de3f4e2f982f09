"""Attachment scores of the probes, and the table of them (section 5, Table 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.analysis.paper import paper_table3
from helpers.analysis.statistics import bootstrap_interval

if TYPE_CHECKING:  # figures need the names below, not torch
    from torch import nn

RIGHT_BRANCHING = "Right-branching"
DISTANCES_GLOVE = "Distances + GloVe"
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
    """The scores of one probe on dev, by metric, and the trained model, a member a seed."""

    probe: str
    counts: Mapping[str, Counts]
    n_train: int
    n_dev: int
    model: nn.Module | None = field(default=None, repr=False)

    def rows(self) -> list[dict[str, object]]:
        """Return the probe's rows of probes.csv: the mean over seeds, in percent.

        The 95% interval is a bootstrap over dev sentences, whose counts are summed over seeds;
        it does not cover the choice of training data.  The paper's value stands beside the
        metric that it is in: punctuation is left out.
        """
        rows, paper = [], paper_table3()
        for metric, counts in self.counts.items():
            seeds = len(counts.right)
            low, high = bootstrap_interval(counts.right.sum(0), seeds * counts.total)
            rows.append(
                {
                    "probe": self.probe,
                    "metric": metric,
                    "value": counts.by_seed.mean(),
                    "ci_low": 100 * low,
                    "ci_high": 100 * high,
                    "n_train": self.n_train,
                    "n_dev": self.n_dev,
                    "paper_value": paper.get(self.probe, np.nan) if metric in COMPARED else np.nan,
                }
            )
        return rows


def pool(results: Sequence[ProbeResult], probe: str) -> ProbeResult:
    """Join results on the same dev sentences as if they were seeds of one probe."""
    counts = {
        metric: Counts(
            np.concatenate([result.counts[metric].right for result in results]),
            results[0].counts[metric].total,
        )
        for metric in results[0].counts
    }
    return replace(results[0], probe=probe, counts=counts, model=None)


def with_selectivity(result: ProbeResult, control: ProbeResult) -> ProbeResult:
    """Add a probe's accuracy on the control task, and how far its UAS is above that.

    Both leave punctuation out (Hewitt and Liang 2019, section 2.2).
    """
    own, random = (one.counts[UAS_WITHOUT_PUNCTUATION] for one in (result, control))
    above = Counts(own.right - random.right, own.total)
    return replace(result, counts={**result.counts, CONTROL_TASK: random, SELECTIVITY: above})


def probe_table(results: Iterable[ProbeResult]) -> pd.DataFrame:
    """Return probes.csv: a row for every probe and metric; scores in percent."""
    return pd.DataFrame([row for result in results for row in result.rows()])


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
