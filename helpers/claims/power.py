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
from jaxtyping import Bool, Float
from scipy.stats import binom, t

from helpers.claims.engine import ALPHA, Claim, evaluate_claims
from helpers.claims.tables import Tables
from helpers.metrics.statistics import Estimate, p_value, wilson_proportion

DRAWS = 200  # for each effect
FOUND = 0.5  # the power at which an effect counts as one that can be found
FARTHEST = 1000  # standard errors from the threshold within which an effect is searched
HALVINGS = 40  # of that distance
COLUMNS = (
    "section", "claim", "clusters", "threshold", "paper_value", "power_at_paper", "least_effect",
    "false_support",
)  # fmt: skip


@dataclass(frozen=True)
class PlantedTest:
    """The test of a claim, on data that are drawn around an effect.

    Parameters
    ----------
    estimate
        The claim's number in this run.
    threshold, sign
        The threshold, and 1 if the claim holds above it, -1 if below.
    others
        The p-values of the other claims of the family, sorted.
    seed
        Seed of the draws, which are the same for every effect.
    """

    estimate: Estimate
    threshold: float
    sign: int
    others: Float[np.ndarray, " test"]
    seed: int = 0

    @property
    def standard_error(self) -> float:
        """The standard error of this run's number: half of its interval by Student's t."""
        low, high = self.estimate.low, self.estimate.high
        return (high - low) / 2 / t.ppf(0.975, self.estimate.df)

    def power(self, effect: float) -> float:
        """Compute the share of draws whose verdict is "supported" if ``effect`` is true."""
        draw = self._draw_shares if self.estimate.cases else self._draw_means
        values, p_values = draw(effect, np.random.default_rng(self.seed))
        is_beyond = self.sign * (values - self.threshold) > 0
        return float(np.mean(is_beyond & self._is_significant(p_values)))

    def least_effect(self) -> float:
        """Search the effect nearest to the threshold that is found in half of the draws."""
        too_small = self.threshold
        effect = self.threshold + self.sign * FARTHEST * self.standard_error
        if self.estimate.cases:
            effect = float(np.clip(effect, 0, 1))
        if self.power(effect) < FOUND:
            return np.nan
        for _ in range(HALVINGS):
            middle = (too_small + effect) / 2
            if self.power(middle) < FOUND:
                too_small = middle
            else:
                effect = middle
        return effect

    def _draw_means(
        self, effect: float, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
        """Draw means of normal values of articles, and their p-values.

        Mean and variance of such values are independent: a normal and a chi-square variable.
        """
        df = self.estimate.df
        values = effect + self.standard_error * rng.standard_normal(DRAWS)
        relative_variances = np.ones(DRAWS) if np.isinf(df) else rng.chisquare(df, DRAWS) / df
        errors = self.standard_error * np.sqrt(relative_variances)
        return values, 2 * t.sf(np.abs(values - self.threshold) / errors, df)

    def _draw_shares(
        self, effect: float, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
        """Draw shares of independent cases, and their p-values."""
        cases = self.estimate.cases
        counts = binom.ppf(rng.random(DRAWS), cases, np.clip(effect, 0, 1))
        distinct, index = np.unique(counts, return_inverse=True)
        p_values = [p_value(wilson_proportion(n, cases), self.threshold) for n in distinct]
        return counts / cases, np.array(p_values)[index]

    def _is_significant(self, p_values: Float[np.ndarray, " draw"]) -> Bool[np.ndarray, " draw"]:
        """Test p-values by Holm's method, each together with the `others`."""
        n_tests = len(self.others) + 1
        n_smaller = np.searchsorted(self.others, p_values)
        adjusted_others = self.others * (n_tests - np.arange(n_tests - 1))
        largest_before = np.append(0, np.maximum.accumulate(adjusted_others))[n_smaller]
        return np.maximum(p_values * (n_tests - n_smaller), largest_before) < ALPHA


def power_table(tables: Tables, claims: Iterable[Claim], *, seed: int = 0) -> pd.DataFrame:
    """Compute the probability that each tested claim is supported, by its true value.

    Parameters
    ----------
    tables
        The tables of a run by name.
    claims
        The claims.  Those without an interval, and exact numbers, are not tested.
    seed
        Seed of the draws.

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
        in_family = (tests["family"] == test.family) & (tests["claim"] != test.claim)
        others = np.sort(tests.loc[in_family, "p_value"].to_numpy())
        planted = PlantedTest(test.estimate, test.threshold, test.sign, others, seed)
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
