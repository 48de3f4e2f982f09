"""Predictions with heads disabled are those of whole passes, at a fraction of the work."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from helpers.model.head_mask import uniform_attention
from helpers.studies.classifier import new_classifier, predict
from helpers.studies.dark_secrets.fine_tuning import (
    WHOLE_LAYER,
    compare_disabled,
    disabled_predictions,
)
from helpers.studies.tasks import Pair

TEXTS = ("The cat sat on the mat.", "She doesn't know.", "Rainy winters in Paris!", "Yes.", "Dr.")
PAIRS = [Pair(text, TEXTS[i % 3] if i % 2 else None, i % 4) for i, text in enumerate(TEXTS * 4)]
FAMILIES = ["bert", "roberta", "distilbert", "albert", "electra", "mpnet", "deberta",
            "deberta_v2", "modernbert", "gpt2", "t5"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_each_prediction_is_that_of_its_own_context(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = new_classifier(encoder, 4, seed=0).requires_grad_(False)
    with torch.no_grad():
        classifier.head.weight.mul_(50)
    found = disabled_predictions(classifier, encoder, PAIRS, max_tokens=40)
    assert found.shape == (encoder.layers, encoder.heads + 1, len(PAIRS))
    for layer in range(encoder.layers):
        for place, head in enumerate([*range(encoder.heads), None]):
            with uniform_attention(classifier.encoder, layer, head):
                expected = predict(classifier, encoder, PAIRS, max_tokens=40)
            assert np.array_equal(found[layer, place], expected)
    assert family != "bert" or len(np.unique(found)) > 1


def test_changes_losses_and_gains():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    whole = labels.copy()
    whole[:2] = 1 - whole[:2]  # 80% right
    worse = whole.copy()
    worse[2:8] = 1 - worse[2:8]  # six more wrong
    better = labels.copy()
    mixed = whole.copy()
    mixed[[0, 5]] = 1 - mixed[[0, 5]]  # one gained, one lost
    table = compare_disabled(
        labels, whole, np.array([[whole, worse, mixed], [better, mixed, worse]])
    )
    assert table["layer"].tolist() == [1, 1, 1, 2, 2, 2]
    assert table["head"].tolist() == [1, 2, WHOLE_LAYER] * 2
    assert table["accuracy"].tolist() == [80, 20, 80, 100, 80, 20]
    assert table["change"].tolist() == [0, -60, 0, 20, 0, -60]
    assert table["lost"].tolist() == [0, 6, 1, 0, 1, 6]
    assert table["gained"].tolist() == [0, 0, 1, 2, 1, 0]
    p_values = [1, binomtest(0, 6).pvalue, 1, binomtest(2, 2).pvalue, 1, binomtest(0, 6).pvalue]
    assert np.allclose(table["p_value"], p_values)
    assert table["p_value"][1] == 2 * 0.5**6
