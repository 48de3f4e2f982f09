"""Intervals and tests: the only place where numbers are compared.

The words of an article are not independent, nor are its sentences.  A bootstrap therefore
resamples whole *clusters*: articles or documents.  Every score is a ratio of sums over clusters:
correct cases over all cases, or a sum of values over their number.  There are four procedures:

- the cluster bootstrap: `ratio`, `weighted_ratios` (a mean of several, or a difference),
  `bootstrap_intervals` of many, and `bootstrap_t_test`;
- permutations of heads (`helpers.metrics.clustering`);
- Holm's correction for several tests (`holm`);
- exact counts: a share of all heads of a model has no error, because they are no sample.

Clusters differ in size.  The degrees of freedom of an interval are therefore the *effective* number
of clusters minus one (`effective_clusters`): 18 articles of which a few have most words count as
about ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Num, Shaped

LEVEL = 0.95
RESAMPLES = 1000
DRAWS = 10_000  # resamples for an interval that a claim is tested with
ROUNDING = 1e-12  # of a variance of values of about unit size

Whole = int | np.integer
Real = float | Whole
Values = Sequence[Real] | Shaped[np.ndarray, " value"] | pd.Series
Statistics = Num[np.ndarray, "*statistic"]  # of any shape
Cases = Num[np.ndarray, "case *statistic"] | Bool[np.ndarray, "case *statistic"]
Clusters = Num[np.ndarray, "cluster *statistic"] | Bool[np.ndarray, "cluster *statistic"]
Totals = Num[np.ndarray, "cluster *#statistic"]  # one for several statistics, or one for each
Replicates = Float[np.ndarray, "resample *statistic"]
Bounds = Float[np.ndarray, "2 *statistic"]  # of intervals: low, high


@dataclass(frozen=True, order=True)
class Estimate:
    """A number with its 95% interval; the bounds are NaN where the data are too few for one.

    Estimates are ordered by their numbers.

    Parameters
    ----------
    value, low, high
        The number and the bounds of its interval.
    df
        Degrees of freedom of the interval, for example the effective number of articles minus one.
        Infinite for an interval of the normal distribution.
    """

    value: Real
    low: Real = np.nan
    high: Real = np.nan
    df: Real = np.inf

    def columns(self, name: str, *, df: bool = False) -> dict[str, Real]:
        """Name the number and its bounds for a row of a table.

        Parameters
        ----------
        name
            Column of the number.
        df
            Whether the degrees of freedom are a column, too.  Claims need them for a p-value.

        Returns
        -------
        dict
            The values by column: ``<name>``, ``<name>_low`` and ``<name>_high``, and ``<name>_df``.
        """
        columns = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return columns | {f"{name}_df": self.df} if df else columns


def summary_table(estimates: Mapping[str, Estimate]) -> pd.DataFrame:
    """Tabulate estimates: ``quantity``, ``value``, its bounds and ``value_df``."""
    columns = ["quantity", *Estimate(0).columns("value", df=True)]
    rows = estimates.items()
    table = [{"quantity": name, **row.columns("value", df=True)} for name, row in rows]
    return pd.DataFrame(table, columns=columns)


def ratio(right: Clusters, total: Clusters) -> Estimate:
    """Estimate ``sum(right) / sum(total)`` with its bootstrap interval over clusters.

    Parameters
    ----------
    right
        Number of correct cases in each cluster, or the sum of a value.
    total
        Number of cases in each cluster.

    Returns
    -------
    Estimate
        NaN where there are no cases.
    """
    return weighted_ratios(np.reshape(right, (-1, 1)), np.reshape(total, (-1, 1)), [1])


def weighted_ratios(
    right: Clusters,
    total: Clusters,
    weights: Sequence[Real] | Float[np.ndarray, " ratio"] | None = None,
) -> Estimate:
    """Estimate a weighted sum of ratios over the same clusters, with its bootstrap interval.

    For example, the mean over relations, or a difference (weights 1 and -1): two ratios rise and
    fall together from cluster to cluster, which two separate intervals do not show.

    Parameters
    ----------
    right, total
        As for `ratio`, with a column for each ratio.
    weights
        Weight of each ratio; by default the ratios are averaged.

    Returns
    -------
    Estimate
        NaN if a ratio has no cases.  The weight of a cluster in the effective number of clusters is
        its share of the cases, averaged over the ratios.
    """
    n_ratios = right.shape[1]
    weights = np.full(n_ratios, 1 / n_ratios) if weights is None else np.asarray(weights, float)
    value = float(divide(right.sum(axis=0), total.sum(axis=0)) @ weights)
    replicates = resampled_ratios(right, total, DRAWS) @ weights
    return bootstrap_estimate(value, replicates, effective_clusters_of_ratios(total, weights))


def bootstrap_estimate(value: Real, replicates: Values, clusters: Real) -> Estimate:
    """Make the estimate of a number with bootstrap replicates, from which its interval is.

    Parameters
    ----------
    value
        The number.
    replicates
        The number from each resample.
    clusters
        Effective number of clusters that were resampled; the interval is wider for few
        (`percentiles`).

    Returns
    -------
    Estimate
    """
    low, high = percentiles(np.asarray(replicates, float), clusters)
    return Estimate(value, low, high, df=clusters - 1)


def bootstrap_intervals(right: Clusters, total: Totals) -> Bounds:
    """Compute 95% bootstrap intervals of the ratios ``sum(right) / sum(total)`` of columns.

    Clusters are resampled with replacement, the same ones for every column.  The interval is the
    percentile interval, widened for few clusters as Student's t is (Hesterberg 2015).

    Parameters
    ----------
    right, total
        As for `ratio`, with any shape of statistics after the clusters.

    Returns
    -------
    low, high
        The bounds of each statistic; NaN where fewer than two clusters have a ``total``.
    """
    return percentiles(resampled_ratios(right, total), effective_clusters(total))


def percentiles(
    replicates: Replicates, clusters: Num[np.ndarray, "*#statistic"] | Real, level: float = LEVEL
) -> Bounds:
    """Compute percentile intervals of bootstrap replicates (Hesterberg 2015).

    Parameters
    ----------
    replicates
        Any shape of statistics for each resample.
    clusters
        Effective number of clusters that each statistic is from; intervals are wider for few.
    level
        Coverage of the intervals.

    Returns
    -------
    low, high
        NaN for fewer than two clusters.
    """
    from scipy.stats import norm, t  # late: it takes a second

    shape = replicates.shape[1:]
    bounds = np.full((2, *shape), np.nan)
    clusters = np.broadcast_to(clusters, shape)
    for count in np.unique(clusters[clusters > 1]):
        has_count = clusters == count
        tail = norm.cdf(np.sqrt(count / (count - 1)) * t.ppf((1 - level) / 2, count - 1))
        bounds[:, has_count] = np.nanquantile(replicates[:, has_count], (tail, 1 - tail), axis=0)
    return bounds


def with_seed_noise(estimate: Estimate, *scores: Float[np.ndarray, " _seed"]) -> Estimate:
    """Widen an interval by the noise of training, which shows in the scores of several seeds.

    Parameters
    ----------
    estimate
        A mean over seeds, or a difference of two, with its interval over texts.
    *scores
        The scores of every seed; for a difference, those of each side.  A single seed shows no
        noise, and leaves the interval as it is.

    Returns
    -------
    Estimate
        The same value.  The half-widths of the interval over texts and of Student's intervals of
        the means over seeds are combined as of independent errors.
    """
    from scipy.stats import sem, t  # late, as above

    for by_seed in scores:
        if len(by_seed) > 1:
            noise = t.ppf((1 + LEVEL) / 2, len(by_seed) - 1) * sem(by_seed)
            below = np.hypot(estimate.value - estimate.low, noise)
            above = np.hypot(estimate.high - estimate.value, noise)
            estimate = replace(estimate, low=estimate.value - below, high=estimate.value + above)
    return estimate


def bootstrap_t_test(differences: Num[np.ndarray, " cluster"]) -> float:
    """Test whether the mean of clusters' differences is above zero.

    The statistic is Student's t: the mean over its standard error.  Its distribution without a
    difference is that of bootstrap resamples of the clusters, from which the observed mean is
    subtracted (the bootstrap-t, Efron and Tibshirani 1993, section 12.5).

    Parameters
    ----------
    differences
        A number for each cluster, for example an article.

    Returns
    -------
    float
        The one-sided p-value.

    Notes
    -----
    In simulated data without a difference, 1 to 9% of means were found at the 5% level with 10 to
    20 clusters.  No p-value is below ``2 ** -clusters``, because fewer clusters cannot tell more.
    """
    clusters = len(differences)
    size = np.sqrt((differences.astype(float) ** 2).mean())
    values = differences / max(size, np.finfo(float).tiny)
    centred = values - values.mean()
    observed = [values.sum(), (values**2).sum()]
    resampled = resampled_sums(np.column_stack([centred, centred**2]), draws=DRAWS)
    sums, squares = np.vstack([observed, resampled]).T
    means = sums / clusters
    variances = (squares - clusters * means**2) / max(clusters - 1, 1)
    t_values = means / np.sqrt(np.maximum(variances, ROUNDING) / clusters)  # large without variance
    n_exceeded = (t_values[1:] >= t_values[0]).sum()
    return max((n_exceeded + 1) / (DRAWS + 1), 2.0**-clusters)


def holm(p_values: Values) -> Float[np.ndarray, " test"]:
    """Adjust p-values for their number: Holm's (1979) control of the family-wise error rate.

    It suits a few tests of which each would be a claim.  For a list that may hold some false
    findings, use `scipy.stats.false_discovery_control`.  NaN does not count as a test.
    """
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values, kind="stable")  # NaN last
    tests_remaining = np.count_nonzero(~np.isnan(p_values)) - np.arange(len(p_values))
    adjusted = np.maximum.accumulate(p_values[order] * tests_remaining)
    return adjusted[np.argsort(order, kind="stable")].clip(max=1)


def resampled_ratios(right: Clusters, total: Totals, draws: int = RESAMPLES) -> Replicates:
    """Compute the ratios of each resample, NaN where none of its clusters has a ``total``."""
    right_sums = resampled_sums(right, draws=draws)
    return divide(right_sums, resampled_sums(total, draws=draws))


def resampled_sums(counts: Clusters, *, draws: int = RESAMPLES) -> Replicates:
    """Compute the sums over bootstrap resamples of the clusters.

    The number of times that each of n clusters is in a resample is multinomial.  Therefore a
    resample is a row of weights, and its sums are one matrix product.  Counts of the same clusters
    get the same resamples, so that their sums can be subtracted or divided.

    Parameters
    ----------
    counts
        A row for each cluster, and any shape of statistics after it.
    draws
        Number of resamples.
    """
    clusters, *shape = counts.shape
    if not clusters:
        return np.zeros((draws, *shape))
    flat = counts.reshape(clusters, -1).astype(float)
    sums = _resample_weights(clusters, draws) @ flat  # [resample, cluster] @ [cluster, statistic]
    return sums.reshape(draws, *shape)


@lru_cache(maxsize=4)  # the rows of a table use the same resamples
def _resample_weights(clusters: int, draws: int) -> Int[np.ndarray, "resample cluster"]:
    """Draw resamples, as the number of times that each cluster is in each of them."""
    shares = np.full(clusters, 1 / clusters)
    weights = np.random.default_rng(0).multinomial(clusters, shares, size=draws)
    return weights.astype(np.int16)


def effective_clusters(total: Clusters) -> Any:
    """Compute the effective number of clusters (Kish 1965): ``(sum w)**2 / sum(w**2)``.

    It is the number of clusters if all have as many cases, and less if they differ in size.

    Parameters
    ----------
    total
        Number of cases, the weight w, in each cluster.

    Returns
    -------
    array or float
        One for each statistic; NaN without cases.
    """
    weights = np.asarray(total, float)
    squared_sums = np.asarray(weights.sum(axis=0) ** 2)
    effective = divide(squared_sums, np.asarray((weights**2).sum(axis=0)))
    return np.round(effective, 6)[()]  # rounding errors do not tell equal sizes apart


def effective_clusters_of_ratios(
    total: Clusters, weights: Sequence[Real] | Float[np.ndarray, " ratio"]
) -> Real:
    """Compute the effective number of clusters of a weighted sum of ratios (`weighted_ratios`)."""
    shares = divide(total, np.broadcast_to(total.sum(axis=0), total.shape))
    return effective_clusters(shares @ np.abs(np.asarray(weights)))


def cluster_sums(
    values: Cases, owner: Shaped[np.ndarray, " case"], clusters: Shaped[np.ndarray, " cluster"]
) -> Clusters:
    """Sum the values of each cluster.

    Parameters
    ----------
    values
        A row for each case, for example a word.
    owner
        The cluster of each row.
    clusters
        All clusters, sorted; rows of the result are in this order.

    Returns
    -------
    array
        ``[cluster, ...]``; zero for a cluster without rows.
    """
    values = values.astype(np.result_type(values, np.int64))  # np.add.at is slow between types
    sums = np.zeros((len(clusters), *values.shape[1:]), values.dtype)
    np.add.at(sums, np.searchsorted(clusters, owner), values)
    return sums


def divide(right: Statistics, total: Num[np.ndarray, "*#statistic"]) -> Statistics:
    """Divide sums, or sums by counts; NaN where the second is not positive."""
    undefined = np.full(np.shape(right), np.nan)
    return np.divide(right, total, out=undefined, where=np.greater(total, 0))
