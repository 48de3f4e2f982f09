"""Statistics of later papers by hand."""

import numpy as np
import pytest

from beyond.papers.common.statistics import mcnemar


def test_mcnemar_counts_discordant_pairs():
    before = np.array([1, 1, 1, 1, 1, 1, 0, 0, 1, 0], bool)
    after = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1, 0], bool)  # five lost, one won
    expected = 2 * (1 + 6) / 2**6
    assert mcnemar(after, before) == pytest.approx(expected)
    np.testing.assert_allclose(mcnemar(before, np.stack([after, before])), [expected, 1])
