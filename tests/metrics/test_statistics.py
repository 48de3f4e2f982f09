from dataclasses import astuple

import numpy as np
import pytest
from simulated_clusters import clustered, covers

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
    total = np.array([[6, 1], [0, 1]])  # the first of two ratios has all cases in one cluster
    of_both = weighted_ratios(total / 2, total, [0.5, 0.5])
    assert of_both.df == pytest.approx(1 / (0.75**2 + 0.25**2) - 1, abs=1e-6)


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
    assert with_seed_noise(over_texts, np.array([60.0])) is over_texts  # a single seed
    assert both_sides.low == pytest.approx(60 - (3**2 + 2 * half**2) ** 0.5, abs=1e-3)


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.9, 0.02, 0.03]), [0.04, 0.9, 0.06, 0.06])
    assert holm([0.7, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []
    assert holm([0.01, np.nan, 0.02])[[0, 2]].tolist() == [0.02, 0.02]  # NaN is no test


def test_bootstrap_intervals_cover_the_truth_95_percent_of_the_time():
    intervals = bootstrap_intervals(*clustered(12, 0.5, seed=12))
    assert 0.93 <= covers(intervals, 0.5) <= 0.985  # wide, for few clusters of unequal size


def test_bootstrap_t_agrees_with_resampling_one_by_one():
    rng = np.random.default_rng(5)
    differences = rng.exponential(size=15) - 0.8
    resamples = rng.choice(differences - differences.mean(), (4000, 15))
    spreads = resamples.std(axis=1, ddof=1)
    observed = differences.mean() / differences.std(ddof=1)
    expected = (resamples.mean(axis=1) >= observed * spreads).mean()
    assert bootstrap_t_test(differences) == pytest.approx(expected, abs=0.03)
    assert bootstrap_t_test(1e6 * differences) == bootstrap_t_test(differences)
    # Four equal differences are as large in one of 16 assignments of signs.
    assert [bootstrap_t_test(np.full(4, value)) for value in (1, 0, -1)] == [1 / 16, 1, 1]


def test_bootstrap_t_keeps_its_level_and_finds_differences():
    rng = np.random.default_rng(8)
    scales = rng.uniform(0.2, 3, 20)
    skewed = rng.binomial(10, 0.95, (400, 20)) - 9.5  # nearly everything is right
    for noise in (rng.normal(size=(400, 20)) * scales, skewed):
        assert np.mean([bootstrap_t_test(sample) < 0.05 for sample in noise]) <= 0.1
        assert np.mean([bootstrap_t_test(sample + 2) < 0.05 for sample in noise]) > 0.8
