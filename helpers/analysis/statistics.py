"""Intervals and tests: one place for how numbers are compared.

Bootstrap intervals are over clusters (sentences, documents), whose words are not independent.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Num
from scipy.stats import binom

WEIGHTS_AT_ONCE = 1 << 19  # 8 MiB, as integers and as floats


def bootstrap_interval(
    right: Num[np.ndarray, " cluster"],
    total: Num[np.ndarray, " cluster"],
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of ``sum(right) / sum(total)``.

    Args:
        right: how many are right in each cluster.
        total: how many there are in each cluster.
        resamples: how many times to draw as many clusters, with replacement.
        seed: decides the draws.
        level: the share of the resamples that lies inside the interval.

    Returns:
        The bounds, as fractions; NaN where ``total`` is zero throughout.
    """
    low, high = bootstrap_intervals(
        np.asarray(right)[:, None],
        np.asarray(total)[:, None],
        resamples=resamples,
        seed=seed,
        level=level,
    )
    return float(low[0]), float(high[0])


def bootstrap_intervals(
    right: Num[np.ndarray, "cluster statistic"],
    total: Num[np.ndarray, "cluster statistic"],
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, " statistic"]]:
    """Return `bootstrap_interval` of each column; the columns share their resamples."""
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level is {level}, resamples {resamples}; expected 0-1 and 1 or more")
    hits, sizes = (
        resampled_sums(counts, resamples=resamples, seed=seed) for counts in (right, total)
    )
    ratios = np.divide(hits, sizes, out=np.full_like(hits, np.nan), where=sizes > 0)
    bounds = np.full((2, ratios.shape[1]), np.nan)
    seen = ~np.isnan(ratios).all(axis=0)
    tail = (1 - level) / 2
    bounds[:, seen] = np.nanquantile(ratios[:, seen], (tail, 1 - tail), axis=0)
    return bounds[0], bounds[1]


def resampled_sums(
    counts: Num[np.ndarray, "cluster column"], *, resamples: int = 1000, seed: int = 0
) -> Float[np.ndarray, "resample column"]:
    """Return the column sums of each resample of the clusters.

    How often each of n clusters is drawn in n draws is multinomial, so that a resample is a row
    of weights and its sums are one matrix product.  One seed and number of clusters give the
    same resamples, whatever the counts.
    """
    counts = np.asarray(counts, np.float64)
    n_clusters = len(counts)
    sums = np.zeros((resamples, counts.shape[1]))
    if not n_clusters:
        return sums
    generator = np.random.default_rng(seed)
    step = max(1, WEIGHTS_AT_ONCE // n_clusters)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        weights = generator.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=size)
        sums[start : start + size] = weights @ counts  # [resample, cluster] @ [cluster, column]
    return sums


def mcnemar(
    before: Bool[np.ndarray, " example"], after: Bool[np.ndarray, "*change example"]
) -> Float[np.ndarray, ...]:
    """Return the two-sided p-value that two classifiers are right equally often.

    For paired outcomes, the same examples before and after a change.  Exact: of the examples
    that only one of them gets right, each should have them in half of the cases.  1 where there
    is no such example.
    """
    lost = (before & ~after).sum(axis=-1)
    won = (~before & after).sum(axis=-1)
    return np.minimum(1, 2 * binom.cdf(np.minimum(lost, won), lost + won, 0.5))


def holm(p_values: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Return the p-values adjusted so that any false finding among the tests is rare (Holm 1979).

    For a few tests of which each would be a claim of its own; for a list that is read as a list,
    and may hold some false findings, use `scipy.stats.false_discovery_control`.
    """
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    return adjusted[np.argsort(order, kind="stable")].clip(max=1)
