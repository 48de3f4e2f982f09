"""Estimates of claims: p-values and differences by hand."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from beyond.claims.estimates import TestedEstimate, difference, p_value
from beyond.papers.common.statistics import mean_interval

SHARE = TestedEstimate(0.9, 0.8, 0.98, df=5, limits=(0.0, 1.0))
BY_LOGARITHMS = 2 * t.sf(np.log(0.9 / 0.4) / np.log(0.9 / 0.8) * t.ppf(0.975, 5), 5)


@pytest.mark.parametrize(
    ("estimate", "threshold", "p"),
    [
        (TestedEstimate(1.96, 0, 3), 0, 0.05),  # the bound is at the threshold
        (TestedEstimate(-1.96, -5, 0), 0, 0.05),
        (TestedEstimate(4, 0, 9, df=3), 9, 0.05),
        (TestedEstimate(0, -1, 1), 0, 1),
        (TestedEstimate(2, 2, 2), 1, np.nan),
        (TestedEstimate(2), 0, np.nan),
        (TestedEstimate(0.5, 0.4, 0.6, own_p=0.3), 0, 0.3),
        (SHARE, 0.8, 0.05),
        (SHARE, 0.98, 0.05),
        (SHARE, 0.4, BY_LOGARITHMS),  # of the distances from the limit
        (TestedEstimate(0.5, 0.0, 0.6, limits=(0.0, 1.0)), 0.1, 1),  # the interval ends at 0
    ],
)
def test_p_value_of_an_interval_by_hand(estimate, threshold, p):
    assert p_value(estimate, threshold) == pytest.approx(p, abs=1e-4, nan_ok=True)


def test_p_value_of_a_mean_is_that_of_the_t_test():
    values = np.random.default_rng(4).normal(0.3, 1, 18)
    estimate = TestedEstimate(*astuple(mean_interval(values)))
    assert p_value(estimate) == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_differences_and_scaled_estimates_by_hand():
    independent = difference(TestedEstimate(5, 2, 6), TestedEstimate(1, 0, 5))
    assert astuple(independent)[:3] == pytest.approx((4, 4 - np.hypot(3, 4), 4 + np.hypot(1, 1)))
    scaled = TestedEstimate(0.5, 0.4, 0.7, df=3, own_p=0.2).scaled(100)
    assert (*astuple(scaled)[:4], scaled.own_p) == pytest.approx((50, 40, 70, 3, 0.2))
