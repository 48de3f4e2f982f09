"""Power: how likely the test of a claim finds an effect of a known size.

A true value is assumed, with the number of articles and the standard error of this run.  Means are
normal, and are tested by Student's t at the level of the family: 5% divided by the number of its
claims (Bonferroni).  No p-value enters, so the power of a claim can decide whether it is tested.
Holm's method, which tests the claims, finds at least as much.  The probabilities are exact under
these assumptions; nothing is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import nctdtrinc
from scipy.stats import nct, t

from helpers.metrics.statistics import ALPHA, Estimate, t_quantile

FOUND = 0.5  # the power at which an effect counts as one that can be found
# With about one cluster, t has to be enormous: no effect is found, and scipy does not end.
LARGEST_T = 1000.0
POWER_COLUMNS = ("power_at_paper", "least_effect")


class Comparison(NamedTuple):
    """A number of a claim, and the number that it is compared with.

    ``sign`` is 1 if the claim holds above that number, and -1 if it holds below.
    """

    id: str
    family: str
    sign: int
    estimate: Estimate
    threshold: float


@dataclass(frozen=True)
class PlannedTest:
    """The test of a claim, for any true value that one may assume.

    Parameters
    ----------
    estimate
        The claim's number in this run; its interval has the standard error.
    threshold, sign
        The threshold, and 1 if the claim holds above it, -1 if below.
    level
        The p-value below which the test is significant.
    """

    estimate: Estimate
    threshold: float
    sign: int
    level: float

    @property
    def standard_error(self) -> float:
        """The standard error of this run's number: half of its interval by Student's t."""
        width = self.estimate.high - self.estimate.low
        return width / 2 / t_quantile(self.estimate.df)

    @property
    def critical_t(self) -> float:
        """The t above which the test is significant."""
        return t.isf(self.level / 2, self.estimate.df)

    def power(self, effect: float) -> float:
        """Compute the probability of the verdict "supported" if ``effect`` is the true value."""
        if self.critical_t > LARGEST_T:
            return 0.0
        distance = self.sign * (effect - self.threshold) / self.standard_error
        return nct.sf(self.critical_t, self.estimate.df, distance)

    def least_effect(self) -> float:
        """Compute the true value, the nearest to the threshold, with a power of one half.

        It is NaN if there are too few clusters for any.
        """
        if self.critical_t > LARGEST_T:
            return np.nan
        distance = nctdtrinc(self.estimate.df, 1 - FOUND, self.critical_t)
        return self.threshold + self.sign * distance * self.standard_error


def power_table(
    comparisons: Sequence[Comparison], paper_values: Mapping[str, float]
) -> pd.DataFrame:
    """Compute how likely each claim is supported, by its true value.

    Parameters
    ----------
    comparisons
        Each claim's number, and the threshold that it is to be compared with.
    paper_values
        The paper's number of every claim, by id.

    Returns
    -------
    DataFrame
        A row for each claim whose number has a standard error, by id, with the columns
        `POWER_COLUMNS`.  ``power_at_paper`` is the probability of "supported" if the paper's number
        is true; it is empty if the paper has none, or one that is not beyond the threshold.
        ``least_effect`` is the number nearest to the threshold at which the probability is a half.
    """
    measured = [comparison for comparison in comparisons if _has_standard_error(comparison)]
    family_sizes = Counter(comparison.family for comparison in measured)
    rows = {}
    for claim_id, family, sign, estimate, threshold in measured:
        planned = PlannedTest(estimate, threshold, sign, ALPHA / family_sizes[family])
        paper_value = paper_values[claim_id]
        is_paper_beyond = sign * (paper_value - threshold) > 0
        rows[claim_id] = {
            "power_at_paper": planned.power(paper_value) if is_paper_beyond else np.nan,
            "least_effect": planned.least_effect(),
        }
    return pd.DataFrame.from_dict(rows, orient="index", columns=POWER_COLUMNS, dtype=float)


def _has_standard_error(comparison: Comparison) -> bool:
    """Tell whether a number can be tested, and has an interval with a width."""
    estimate = comparison.estimate
    has_width = estimate.high > estimate.low  # NaN has none
    return bool(has_width and not np.isnan(estimate.value - comparison.threshold))
