from dataclasses import astuple

import numpy as np
import pytest
from simulated_clusters import SETS, clustered, covers

from helpers.metrics import statistics
from helpers.metrics.statistics import (
    Estimate,
    bootstrap_intervals,
    bootstrap_t_test,
    effective_clusters,
    holm,
    ratio,
    resampled_ratios,
    resampled_sums,
    weighted_ratios,
    with_seed_noise,
)


def test_resampled_sums_are_sums_of_as_many_clusters():
    counts = np.array([[1, 0], [0, 10], [0, 100]])
    sums = resampled_sums(counts)
    # 1s, 10s and 100s count each cluster in a resample of three.
    weights = np.column_stack([sums[:, 0], sums[:, 1] % 100 // 10, sums[:, 1] // 100])
    assert (weights.sum(axis=1) == 3).all()
    assert len(np.unique(weights, axis=0)) == 10  # every multiset of three out of three occurs


def test_ratio_agrees_with_resampling_one_by_one():
    rng = np.random.default_rng(5)
    total = rng.integers(1, 8, 60)
    right = rng.binomial(total, 0.6)
    chosen = rng.integers(0, 60, (4000, 60))
    slow = right[chosen].sum(axis=1) / total[chosen].sum(axis=1)
    estimate = ratio(right, total)
    assert estimate.value == right.sum() / total.sum()
    assert [estimate.low, estimate.high] == pytest.approx(
        np.quantile(slow, [0.025, 0.975]), abs=0.01
    )


def test_weighted_ratios_of_two_are_a_paired_difference():
    rng = np.random.default_rng(3)
    total = rng.integers(1, 8, (40, 2))
    right = rng.binomial(total, [0.6, 0.4])
    replicates = resampled_ratios(right, total, 10_000)
    expected = np.quantile(replicates[:, 0] - replicates[:, 1], [0.025, 0.975])
    weighted = weighted_ratios(right, total, [1, -1])
    assert [weighted.low, weighted.high] == pytest.approx(expected, abs=0.02)
    assert 20 < weighted.df < 39  # clusters differ in size
    means = right.sum(axis=0) / total.sum(axis=0)
    assert weighted.value == pytest.approx(means[0] - means[1])
    assert weighted_ratios(right, total).value == pytest.approx(means.mean())


def test_bootstrap_intervals_share_resamples_between_columns():
    right = np.array([[1, 2, 0], [0, 0, 0], [3, 6, 0]])
    total = np.array([[2, 4, 0], [2, 4, 0], [4, 8, 0]])
    low, high = bootstrap_intervals(right, total)
    assert low[0] == low[1] == ratio(right[:, 0], total[:, 0]).low
    assert high[0] == high[1]
    assert np.isnan([low[2], high[2]]).all()


@pytest.mark.parametrize(
    ("right", "total", "expected"),
    [
        ([1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1]),  # resamples without any do not count
        # one cluster says nothing of how much clusters differ
        ([3], [4], [0.75, np.nan, np.nan]),
        ([3, 0], [4, 0], [0.75, np.nan, np.nan]),
        ([], [], [np.nan, np.nan, np.nan]),
    ],
)
def test_ratio_of_few_clusters(right, total, expected):
    estimate = ratio(np.array(right), np.array(total))
    assert astuple(estimate)[:3] == pytest.approx(expected, nan_ok=True)


def test_effective_clusters_by_hand():
    assert effective_clusters(np.ones(7)) == 7
    assert effective_clusters(np.array([4, 2, 2, 0])) == pytest.approx(64 / 24, abs=1e-6)
    by_column = effective_clusters(np.array([[1, 5, 0], [1, 0, 0]]))
    assert by_column.tolist() == pytest.approx([2, 1, np.nan], nan_ok=True)
    estimate = ratio(np.array([3, 1, 2, 0]), np.array([4, 2, 2, 0]))
    assert estimate.df == pytest.approx(64 / 24 - 1, abs=1e-6)


def test_weighted_ratios_average_the_shares_of_clusters():
    """The first ratio has all cases in one cluster, the second in both."""
    total = np.array([[6, 1], [0, 1]])
    weighted = weighted_ratios(total / 2, total, [0.5, 0.5])
    assert weighted.df == pytest.approx(1 / (0.75**2 + 0.25**2) - 1, abs=1e-6)


def test_effective_clusters_are_the_degrees_of_freedom_of_unequal_clusters():
    """With a few large clusters, intervals cover the truth about as often as they say."""
    rng = np.random.default_rng(2)
    sizes = np.array([60, 50, 40, 10, 8, 6, 5, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1])
    means = rng.normal(0.5, 0.2, (len(sizes), SETS))
    right = sizes[:, None] * means
    low, high = bootstrap_intervals(right, np.broadcast_to(sizes[:, None], right.shape))
    by_kish = covers((low, high), 0.5)
    assert 0.93 <= by_kish <= 0.985


def test_seed_noise_widens_an_interval_by_hand():
    over_texts = Estimate(60.0, 57.0, 64.0)
    # Student's interval of two scores that are 2 apart: 12.7 standard errors of 1 each way.
    half = 12.7062
    widened = with_seed_noise(over_texts, np.array([59.0, 61.0]))
    assert widened.value == 60
    assert widened.low == pytest.approx(60 - (3**2 + half**2) ** 0.5, abs=1e-3)
    assert widened.high == pytest.approx(60 + (4**2 + half**2) ** 0.5, abs=1e-3)
    assert widened.df == over_texts.df
    both_sides = with_seed_noise(over_texts, np.array([59.0, 61.0]), np.array([3.0, 5.0]))
    assert both_sides.low == pytest.approx(60 - (3**2 + 2 * half**2) ** 0.5, abs=1e-3)


def test_seed_noise_of_a_single_seed_is_unknown():
    over_texts = Estimate(60.0, 57.0, 64.0)
    assert with_seed_noise(over_texts, np.array([60.0])) is over_texts


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.9, 0.02, 0.03]), [0.04, 0.9, 0.06, 0.06])
    assert holm([0.7, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []


def test_holm_agrees_with_its_definition():
    p_values = np.append(np.random.default_rng(0).random(9) ** 4, np.nan)  # NaN is no test
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        expected = np.nan
        for smaller in p_values[p_values <= p]:
            bound = min(1, smaller * (p_values >= smaller).sum())
            expected = np.fmax(expected, bound)
        assert adjusted == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("clusters", [12, 25, 100])
def test_bootstrap_intervals_cover_the_truth_95_percent_of_the_time(clusters):
    for p in (0.5, 0.8):
        intervals = bootstrap_intervals(*clustered(clusters, p, seed=clusters))
        assert 0.93 <= covers(intervals, p) <= 0.985  # wide, for few clusters of unequal size


def test_bootstrap_t_of_few_clusters_has_the_p_value_of_signs():
    """Four equal differences are as large in one of 16 assignments of signs."""
    equal = np.ones((4, 1)) * [1, 0, -1]
    p_values, best = bootstrap_t_test(equal)
    assert p_values.tolist() == [1 / 16, 1, 1]
    assert best == 1 / 16


def test_bootstrap_t_agrees_with_resampling_one_by_one():
    rng = np.random.default_rng(5)
    differences = rng.exponential(size=(15, 3)) - 0.8
    clusters = len(differences)

    def t_value(values):
        return values.mean() / (values.std(ddof=1) / clusters**0.5)

    observed = np.array([t_value(column) for column in differences.T])
    centred = differences - differences.mean(axis=0)
    exceeded = np.zeros(3)
    best_exceeded = 0
    replicates = 2000
    for _ in range(replicates):
        resample = centred[rng.integers(clusters, size=clusters)]
        t_values = np.array([t_value(column) for column in resample.T])
        exceeded += t_values >= observed
        best_exceeded += t_values.max() >= observed.max()
    p_values, best = bootstrap_t_test(differences)
    np.testing.assert_allclose(p_values, exceeded / replicates, atol=0.04)
    assert best == pytest.approx(best_exceeded / replicates, abs=0.04)


@pytest.fixture
def few_resamples(monkeypatch):
    """Tests take a thousand resamples, because ten thousand would take long."""
    monkeypatch.setattr(statistics, "DRAWS", 1000)


def test_bootstrap_t_does_not_depend_on_scale_or_shape(few_resamples):
    differences = np.random.default_rng(6).normal(0.3, 1, (20, 12))
    p_values, best = bootstrap_t_test(differences)
    scaled, scaled_best = bootstrap_t_test(1e6 * differences.reshape(20, 2, 6))
    np.testing.assert_array_equal(scaled.ravel(), p_values)
    assert scaled_best == best


def test_bootstrap_t_keeps_its_level_and_finds_differences(few_resamples):
    rng = np.random.default_rng(8)
    noise = rng.normal(size=(20, SETS)) * rng.uniform(0.2, 3, (20, 1))
    p_values, _ = bootstrap_t_test(noise)
    assert 0.035 <= (p_values < 0.05).mean() <= 0.065
    assert (bootstrap_t_test(noise + 2)[0] < 0.05).mean() > 0.8


def test_bootstrap_t_of_the_best_allows_for_the_search(few_resamples):
    rng = np.random.default_rng(9)
    smallest = []
    best_of_all = []
    for _ in range(300):
        noise = rng.normal(size=(25, 2, 4, 6)) + rng.normal(size=(25, 1, 1, 1))  # heads alike
        p_values, best = bootstrap_t_test(noise)
        assert p_values.shape == (2, 4, 6)
        smallest.append(p_values.min())
        best_of_all.append(best)
    assert (np.array(smallest) < 0.05).mean() > 0.25  # the mistake
    assert (np.array(best_of_all) < 0.05).mean() < 0.085  # 0.05 and two standard errors and a half
    noise[:, 1, 2, 3] += 2
    assert bootstrap_t_test(noise)[1] < 0.01


def skewed_downwards(rng, clusters, candidates):
    """Nearly everything is right, as of a head that seldom errs: the mean difference is zero."""
    return rng.binomial(10, 0.95, (clusters, candidates)) - 9.5


def test_bootstrap_t_of_the_best_keeps_its_level_if_skewed(few_resamples):
    rng = np.random.default_rng(10)
    repetitions = 400
    singles = 0
    best_found = 0
    by_signs = 0
    for _ in range(repetitions):
        differences = skewed_downwards(rng, 50, 20)
        p_values, best = bootstrap_t_test(differences)
        singles += p_values[0] < 0.05
        best_found += best < 0.05
        signs = rng.choice((-1.0, 1.0), (300, 50)) @ differences
        statistics = signs / np.sqrt((differences**2).sum(axis=0))
        observed = (differences.sum(axis=0) / np.sqrt((differences**2).sum(axis=0))).max()
        by_signs += (statistics.max(axis=1) >= observed).mean() < 0.05
    limit = 0.05 + 3 * (0.05 * 0.95 / repetitions) ** 0.5
    assert singles / repetitions < limit
    assert best_found / repetitions < limit
    assert by_signs / repetitions > 0.1  # random signs assume symmetry
