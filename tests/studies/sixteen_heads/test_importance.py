"""Scores of heads, orders and masks by hand; slopes of the loss by small steps."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies.classifier import batches, new_classifier
from helpers.studies.head_mask import head_mask
from helpers.studies.sixteen_heads.importance import (
    by_layer_norm,
    importance,
    mask_gradients,
    masks_along,
    pruning_order,
    with_one_in_layer,
    without_each,
)
from helpers.studies.tasks import Pair


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


# The slope of the loss in a head's mask

PAIRS = [
    Pair("the cat sat on the mat", "rainy winters", 0),
    Pair("coffee", None, 1),
    Pair("the dog watched it", None, 2),
    Pair("it is home", "to readers and winters", 1),
    Pair("Dr. Smith", "the landslide", 0),
]


@pytest.fixture(scope="module", params=["bert", "albert", "distilbert"])
def classifier_of(request, tiny_encoder):
    encoder = tiny_encoder(request.param)
    return new_classifier(encoder, 3, seed=0).requires_grad_(False), encoder


def test_gradients_are_the_slopes_of_each_examples_own_loss(classifier_of):
    classifier, encoder = classifier_of
    found = mask_gradients(classifier, encoder, PAIRS, max_tokens=16)
    assert found.shape == (5, encoder.layers, encoder.heads)
    step = 1e-2
    for index, pair in enumerate(PAIRS):
        ((batch, label, _),) = batches(encoder, [pair], max_tokens=16)
        for layer, head in ((0, 1), (2, 3)):
            losses = []
            for sign in (1, -1):
                mask = torch.ones(encoder.layers, encoder.heads)
                mask[layer, head] += sign * step
                with torch.no_grad(), head_mask(classifier, mask):
                    losses.append(F.cross_entropy(classifier(**batch), label).item())
            slope = (losses[0] - losses[1]) / (2 * step)
            assert found[index, layer, head] == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_the_batch_and_the_number_of_threads_change_nothing(classifier_of):
    classifier, encoder = classifier_of
    many = PAIRS * 8  # three batches
    alone = mask_gradients(classifier, encoder, many, max_tokens=16)
    torch.set_num_threads(2)
    together = mask_gradients(classifier, encoder, many, max_tokens=16)
    torch.set_num_threads(1)
    assert np.array_equal(alone, together)
    np.testing.assert_allclose(alone[:5], alone[5:10], rtol=1e-3, atol=1e-6)
    assert not any(module._forward_pre_hooks for module in classifier.modules())
