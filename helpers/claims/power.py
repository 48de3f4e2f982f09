"""Power: how likely the test of a claim finds an effect of a known size.

A true value is assumed, with the number of articles and the standard error of this run.  Means are
normal, and are tested by Student's t; shares are binomial, and are tested by Wilson's interval.
The test is adjusted by Holm's method with the p-values of the other claims of the family as they
are.  The probabilities are exact under these assumptions; nothing is drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import betaincinv, nctdtrinc
from scipy.stats import binom, nct, t

from helpers.metrics.statistics import ALPHA, Estimate, p_value, t_quantile, wilson_proportion

FOUND = 0.5  # the power at which an effect counts as one that can be found
POWER_COLUMNS = ("power_at_paper", "least_effect")


@dataclass(frozen=True)
class PlannedTest:
    """The test of a claim, for any true value that one may assume.

    Parameters
    ----------
    estimate
        The claim's number in this run; its interval has the standard error.
    threshold, sign
        The threshold, and 1 if the claim holds above it, -1 if below.
    largest_p
        The p-value below which the test is significant (`largest_significant_p`).
    """

    estimate: Estimate
    threshold: float
    sign: int
    largest_p: float

    @property
    def standard_error(self) -> float:
        """The standard error of this run's number: half of its interval by Student's t."""
        width = self.estimate.high - self.estimate.low
        return width / 2 / t_quantile(self.estimate.df)

    def power(self, effect: float) -> float:
        """Compute the probability of the verdict "supported" if ``effect`` is the true value."""
        if self.estimate.cases:
            share_that_counts = effect if self.sign > 0 else 1 - effect
            return binom.sf(self._least_count() - 1, self.estimate.cases, share_that_counts)
        distance = self.sign * (effect - self.threshold) / self.standard_error
        critical_t = t.isf(self.largest_p / 2, self.estimate.df)  # a larger t is significant
        return nct.sf(critical_t, self.estimate.df, distance)

    def least_effect(self) -> float:
        """Compute the true value, the nearest to the threshold, with a power of one half.

        NaN for a share if even all cases would not be enough.
        """
        cases = self.estimate.cases
        if cases:
            count = self._least_count()
            if count > cases:
                return np.nan
            share_that_counts = betaincinv(count, cases - count + 1, FOUND)
            return share_that_counts if self.sign > 0 else 1 - share_that_counts
        critical_t = t.isf(self.largest_p / 2, self.estimate.df)
        distance = nctdtrinc(self.estimate.df, 1 - FOUND, critical_t)
        return self.threshold + self.sign * distance * self.standard_error

    def _least_count(self) -> int:
        """Find how many cases must speak for the claim; one more than there are if all is too few.

        If the claim holds below its threshold, those speak for it that the share leaves out.
        """
        cases = self.estimate.cases
        threshold = self.threshold if self.sign > 0 else 1 - self.threshold

        def is_supported(count: int) -> bool:
            share = wilson_proportion(count, cases)
            return share.value > threshold and p_value(share, threshold) < self.largest_p

        return bisect_left(range(cases + 1), True, key=is_supported)


def largest_significant_p(family_p_values: Float[np.ndarray, " test"]) -> float:
    """Compute the limit below which Holm's method finds a further test significant.

    The other tests that Holm's method would reject first leave a limit of 5%, divided by the
    number of tests that remain.

    Parameters
    ----------
    family_p_values
        The p-values of the other claims of the family.

    Returns
    -------
    float
        The limit; a p-value below it is significant.
    """
    n_tests = len(family_p_values) + 1
    tests_remaining = n_tests - np.arange(n_tests - 1)
    is_rejected = np.sort(family_p_values) * tests_remaining < ALPHA
    n_rejected = np.logical_and.accumulate(is_rejected).sum()
    return ALPHA / (n_tests - n_rejected)


def power_table(tests: pd.DataFrame, paper_values: Mapping[str, float]) -> pd.DataFrame:
    """Compute how likely each tested claim is supported, by its true value.

    Parameters
    ----------
    tests
        A row for each claim's test against its threshold, with the claim's id as index, and the
        columns family, sign, estimate, threshold and p_value.
    paper_values
        The paper's number of every claim, by id.

    Returns
    -------
    DataFrame
        A row for each test that has a p-value, with the columns `POWER_COLUMNS`.
        ``power_at_paper`` is the probability of "supported" if the paper's number is true; it is
        empty if the paper has none, or one that is not beyond the threshold.  ``least_effect`` is
        the number nearest to the threshold at which the probability is a half, and empty if there
        is none.
    """
    rows = {}
    tests = tests[tests["p_value"].notna()]
    for test in tests.itertuples():
        in_family = tests.loc[tests["family"] == test.family, "p_value"]
        largest_p = largest_significant_p(in_family.drop(test.Index).to_numpy())
        planned = PlannedTest(test.estimate, test.threshold, test.sign, largest_p)
        paper_value = paper_values[test.Index]
        is_paper_beyond = test.sign * (paper_value - test.threshold) > 0
        rows[test.Index] = {
            "power_at_paper": planned.power(paper_value) if is_paper_beyond else np.nan,
            "least_effect": planned.least_effect(),
        }
    return pd.DataFrame.from_dict(rows, orient="index", columns=POWER_COLUMNS)
