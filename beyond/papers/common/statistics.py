"""Statistics of later papers, next to those of `helpers.metrics.statistics`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import binom, binomtest, sem, t

from helpers.metrics.statistics import (
    LEVEL,
    ROUNDING,
    Estimate,
    Values,
    Whole,
    bootstrap_estimate,
    divide,
    resampled_sums,
)


def mean_interval(values: Values) -> Estimate:
    """Estimate the mean of independent values, with its 95% interval by Student's t.

    The bounds are NaN for a single value.
    """
    values = np.asarray(values, float)
    mean = values.mean()
    count = len(values)
    if count < 2:
        return Estimate(mean)
    half_width = t.ppf((1 + LEVEL) / 2, count - 1) * sem(values)
    return Estimate(mean, mean - half_width, mean + half_width, df=count - 1)


def wilson_percentage(right: Whole, total: Whole) -> Estimate:
    """Estimate the percentage of independent cases that are right, with Wilson's interval."""
    low, high = binomtest(int(right), int(total)).proportion_ci(LEVEL, "wilson")
    return Estimate(100 * right / total, 100 * low, 100 * high)


def correlation(values: Float[np.ndarray, "head side"]) -> Estimate:
    """Estimate Pearson's correlation of two scores of the same heads, with its 95% interval.

    Parameters
    ----------
    values
        Two scores of each head; their ranks give Spearman's correlation.

    Returns
    -------
    Estimate
        The interval is a bootstrap over heads, which shows how much a few large scores matter.  NaN
        for fewer than four heads, or where all scores of a side are equal.
    """
    if len(values) < 4 or not np.ptp(values, axis=0).all():
        return Estimate(np.nan)
    n_heads = len(values)
    x, y = (values - values.mean(axis=0)).T  # centred, against rounding errors
    moments = np.column_stack([x, y, x**2, y**2, x * y]) / n_heads
    mean_x, mean_y, square_x, square_y, product = resampled_sums(moments).T
    variances = (square_x - mean_x**2) * (square_y - mean_y**2)
    spread = np.sqrt(np.maximum(variances, 0))
    replicates = divide(product - mean_x * mean_y, np.where(spread > ROUNDING, spread, 0))
    return bootstrap_estimate(np.corrcoef(values.T)[0, 1], replicates, n_heads)


def mcnemar(
    before: Bool[np.ndarray, " example"], after: Bool[np.ndarray, "*change example"]
) -> Float[np.ndarray, "*change"] | float:
    """Compute the two-sided p-value that two classifiers are right equally often.

    The test is exact: of the examples that only one of the two gets right, each should get half.

    Parameters
    ----------
    before, after
        Whether each example is right before and after a change; the examples are the same.

    Returns
    -------
    array, or float for a single change
        A p-value for each change; 1 where both get the same examples right.
    """
    lost = (before & ~after).sum(axis=-1)
    won = (~before & after).sum(axis=-1)
    return np.minimum(1, 2 * binom.cdf(np.minimum(lost, won), lost + won, 0.5))
