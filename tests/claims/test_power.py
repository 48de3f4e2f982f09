"""Operating characteristics against formulas: normal means, and shares."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, nct, norm, t

from helpers.claims.engine import Family
from helpers.claims.power import DRAWS, PlantedTest, largest_significant_p, power_table
from helpers.metrics.statistics import Estimate, exact, holm, mean_interval, wilson_proportion

ALONE = 0.05  # the limit of a test without others
NOISE = 4 * np.sqrt(0.25 / DRAWS)  # of a share of draws


def estimate_of(articles, spread=1.0):
    """Make the estimate of a mean of articles with this standard deviation."""
    error = spread / np.sqrt(articles)
    half_width = error * t.ppf(0.975, articles - 1)
    return Estimate(0.3, 0.3 - half_width, 0.3 + half_width, df=articles - 1)


@pytest.mark.parametrize("articles", [4, 18, 90])
@pytest.mark.parametrize("effect", [0.0, 0.5, 1.0])
def test_power_of_a_mean_is_that_of_the_t_test(articles, effect):
    planted = PlantedTest(estimate_of(articles), 0.0, 1, ALONE)
    critical = t.ppf(0.975, articles - 1)
    expected = nct.sf(critical, articles - 1, effect * np.sqrt(articles))
    assert planted.power(effect) == pytest.approx(expected, abs=NOISE)
    below = PlantedTest(estimate_of(articles), 0.0, -1, ALONE)
    assert below.power(-effect) == pytest.approx(expected, abs=NOISE)


def test_power_by_draws_is_that_of_means_of_articles_one_by_one():
    rng = np.random.default_rng(0)
    supported = []
    for _ in range(400):
        low = mean_interval(rng.normal(0.6, 1, 12)).low
        supported.append(low > 0)
    planted = PlantedTest(estimate_of(12), 0.0, 1, ALONE)
    assert planted.power(0.6) == pytest.approx(np.mean(supported), abs=1.5 * NOISE)


def test_least_effect_is_found_in_half_of_the_draws():
    planted = PlantedTest(Estimate(0.0, -1.96, 1.96), 2.0, 1, ALONE)  # one standard error
    assert planted.least_effect() == pytest.approx(2 + norm.ppf(0.975), abs=0.2)


def test_power_of_a_share_is_binomial():
    planted = PlantedTest(wilson_proportion(10, 20), 0.5, 1, ALONE)
    least_count = min(n for n in range(11, 21) if wilson_proportion(n, 20).low > 0.5)
    expected = binom.sf(least_count - 1, 20, 0.8)
    assert planted.power(0.8) == pytest.approx(expected, abs=NOISE)
    assert 0.5 < planted.least_effect() < 0.9


def test_a_share_of_too_few_cases_can_never_be_supported():
    planted = PlantedTest(wilson_proportion(2, 3), 0.9, 1, ALONE)
    assert np.isnan(planted.least_effect())


@pytest.mark.parametrize("n_others", [0, 1, 9])
def test_largest_significant_p_is_that_of_holm_among_the_other_claims(n_others):
    rng = np.random.default_rng(0)
    for _ in range(30):
        family_p_values = rng.random(n_others) ** 4
        p_values = rng.random(50) ** 4
        expected = [holm(np.append(family_p_values, p))[-1] < 0.05 for p in p_values]
        assert (p_values < largest_significant_p(family_p_values)).tolist() == expected


def test_power_table_has_a_row_for_each_claim_that_is_tested():
    family = Family("a paper")
    for statement, estimate, fields in (
        ("tested", Estimate(1, 0, 2, df=17), {"above": 0, "paper": 5}),
        ("without the paper's number", Estimate(1, 0, 2, df=17), {"above": 0}),
        ("the paper has a bound", Estimate(1, 0, 2, df=17), {"below": 0.5, "paper": 0.5}),
        ("exact", exact(1), {"above": 0}),
        ("no interval", Estimate(1), {"above": 0}),
    ):
        family.claim("3", statement, how_measured="", **fields)(lambda _, number=estimate: number)
    table = power_table({}, family.claims).set_index("claim")
    assert list(table.index) == ["tested", "without the paper's number", "the paper has a bound"]
    assert table.loc["tested", "power_at_paper"] > 0.99
    assert table["power_at_paper"].isna().tolist() == [False, True, True]
    assert (table["false_support"] < 0.1).all()
    assert (table["clusters"] == 18).all()
    again = power_table({}, family.claims).set_index("claim")
    pd.testing.assert_frame_equal(again, table)
