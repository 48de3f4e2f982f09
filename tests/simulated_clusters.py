"""Simulated data sets whose clusters differ in size and in how easy they are."""

import numpy as np

SETS = 1000  # simulated data sets, a column each


def clustered(clusters, p, seed):
    """Draw data sets: (right, total), each of shape (cluster, set)."""
    rng = np.random.default_rng(seed)
    total = rng.integers(2, 30, (clusters, SETS))
    easy = rng.beta(6 * p, 6 * (1 - p), (clusters, SETS))
    return rng.binomial(total, easy), total


def covers(intervals, truth):
    """Compute the share of intervals that contain the truth."""
    low, high = intervals
    return ((low <= truth) & (truth <= high)).mean()
