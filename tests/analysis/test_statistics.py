import time
from math import comb

import numpy as np
import pytest

from helpers.analysis.statistics import (
    bootstrap_interval,
    bootstrap_intervals,
    holm,
    mcnemar,
    resampled_sums,
)


def test_resampled_sums_are_sums_of_as_many_clusters():
    counts = np.array([[1, 0], [0, 10], [0, 100]])
    sums = resampled_sums(counts, resamples=500, seed=0)
    # 1s, 10s and 100s tell how often each cluster was drawn: three draws in all.
    drawn = np.column_stack([sums[:, 0], sums[:, 1] % 100 // 10, sums[:, 1] // 100])
    assert (drawn.sum(axis=1) == 3).all()
    assert len(np.unique(drawn, axis=0)) == 10  # every multiset of three out of three occurs


def test_interval_agrees_with_drawing_clusters_one_by_one():
    rng = np.random.default_rng(5)
    total = rng.integers(1, 8, 60)
    right = rng.binomial(total, 0.6)
    slow = []
    for _ in range(4000):
        chosen = rng.integers(0, 60, 60)
        slow.append(right[chosen].sum() / total[chosen].sum())
    expected = np.quantile(slow, [0.025, 0.975])
    assert bootstrap_interval(right, total, resamples=4000) == pytest.approx(expected, abs=0.01)


def test_interval_of_single_words_is_the_binomial_one():
    right = np.repeat([1, 0], [80, 20])
    low, high = bootstrap_interval(right, np.ones(100), resamples=20_000)
    half_width = 1.96 * np.sqrt(0.8 * 0.2 / 100)
    assert (low, high) == pytest.approx((0.8 - half_width, 0.8 + half_width), abs=0.012)


def test_clusters_widen_the_interval():
    independent = bootstrap_interval(np.repeat([1, 0], 100), np.ones(200))
    clustered = bootstrap_interval(np.repeat([10, 0], 10), np.full(20, 10))
    assert np.ptp(clustered) > 2 * np.ptp(independent)


def test_seed_decides_and_level_narrows():
    right, total = np.arange(30) % 4, np.full(30, 4)
    assert bootstrap_interval(right, total, seed=1) == bootstrap_interval(right, total, seed=1)
    assert bootstrap_interval(right, total, seed=1) != bootstrap_interval(right, total, seed=2)
    narrow = bootstrap_interval(right, total, level=0.5)
    assert np.ptp(narrow) < np.ptp(bootstrap_interval(right, total))
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval(right, total, level=95)


def test_columns_share_resamples_and_an_empty_one_is_nan():
    right = np.array([[1, 2, 0], [0, 0, 0], [3, 6, 0]])
    total = np.array([[2, 4, 0], [2, 4, 0], [4, 8, 0]])
    low, high = bootstrap_intervals(right, total)
    assert low[0] == low[1] == bootstrap_interval(right[:, 0], total[:, 0])[0]
    assert high[0] == high[1]
    assert np.isnan([low[2], high[2]]).all()
    assert np.isnan(bootstrap_interval(np.zeros(0), np.zeros(0))).all()


def test_a_rare_statistic_ignores_resamples_without_it():
    right, total = np.array([1, 0, 0]), np.array([1, 0, 0])
    assert bootstrap_interval(right, total) == (1.0, 1.0)


def test_a_thousand_resamples_of_a_treebank_take_seconds():
    total = np.random.default_rng(0).integers(0, 3, (2_000, 40))
    start = time.perf_counter()
    bootstrap_intervals(total // 2, total)
    assert time.perf_counter() - start < 5


def test_mcnemars_test_counts_discordant_pairs():
    before = np.array([1, 1, 1, 1, 1, 1, 0, 0, 1, 0], bool)
    after = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1, 0], bool)  # five lost, one won
    expected = 2 * sum(comb(6, k) for k in (0, 1)) / 2**6
    assert mcnemar(before, after) == pytest.approx(expected)
    assert mcnemar(after, before) == pytest.approx(expected)
    np.testing.assert_allclose(mcnemar(before, np.stack([after, before])), [expected, 1])


def test_mcnemars_test_keeps_its_level():
    generator = np.random.default_rng(0)
    before, after = generator.random((2, 400, 60)) < 0.7
    p_values = np.array([mcnemar(*pair) for pair in zip(before, after, strict=True)])
    assert (p_values < 0.05).mean() <= 0.07


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.9, 0.02, 0.03]), [0.04, 0.9, 0.06, 0.06])
    assert holm([0.7, 0.9]).tolist() == [1, 1]
    assert holm([]).tolist() == []
