"""Estimates that claims compare with thresholds, and their p-values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import t

from helpers.metrics.statistics import LEVEL, Estimate, Real

ALPHA = 0.05  # the p-value below which a test is significant


@dataclass(frozen=True, order=True)
class TestedEstimate(Estimate):
    """An estimate that a claim compares with a threshold.

    Parameters
    ----------
    is_exact
        Whether the number has no error, because it counts a whole population.
    limits
        The least and the largest number that is possible, such as 0 and 1 for a share; see
        `p_value`.
    own_p
        The p-value of a test of its own, such as a permutation test, against the threshold that the
        number is compared with.  NaN if Student's t is to be used.
    """

    __test__ = False  # pytest takes it for tests

    is_exact: bool = False
    limits: tuple[float, float] = field(default=(-np.inf, np.inf), compare=False)
    own_p: float = field(default=np.nan, compare=False)

    def scaled(self, factor: Real) -> TestedEstimate:
        """Multiply the number and its interval by a positive factor, such as 100 for percent."""
        bounds = {"low": factor * self.low, "high": factor * self.high}
        return replace(self, value=factor * self.value, **bounds)


def exact(value: Real) -> TestedEstimate:
    """Make the estimate of a number without error, such as a share of all heads of a model."""
    return TestedEstimate(value, value, value, is_exact=True)


def difference(minuend: TestedEstimate, subtrahend: TestedEstimate) -> TestedEstimate:
    """Estimate one number minus another, as if they were independent (Zou and Donner 2008).

    The smaller number of degrees of freedom counts.
    """
    value = minuend.value - subtrahend.value
    below = np.hypot(minuend.value - minuend.low, subtrahend.high - subtrahend.value)
    above = np.hypot(minuend.high - minuend.value, subtrahend.value - subtrahend.low)
    df = min(minuend.df, subtrahend.df)
    is_exact = minuend.is_exact and subtrahend.is_exact
    return TestedEstimate(value, value - below, value + above, df, is_exact=is_exact)


def distance_from(estimate: TestedEstimate, number: Real) -> TestedEstimate:
    """Estimate how far a number is from another one, in either direction.

    A claim that two numbers are alike holds if this distance is below a margin: the interval of the
    number is then within the margin on both sides.
    """
    low = estimate.low - number
    high = estimate.high - number
    nearest = max(0.0, low, -high)
    farthest = max(-low, high)
    return TestedEstimate(abs(estimate.value - number), nearest, farthest, estimate.df)


def p_value(estimate: TestedEstimate, threshold: Real = 0) -> float:
    """Compute the two-sided p-value that an estimate's true value is the threshold.

    The distance to the threshold, in standard errors, is compared with Student's t.  A standard
    error is taken from the half of the 95% interval on the threshold's side, so that p is below 5%
    if the interval leaves the threshold out.  If the number has a limit on this side, distances
    are those of logarithms.

    Returns
    -------
    float
        ``own_p`` of an estimate that has one.  NaN for an estimate without bounds, or whose
        interval has no width.
    """
    if not np.isnan(estimate.own_p):
        return estimate.own_p
    is_above = estimate.value > threshold
    bound = estimate.low if is_above else estimate.high
    limit = estimate.limits[0] if is_above else estimate.limits[1]
    half_width = abs(estimate.value - bound)
    distance = abs(estimate.value - threshold)
    if np.isfinite(limit):
        from_limit = np.abs(np.array([estimate.value, bound, threshold]) - limit)
        with np.errstate(divide="ignore", invalid="ignore"):  # a bound may be at the limit
            logarithms = np.log(from_limit)
            half_width = logarithms[0] - logarithms[1]
            distance = logarithms[0] - logarithms[2]
    error = half_width / t_quantile(estimate.df)
    if not error > 0:
        return np.nan
    p = 2 * t.sf(distance / error, estimate.df)
    return max(p, np.finfo(float).tiny)


def t_quantile(df: Real) -> float:
    """Compute the half-width, in standard errors, of Student's 95% interval."""
    return float(t.ppf((1 + LEVEL) / 2, df))


def combine_in_quadrature(estimate: TestedEstimate, source: Estimate) -> TestedEstimate:
    """Add a second, independent source of error to the interval of a mean.

    Parameters
    ----------
    estimate
        The mean with the interval of one source of error, for example the choice of texts.
    source
        The mean with the interval of the other, for example the seeds; only its half-widths count.

    Returns
    -------
    TestedEstimate
        The first mean; its half-widths are the roots of the sums of squares.  The degrees of
        freedom are those of Welch and Satterthwaite.
    """
    widths = np.array([estimate.high - estimate.low, source.high - source.low])
    degrees = np.array([estimate.df, source.df])
    variances = (widths / [t_quantile(df) for df in degrees]) ** 2  # up to a factor
    uncertainty = (variances**2 / degrees).sum()
    df = variances.sum() ** 2 / uncertainty if uncertainty else degrees.min()
    below = np.hypot(estimate.value - estimate.low, source.value - source.low)
    above = np.hypot(estimate.high - estimate.value, source.high - source.value)
    return TestedEstimate(estimate.value, estimate.value - below, estimate.value + above, df)
