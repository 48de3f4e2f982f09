from itertools import permutations as every_order

import numpy as np
import pytest
from scipy.stats import spearmanr

from helpers.errors import InputError
from helpers.studies.sixteen_heads.importance import (
    by_layer_norm,
    importance,
    masks_along,
    pruning_order,
    rank_correlation,
    with_one_in_layer,
    without_each,
)


def test_importance_is_the_mean_of_absolute_values_not_of_values():
    gradients = np.array([[[3.0, -1.0]], [[-3.0, -1.0]]])
    assert importance(gradients).tolist() == [[3.0, 1.0]]


def test_each_layer_is_normalised_to_length_one():
    scores = np.array([[3.0, 4.0], [0.0, 0.0], [5.0, 0.0]])
    np.testing.assert_allclose(by_layer_norm(scores), [[0.6, 0.8], [0, 0], [1, 0]])


def test_the_least_important_heads_go_first_and_ties_by_the_second_score():
    scores = np.array([[2.0, 1.0], [1.0, 0.0]])
    other = np.array([[0.0, 9.0], [3.0, 0.0]])
    assert pruning_order(scores, other).tolist() == [3, 2, 1, 0]
    assert pruning_order(scores, -other).tolist() == [3, 1, 2, 0]


def test_masks_along_an_order_are_nested_and_rounded():
    order = np.array([5, 0, 3, 1, 4, 2])
    masks = masks_along(order, (2, 3), (0, 0.3, 0.5, 1))
    assert masks.reshape(4, 6).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_masks_for_single_heads():
    without, only = without_each(2, 3), with_one_in_layer(2, 3)
    assert without.shape == only.shape == (6, 2, 3)
    assert without[4].tolist() == [[1, 1, 1], [1, 0, 1]]
    assert only[4].tolist() == [[1, 1, 1], [0, 1, 0]]
    assert only[0].tolist() == [[1, 0, 0], [1, 1, 1]]


def test_the_correlation_is_spearmans():
    generator = np.random.default_rng(1)
    one = generator.integers(0, 6, (4, 5)).astype(float)  # with ties
    other = one + generator.normal(0, 2, one.shape)
    expected = spearmanr(one.ravel(), other.ravel())
    found, p = rank_correlation(one, other, permutations=2000)
    assert found == pytest.approx(expected.statistic)
    assert p == pytest.approx(expected.pvalue, abs=0.02)


def test_the_permutation_test_agrees_with_all_permutations():
    one, other = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]), np.array([[2.0, 1.0, 4.0, 3.0, 5.0]])
    found, p = rank_correlation(one, other, permutations=20_000)
    every = [spearmanr(order, other[0]).statistic for order in every_order(one[0])]
    assert p == pytest.approx(np.mean(np.abs(every) >= found - 1e-9), abs=0.01)


def test_within_layers_a_difference_between_layers_counts_for_nothing():
    layers = np.repeat([[0.0], [10.0], [20.0]], 6, axis=1)
    generator = np.random.default_rng(2)
    one, other = (layers + generator.random(layers.shape) for _ in range(2))
    across, p_across = rank_correlation(one, other)
    within, p_within = rank_correlation(one, other, within_layers=True)
    assert across > 0.8 and p_across < 0.001
    assert abs(within) < 0.5 and p_within > 0.05
    by_hand = np.mean([spearmanr(*pair).statistic for pair in zip(one, other, strict=True)])
    assert within == pytest.approx(by_hand)


def test_scores_without_differences_have_no_correlation():
    with pytest.raises(InputError, match="different scores"):
        rank_correlation(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
