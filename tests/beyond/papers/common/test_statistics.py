"""Statistics of later papers: by hand, and by simulation."""

from math import comb

import numpy as np
import pytest
from simulated_clusters import clustered, covers

from beyond.papers.common.statistics import mcnemar, paired_interval
from helpers.metrics.statistics import bootstrap_intervals


def test_mcnemar_counts_discordant_pairs():
    before = np.array([1, 1, 1, 1, 1, 1, 0, 0, 1, 0], bool)
    after = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1, 0], bool)  # five lost, one won
    expected = 2 * sum(comb(6, k) for k in (0, 1)) / 2**6
    assert mcnemar(before, after) == pytest.approx(expected)
    assert mcnemar(after, before) == pytest.approx(expected)
    np.testing.assert_allclose(mcnemar(before, np.stack([after, before])), [expected, 1])


def test_paired_interval_covers_the_difference_and_is_narrower():
    right, total = clustered(30, 0.6, seed=4)
    lost = np.random.default_rng(5).binomial(right, 0.25)  # the other is right in 3 of 4 of these
    low, high = paired_interval((right, total), (right - lost, total))
    assert 0.93 <= covers((low, high), 0.15) <= 0.97
    first_low, first_high = bootstrap_intervals(right, total)
    second_low, second_high = bootstrap_intervals(right - lost, total)
    separate_widths = first_high - first_low + second_high - second_low
    assert (high - low).mean() < 0.7 * separate_widths.mean()


def equivalent(minuend, subtrahend, margin):
    """Mark the differences whose 90% interval lies within a margin."""
    low, high = paired_interval(minuend, subtrahend, level=0.9)
    return (low > -margin) & (high < margin)


def test_equivalence_by_hand():
    rng = np.random.default_rng(1)
    total = np.full((50, 1), 20)
    right = rng.integers(8, 13, (50, 1))
    assert equivalent((right, total), (right, total), 0.001).all()
    assert equivalent((right, total), (right + 1, total), 0.06).all()
    assert not equivalent((right, total), (right + 1, total), 0.04).any()
    noisy = rng.permutation(right)  # the same on average, with a standard error of about 1%
    assert not equivalent((right, total), (noisy, total), 0.005).any()


def test_equivalence_keeps_its_error_at_the_margin():
    right, total = clustered(30, 0.6, seed=6)
    lost = np.random.default_rng(7).binomial(right, 0.25)
    is_equivalent = equivalent((right, total), (right - lost, total), 0.15)
    assert 0.02 <= is_equivalent.mean() <= 0.08  # one of the two one-sided tests at 5%
    assert equivalent((right, total), (right - lost, total), 0.3).mean() > 0.99
