"""Predictions with heads disabled are those of whole passes, at a fraction of the work."""

import numpy as np
import pytest
import torch

from helpers.model.head_mask import uniform_attention
from helpers.studies.classifier import new_classifier, predict
from helpers.studies.dark_secrets.fine_tuning import disabled_predictions
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
