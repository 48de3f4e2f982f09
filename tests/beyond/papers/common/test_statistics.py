"""Statistics of later papers: by hand, and by simulation."""

import numpy as np
import pytest
from simulated_clusters import clustered, covers

from beyond.papers.common.statistics import mcnemar, paired_interval


def test_mcnemar_counts_discordant_pairs():
    before = np.array([1, 1, 1, 1, 1, 1, 0, 0, 1, 0], bool)
    after = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1, 0], bool)  # five lost, one won
    expected = 2 * (1 + 6) / 2**6
    assert mcnemar(after, before) == pytest.approx(expected)
    np.testing.assert_allclose(mcnemar(before, np.stack([after, before])), [expected, 1])


def test_paired_interval_covers_the_difference_and_keeps_its_error_at_a_margin():
    right, total = clustered(30, 0.6, seed=6)
    lost = np.random.default_rng(7).binomial(right, 0.25)  # the other is right in 3 of 4 of these
    ratios = (right, total), (right - lost, total)
    assert 0.93 <= covers(paired_interval(*ratios), 0.15) <= 0.97
    low, high = paired_interval(*ratios, level=0.9)
    is_equivalent = (low > -0.15) & (high < 0.15)
    assert 0.02 <= is_equivalent.mean() <= 0.08  # one of the two one-sided tests at 5%
