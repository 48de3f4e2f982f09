"""Power against simulated articles, sums of binomial probabilities, and Holm's method."""

import numpy as np
import pytest
from scipy.stats import binom, norm, t

from helpers.claims.claim import Claim
from helpers.claims.engine import check_claims
from helpers.claims.power import POWER_COLUMNS, PlannedTest, largest_significant_p
from helpers.metrics.statistics import Estimate, exact, holm, mean_interval, wilson_proportion

ALONE = 0.05  # the limit of a test without others
DRAWS = 2000
NOISE = 4 * np.sqrt(0.25 / DRAWS)  # of a share of draws


def estimate_of(articles, spread=1.0):
    """Make the estimate of a mean of articles with this standard deviation."""
    error = spread / np.sqrt(articles)
    half_width = error * t.ppf(0.975, articles - 1)
    return Estimate(0.3, 0.3 - half_width, 0.3 + half_width, df=articles - 1)


@pytest.mark.parametrize("articles", [4, 18, 90])
@pytest.mark.parametrize("effect", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_power_of_a_mean_is_the_share_of_simulated_articles_that_are_found(articles, effect, sign):
    rng = np.random.default_rng(0)
    found = 0
    for values in rng.normal(sign * effect, 1, (DRAWS, articles)):
        estimate = mean_interval(values)
        found += estimate.low > 0 if sign > 0 else estimate.high < 0
    planned = PlannedTest(estimate_of(articles), 0.0, sign, ALONE)
    assert planned.power(sign * effect) == pytest.approx(found / DRAWS, abs=NOISE)


def test_least_effect_of_a_mean_has_a_power_of_one_half():
    normal = PlannedTest(Estimate(0.0, -1.96, 1.96), 2.0, 1, ALONE)  # one standard error
    assert normal.least_effect() == pytest.approx(2 + norm.ppf(0.975), abs=1e-4)
    for sign in (1, -1):
        planned = PlannedTest(estimate_of(12), 0.4, sign, 0.01)
        assert sign * (planned.least_effect() - 0.4) > 0
        assert planned.power(planned.least_effect()) == pytest.approx(0.5, abs=1e-6)


def test_power_of_a_share_is_binomial():
    planned = PlannedTest(wilson_proportion(10, 20), 0.5, 1, ALONE)
    least_count = min(n for n in range(11, 21) if wilson_proportion(n, 20).low > 0.5)
    expected = sum(binom.pmf(n, 20, 0.8) for n in range(least_count, 21))
    assert planned.power(0.8) == pytest.approx(expected)
    assert planned.power(planned.least_effect()) == pytest.approx(0.5)
    below = PlannedTest(wilson_proportion(10, 20), 0.5, -1, ALONE)
    assert below.power(0.2) == pytest.approx(expected)
    assert below.least_effect() == pytest.approx(1 - planned.least_effect())


def test_a_share_of_too_few_cases_can_never_be_supported():
    planned = PlannedTest(wilson_proportion(2, 3), 0.9, 1, ALONE)
    assert np.isnan(planned.least_effect())
    assert planned.power(1.0) == 0


@pytest.mark.parametrize("n_others", [0, 1, 9])
def test_largest_significant_p_is_that_of_holm_among_the_other_claims(n_others):
    rng = np.random.default_rng(0)
    for _ in range(30):
        family_p_values = rng.random(n_others) ** 4
        p_values = rng.random(50) ** 4
        expected = [holm(np.append(family_p_values, p))[-1] < 0.05 for p in p_values]
        assert (p_values < largest_significant_p(family_p_values)).tolist() == expected


@pytest.mark.parametrize("estimate", [estimate_of(18), wilson_proportion(10, 20)])
def test_a_true_value_at_the_threshold_is_seldom_supported(estimate):
    assert PlannedTest(estimate, 0.3, 1, ALONE).power(0.3) <= 0.025 + 1e-12


def test_check_claims_has_the_power_of_each_claim_that_is_tested():
    claims = []
    for claim_id, estimate, fields in (
        ("tested", Estimate(1, 0, 2, df=17), {"above": 0, "paper": 5}),
        ("without the paper's number", Estimate(1, 0, 2, df=17), {"above": 0}),
        ("the paper has a bound", Estimate(1, 0, 2, df=17), {"below": 0.5, "paper": 0.5}),
        ("exact", exact(1), {"above": 0}),
        ("no interval", Estimate(1), {"above": 0}),
    ):
        claim = Claim(
            id=claim_id,
            family="a paper",
            section="3",
            statement="A",
            measure=lambda tables, estimate=estimate: estimate,
            how_measured="",
            unit="share",
            **fields,
        )
        claims.append(claim)
    table = check_claims({}, claims).set_index("id")
    is_tested = table["least_effect"].notna()
    assert is_tested.tolist() == [True, True, True, False, False]
    assert table.loc[~is_tested, list(POWER_COLUMNS)].isna().all(axis=None)
    assert table.loc["tested", "power_at_paper"] > 0.99
    assert table["power_at_paper"].isna().tolist() == [False, True, True, True, True]
    assert 0 < table.loc["tested", "least_effect"] < 5
