"""Estimates of claims: p-values and differences by hand."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from beyond.claims.estimates import TestedEstimate, difference, p_value
from beyond.papers.common.statistics import mean_interval
from helpers.metrics.statistics import ratio


def test_p_of_a_number_with_limits_compares_distances_from_the_limit():
    share = TestedEstimate(0.9, 0.8, 0.98, df=5, limits=(0.0, 1.0))
    assert p_value(share, 0.8) == pytest.approx(0.05)
    assert p_value(share, 0.98) == pytest.approx(0.05)
    assert p_value(share, 0.4) == pytest.approx(
        2 * t.sf(np.log(0.9 / 0.4) / np.log(0.9 / 0.8) * t.ppf(0.975, 5), 5)
    )
    assert (
        p_value(TestedEstimate(0.5, 0.0, 0.6, limits=(0.0, 1.0)), 0.1) == 1
    )  # the interval ends at 0


def test_p_value_of_a_test_of_its_own_counts():
    assert p_value(TestedEstimate(0.5, 0.4, 0.6, own_p=0.3), 0) == 0.3


def test_difference_of_estimates_by_hand():
    independent = difference(TestedEstimate(5, 2, 6), TestedEstimate(1, 0, 5))
    assert astuple(independent)[:3] == pytest.approx(
        (4, 4 - 5, 4 + np.sqrt(2))
    )  # hypot(3, 4), hypot(1, 1)


def test_p_value_of_an_interval_by_hand():
    assert p_value(TestedEstimate(1.96, 0, 3)) == pytest.approx(0.05, abs=1e-4)  # the bound is at 0
    assert p_value(TestedEstimate(-1.96, -5, 0)) == pytest.approx(0.05, abs=1e-4)
    assert p_value(TestedEstimate(4, 0, 9, df=3), threshold=9) == pytest.approx(0.05)
    assert p_value(TestedEstimate(0, -1, 1)) == 1
    assert np.isnan(p_value(TestedEstimate(2, 2, 2), 1))
    assert np.isnan(p_value(TestedEstimate(2)))


@pytest.mark.parametrize("articles", [4, 18, 90])
def test_p_value_of_a_mean_is_that_of_the_t_test(articles):
    values = np.random.default_rng(articles).normal(0.3, 1, articles)
    assert p_value(TestedEstimate(*astuple(mean_interval(values)))) == pytest.approx(
        ttest_1samp(values, 0).pvalue
    )
    by_bootstrap = TestedEstimate(*astuple(ratio(values, np.ones(articles))))
    if articles > 4:
        assert p_value(by_bootstrap) == pytest.approx(ttest_1samp(values, 0).pvalue, rel=0.2)


def test_scaled_estimates_keep_what_a_test_needs():
    scaled = TestedEstimate(0.5, 0.4, 0.7, df=3, own_p=0.2).scaled(100)
    assert astuple(scaled)[:4] == pytest.approx((50, 40, 70, 3))
    assert scaled.own_p == 0.2
