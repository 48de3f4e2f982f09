"""Does a score of heads predict their effect, relation by relation?

Some heads have larger effects than others in every relation, and some relations have larger effects
than others in every head.  Neither says that a head matters for the relation in which it is
accurate.  Therefore both main effects are removed: the heads are ranked within each relation, and
the mean rank of each head over the relations, and that of each relation, is subtracted
(*double-centred ranks*).  Ranks over all pairs would not do: near the ends they are closer together
than the scores, and main effects in common would then make a correlation.  The correlation of what
is left is compared with that of permutations, which give each relation the scores of another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from helpers.metrics.statistics import (
    RESAMPLES,
    ROUNDING,
    Clusters,
    Estimate,
    Real,
    bootstrap_estimate,
    divide,
    resampled_ratios,
)

PERMUTATIONS = 2000
AT_ONCE = 25  # resamples whose ranks fit into the processor's cache
NULL_QUANTILE = 0.975  # of the permutations: a two-sided test at 5%

Scores = Float[np.ndarray, "*resample relation head"]
Vectors = Float[np.ndarray, "*resample pair"]


def double_centred_ranks(scores: Scores) -> Scores:
    """Rank the heads within each relation, without the means of relations and of heads.

    Returns
    -------
    array
        Ranks from 1, minus the mean rank of the head.  The mean of a relation is then zero, too.
    """
    ranks = rankdata(scores, axis=-1)
    head_means = ranks.mean(axis=-2, keepdims=True)
    return ranks - head_means


def centred_correlation(
    x: Scores, y: Scores, held_constant: Sequence[Scores] = ()
) -> Float[np.ndarray, "*resample"]:
    """Correlate double-centred ranks of two scores, given others.

    What a linear regression on the double-centred ranks of the others predicts is subtracted from
    both first.  NaN if nothing is left of one.
    """
    constants = [unit_vectors(double_centred_ranks(scores)) for scores in held_constant]
    sides = []
    for scores in (x, y):
        vectors = unit_vectors(double_centred_ranks(scores))
        for constant in constants:
            vectors = without(vectors, constant)
        sides.append(vectors)
    return (sides[0] * sides[1]).sum(axis=-1)


def unit_vectors(ranks: Scores) -> Vectors:
    """Make one vector of length 1 of the ranks of all pairs; NaN if all are zero."""
    flat = ranks.reshape(*ranks.shape[:-2], -1)
    return divide(flat, np.linalg.norm(flat, axis=-1, keepdims=True))


def without(vectors: Vectors, constant: Vectors) -> Vectors:
    """Subtract what is parallel to a constant of length 1, and scale the rest to length 1."""
    rest = vectors - (vectors * constant).sum(axis=-1, keepdims=True) * constant
    return divide(rest, np.linalg.norm(rest, axis=-1, keepdims=True))


def permuted_correlations(
    x: Scores, y: Scores, held_constant: Sequence[Scores], seed: int
) -> Float[np.ndarray, " permutation"]:
    """Correlate as `centred_correlation` does, after giving each relation the x of another."""
    generator = np.random.default_rng(seed)
    constants = [unit_vectors(double_centred_ranks(scores)) for scores in held_constant]
    unit_y = unit_vectors(double_centred_ranks(y))
    for constant in constants:
        unit_y = without(unit_y, constant)
    ranks_of_x = double_centred_ranks(x)
    correlations = []
    for _ in range(PERMUTATIONS):
        unit_x = unit_vectors(generator.permutation(ranks_of_x, axis=0))
        for constant in constants:
            unit_x = without(unit_x, constant)
        correlations.append(unit_x @ unit_y)
    return np.array(correlations)


def split_half_ceiling(
    values: Clusters, totals: Clusters, held_constant: Sequence[Scores] = ()
) -> float:
    """Estimate the largest correlation that a perfect predictor of an effect could have.

    The effects of two halves of the articles are correlated.  By the formula of Spearman and Brown
    this is the reliability of the effect over all articles, and its root is the ceiling.  If scores
    are held constant, it is the reliability of what they leave of the effect.

    Parameters
    ----------
    values
        Sums of effects, ``[article, relation, head]``.
    totals
        Number of edges, ``[article, relation]``.
    held_constant
        Scores that are held constant (`centred_correlation`).

    Returns
    -------
    float
        NaN if fewer than two relations have edges in both halves.
    """
    halves = []
    for start in (0, 1):
        half_totals = totals[start::2].sum(axis=0)[:, None]
        halves.append(divide(values[start::2].sum(axis=0), half_totals))
    is_in_both = np.isfinite(halves).all(axis=(0, 2))
    if is_in_both.sum() < 2:
        return np.nan
    first, second = [half[is_in_both] for half in halves]
    constants = [scores[is_in_both] for scores in held_constant]
    correlation = max(0.0, float(centred_correlation(first, second, constants)))
    return float(np.sqrt(2 * correlation / (1 + correlation)))


def estimate_correlation(
    predictor: Float[np.ndarray, "relation head"],
    values: Clusters,
    totals: Clusters,
    held_constant: Sequence[Float[np.ndarray, "relation head"]] = (),
    *,
    seed: int,
) -> dict[str, Real]:
    """Estimate the correlation of a score of heads with their effect, without main effects.

    Parameters
    ----------
    predictor
        The score of each head in each relation.
    values
        Sums of effects over the edges of each article, ``[article, relation, head]``.
    totals
        Number of edges, ``[article, relation]``.
    held_constant
        Scores that are held constant (`centred_correlation`).
    seed
        Seed of the resamples of heads and of the permutations.

    Returns
    -------
    dict
        ``correlation`` with its interval and df: the wider one of two intervals.  The first is a
        bootstrap of articles and, independently, of heads.  The second holds the correlations
        that a permutation of relations would not call different.  Neither goes beyond -1 or 1.
        A relation without an edge in the resampled articles keeps its effects of all articles.

        ``p_permutation``: the share of permutations with a correlation as large, one-sided.
        ``least``: the smallest correlation that the permutations would call significant.
        ``ceiling``: `split_half_ceiling`.
    """
    n_articles = len(values)
    n_heads = values.shape[-1]
    effect = divide(values.sum(axis=0), totals.sum(axis=0)[:, None])
    correlation = float(centred_correlation(predictor, effect, held_constant))
    null = permuted_correlations(predictor, effect, held_constant, seed)
    resampled = resampled_ratios(values, totals[:, :, None])
    effects = np.where(np.isnan(resampled), effect, resampled)
    heads = np.random.default_rng(seed).integers(n_heads, size=(RESAMPLES, n_heads))
    parts = []
    for start in range(0, RESAMPLES, AT_ONCE):
        drawn = heads[start : start + AT_ONCE]
        drawn_effects = np.take_along_axis(effects[start : start + AT_ONCE], drawn[:, None], -1)
        # Each [resample, relation, head].
        scores = [np.moveaxis(side[:, drawn], 0, 1) for side in (predictor, *held_constant)]
        parts.append(centred_correlation(scores[0], drawn_effects, scores[1:]))
    replicates = np.concatenate(parts)
    bootstrap = Estimate(np.nan, df=np.nan)
    if not np.isnan(correlation):
        bootstrap = bootstrap_estimate(correlation, replicates, min(n_articles, n_heads))
    low = min(bootstrap.low, correlation - np.quantile(null, NULL_QUANTILE))
    high = max(bootstrap.high, correlation - np.quantile(null, 1 - NULL_QUANTILE))
    low, high = np.clip(np.array((low, high)), -1, 1)
    estimate = Estimate(correlation, low, high, df=bootstrap.df)
    return {
        **estimate.columns("correlation", df=True),
        "p_permutation": (1 + (null >= correlation - ROUNDING).sum()) / (1 + PERMUTATIONS),
        "least": np.quantile(null, NULL_QUANTILE),
        "ceiling": split_half_ceiling(values, totals, held_constant),
    }
