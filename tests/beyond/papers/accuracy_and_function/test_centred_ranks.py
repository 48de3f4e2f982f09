"""Correlations without main effects: on planted effects, and against a regression on indicators."""

import numpy as np
import pytest
from scipy.stats import rankdata

from beyond.papers.accuracy_and_function import centred_ranks
from beyond.papers.accuracy_and_function.centred_ranks import (
    centred_correlation,
    estimate_correlation,
)

ARTICLES = 12
RELATIONS = 8
HEADS = 30


def residuals(scores, *covariates):
    """Regress ranks on indicators of relations and heads, and on ranks of covariates."""
    n_relations, n_heads = scores.shape
    relation, head = np.indices(scores.shape).reshape(2, -1)
    columns = [relation == number for number in range(n_relations)]
    columns += [head == number for number in range(n_heads)]
    columns += [rankdata(covariate, axis=1).ravel() for covariate in covariates]
    design = np.column_stack(columns).astype(float)
    ranks = rankdata(scores, axis=1).ravel()
    return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]


def test_centred_correlation_is_that_of_residuals():
    x, y, constant = np.random.default_rng(0).standard_normal((3, 5, 7))
    y = y + x + constant
    x = x + constant
    expected = np.corrcoef(residuals(x), residuals(y))[0, 1]
    assert centred_correlation(x, y) == pytest.approx(expected)
    given_attention = np.corrcoef(residuals(x, constant), residuals(y, constant))[0, 1]
    assert centred_correlation(x, y, [constant]) == pytest.approx(given_attention)


def planted_sums(effect, noise=0.5):
    """Make the sums of three edges of each relation in each article."""
    generator = np.random.default_rng(2)
    totals = np.full((ARTICLES, RELATIONS), 3)
    errors = noise * generator.standard_normal((ARTICLES, RELATIONS, HEADS))
    return 3 * (effect + errors), totals


def test_estimate_correlation_finds_a_planted_effect():
    margins, attention = np.random.default_rng(0).standard_normal((2, RELATIONS, HEADS))
    numbers = estimate_correlation(margins, *planted_sums(margins), [attention], seed=0)
    assert numbers["correlation"] > 0.8
    assert numbers["correlation_low"] > 0
    assert numbers["p_permutation"] < 0.01
    assert numbers["least"] < numbers["ceiling"]


def test_estimate_correlation_finds_nothing_if_attention_has_all_of_the_effect():
    generator = np.random.default_rng(0)
    attention = generator.standard_normal((RELATIONS, HEADS))
    margins = attention + 0.5 * generator.standard_normal((RELATIONS, HEADS))
    sums = planted_sums(attention)
    alone = estimate_correlation(margins, *sums, seed=0)
    given_attention = estimate_correlation(margins, *sums, [attention], seed=0)
    assert alone["correlation_low"] > 0
    assert given_attention["correlation_low"] < 0 < given_attention["correlation_high"]


def test_split_half_ceiling_is_low_for_noise_and_high_for_effects():
    effect = np.random.default_rng(0).standard_normal((RELATIONS, HEADS))
    assert centred_ranks.split_half_ceiling(*planted_sums(effect, noise=0.1)) > 0.95
    assert centred_ranks.split_half_ceiling(*planted_sums(0 * effect)) < 0.4


def test_few_relations_have_few_permutations():
    """Half of the permutations of two relations are the data themselves."""
    margins = np.random.default_rng(0).standard_normal((2, HEADS))
    sums = np.repeat(margins[None], ARTICLES, axis=0)
    numbers = estimate_correlation(margins, sums, np.ones((ARTICLES, 2)), seed=0)
    assert numbers["correlation"] == pytest.approx(1)
    assert 0.4 < numbers["p_permutation"] < 0.6
