"""Power against simulated articles."""

import numpy as np
import pytest
from scipy.stats import norm, t

from beyond.claims.claim import Claim
from beyond.claims.engine import check_claims
from beyond.claims.power import POWER_COLUMNS, Comparison, PlannedTest, power_table
from helpers.metrics.statistics import Estimate, exact, mean_interval

ALONE = 0.05  # the limit of a test without others
DRAWS = 2000
NOISE = 4 * np.sqrt(0.25 / DRAWS)  # of a share of draws


def estimate_of(articles, spread=1.0):
    """Make the estimate of a mean of articles with this standard deviation."""
    error = spread / np.sqrt(articles)
    half_width = error * t.ppf(0.975, articles - 1)
    return Estimate(0.3, 0.3 - half_width, 0.3 + half_width, df=articles - 1)


@pytest.fixture(scope="module", params=[4, 18, 90])
def intervals(request):
    """The number of articles, and the intervals of the means of simulated articles around 0."""
    draws = np.random.default_rng(0).normal(0, 1, (DRAWS, request.param))
    return request.param, [mean_interval(values) for values in draws]


@pytest.mark.parametrize("effect", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_power_of_a_mean_is_the_share_of_simulated_articles_that_are_found(intervals, effect, sign):
    """An effect moves the interval of a mean; for a negative one, articles are mirrored as well."""
    articles, around_0 = intervals
    share_found = np.mean([estimate.low + effect > 0 for estimate in around_0])
    planned = PlannedTest(estimate_of(articles), 0.0, sign, ALONE)
    assert planned.power(sign * effect) == pytest.approx(share_found, abs=NOISE)


def test_an_effect_moves_the_interval_of_a_mean():
    """The test above rests on it."""
    values = np.random.default_rng(0).normal(0, 1, 18)
    around_0 = mean_interval(values)
    for sign in (1, -1):
        moved = mean_interval(sign * (values + 0.3))
        ends = sign * (around_0.low + 0.3), sign * (around_0.high + 0.3)
        assert (moved.low, moved.high) == pytest.approx(sorted(ends))


def test_least_effect_of_a_mean_has_a_power_of_one_half():
    normal = PlannedTest(Estimate(0.0, -1.96, 1.96), 2.0, 1, ALONE)  # one standard error
    assert normal.least_effect() == pytest.approx(2 + norm.ppf(0.975), abs=1e-4)
    for sign in (1, -1):
        planned = PlannedTest(estimate_of(12), 0.4, sign, 0.01)
        assert sign * (planned.least_effect() - 0.4) > 0
        assert planned.power(planned.least_effect()) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("n_others", [0, 1, 9])
def test_power_is_at_the_level_of_the_family(n_others):
    comparisons = [Comparison("a", "family", 1, estimate_of(18), 0.0)]
    comparisons += [Comparison(f"b{i}", "family", 1, estimate_of(9), 0.0) for i in range(n_others)]
    comparisons += [Comparison("c", "another family", 1, estimate_of(9), 0.0)]
    comparisons += [Comparison("exact", "family", 1, exact(1), 0.0)]  # is no test
    papers = {comparison.id: 0.9 for comparison in comparisons}
    power = power_table(comparisons, papers).loc["a", "power_at_paper"]
    level = 0.05 / (n_others + 1)
    assert power == PlannedTest(estimate_of(18), 0.0, 1, level).power(0.9)


@pytest.mark.parametrize("estimate", [estimate_of(18), estimate_of(4)])
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


@pytest.mark.parametrize("df", [0.01, 0.3, 0.7])
def test_power_with_about_one_cluster_is_none_at_all(df):
    planned = PlannedTest(Estimate(0.3, -5.0, 5.0, df=df), 0.0, 1, ALONE / 20)
    assert planned.power(100.0) == 0
    assert np.isnan(planned.least_effect())
