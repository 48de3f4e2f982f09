"""Operating characteristics of claims: how often each test finds an effect of a known size.

Values of articles are planted around an effect, with the number of articles and the standard error
of this run.  Each draw is tested as the run is: by Student's t, adjusted by Holm's method, with the
p-values of the other claims of the family as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.optimize import bisect
from scipy.stats import binom, t

from helpers.claims.engine import ALPHA, Claim, evaluate_claims
from helpers.claims.tables import Tables
from helpers.metrics.statistics import Estimate, p_value, wilson_proportion

DRAWS = 200  # for each effect
FOUND = 0.5  # the power at which an effect counts as one that can be found
FARTHEST = 1000  # standard errors from the threshold within which an effect is searched
JUST_BELOW = 1e-9  # shares of draws are further apart
COLUMNS = (
    "section", "claim", "clusters", "threshold", "paper_value", "power_at_paper", "least_effect",
    "false_support",
)  # fmt: skip

Draws = Float[np.ndarray, " draw"]


@dataclass(frozen=True)
class PlantedTest:
    """The test of a claim, on data that are drawn around an effect.

    Parameters
    ----------
    estimate
        The claim's number in this run.
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
        return width / 2 / t.ppf(0.975, self.estimate.df)

    def power(self, effect: float) -> float:
        """Compute the share of draws whose verdict is "supported" if ``effect`` is true."""
        draw = self._draw_shares if self.estimate.cases else self._draw_means
        values, p_values = draw(effect, np.random.default_rng(0))  # the same for every effect
        is_beyond = self.sign * (values - self.threshold) > 0
        return float(np.mean(is_beyond & (p_values < self.largest_p)))

    def least_effect(self) -> float:
        """Search the effect nearest to the threshold that is found in half of the draws."""
        farthest = self.threshold + self.sign * FARTHEST * self.standard_error
        if self.estimate.cases:
            farthest = float(np.clip(farthest, 0, 1))
        if self.power(farthest) < FOUND:
            return np.nan
        return bisect(
            lambda effect: self.power(effect) - FOUND + JUST_BELOW, self.threshold, farthest
        )

    def _draw_means(self, effect: float, rng: np.random.Generator) -> tuple[Draws, Draws]:
        """Draw means of normal values of articles, and their p-values.

        Mean and variance of such values are independent: a normal and a chi-square variable.
        """
        df = self.estimate.df
        values = effect + self.standard_error * rng.standard_normal(DRAWS)
        relative_variances = np.ones(DRAWS) if np.isinf(df) else rng.chisquare(df, DRAWS) / df
        errors = self.standard_error * np.sqrt(relative_variances)
        return values, 2 * t.sf(np.abs(values - self.threshold) / errors, df)

    def _draw_shares(self, effect: float, rng: np.random.Generator) -> tuple[Draws, Draws]:
        """Draw shares of independent cases, and their p-values."""
        cases = self.estimate.cases
        counts = binom.ppf(rng.random(DRAWS), cases, np.clip(effect, 0, 1))
        distinct, index = np.unique(counts, return_inverse=True)
        p_values = [p_value(wilson_proportion(n, cases), self.threshold) for n in distinct]
        return counts / cases, np.array(p_values)[index]


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


def power_table(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Compute the probability that each tested claim is supported, by its true value.

    Parameters
    ----------
    tables
        The tables of a run by name.
    claims
        The claims.  Those without an interval, and exact numbers, are not tested.

    Returns
    -------
    DataFrame
        A row for each tested claim, with the columns `COLUMNS`.  ``clusters`` is the number of
        articles, documents or cases.  ``power_at_paper`` is the probability of "supported" if the
        paper's number is true; it is empty if the paper has none, or one that is not beyond the
        threshold.  ``least_effect`` is the number nearest to the threshold at which the probability
        is a half, and empty if there is none.  ``false_support`` is the probability at the
        threshold.
    """
    claims = list(claims)
    _, tests = evaluate_claims(tables, claims)
    tests = tests[(tests["question"] == "verdict") & tests["p_value"].notna()]
    rows = []
    for test in tests.itertuples():
        in_family = tests.loc[tests["family"] == test.family, "p_value"]
        largest_p = largest_significant_p(in_family.drop(test.Index).to_numpy())
        planted = PlantedTest(test.estimate, test.threshold, test.sign, largest_p)
        claim = claims[test.claim]
        is_paper_beyond = test.sign * (claim.paper - test.threshold) > 0
        rows.append(
            {
                "section": claim.section,
                "claim": claim.statement,
                "clusters": test.estimate.cases or test.estimate.df + 1,
                "threshold": test.threshold,
                "paper_value": claim.paper,
                "power_at_paper": planted.power(claim.paper) if is_paper_beyond else np.nan,
                "least_effect": planted.least_effect(),
                "false_support": planted.power(test.threshold),
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.replace(np.inf, np.nan)  # clusters of a normal interval
