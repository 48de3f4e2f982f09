"""Predictions with heads disabled are those of whole passes, at a fraction of the work."""

import numpy as np
import pytest
import torch

from helpers.attention.ablation import uniform_attention
from helpers.attention.classify import batches, new_classifier, predict
from helpers.attention.disabling import (
    disabled_predictions,
    layer_modules,
    recorded,
    replayed,
)
from helpers.data.tasks import Pair

TEXTS = ("The cat sat on the mat.", "She doesn't know.", "Rainy winters in Paris!", "Yes.", "Dr.")
PAIRS = [Pair(text, TEXTS[i % 3] if i % 2 else None, i % 4) for i, text in enumerate(TEXTS * 4)]
FAMILIES = ["bert", "roberta", "distilbert", "albert", "electra", "mpnet", "deberta",
            "deberta_v2", "modernbert", "gpt2", "t5"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_replaying_the_lower_layers_changes_no_bit(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = new_classifier(encoder, 4, seed=0).requires_grad_(False)
    modules = layer_modules(classifier.encoder)
    assert len(modules) == (0 if family == "albert" else encoder.layers)
    (batch, _, _), *_ = batches(encoder, PAIRS, max_tokens=40)
    with recorded(modules) as outputs:
        whole = classifier(**batch)
    for layer in range(encoder.layers):
        with uniform_attention(classifier.encoder, layer):
            expected = classifier(**batch)
            with replayed(modules[:layer], outputs):
                assert torch.equal(classifier(**batch), expected)
        assert not torch.equal(expected, whole)
    assert torch.equal(classifier(**batch), whole)


@pytest.mark.parametrize("family", ["bert", "albert"])
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
    assert len(np.unique(found)) > 1


def test_lower_layers_are_not_computed_again(tiny_encoder):
    encoder = tiny_encoder("bert")
    classifier = new_classifier(encoder, 2, seed=0)
    calls = {}
    modules = layer_modules(classifier.encoder)
    (batch, _, _), *_ = batches(encoder, PAIRS[:2], max_tokens=40)
    with recorded(modules) as outputs:
        classifier(**batch)
    for number, module in enumerate(modules):
        module.attention.register_forward_hook(
            lambda *_, number=number: calls.update({number: calls.get(number, 0) + 1})
        )
    with replayed(modules[:2], outputs):
        classifier(**batch)
    assert calls == {2: 1}


def test_an_error_inside_leaves_the_modules_as_they_were(tiny_encoder):
    classifier = new_classifier(tiny_encoder("bert"), 2, seed=0)
    modules = layer_modules(classifier.encoder)
    with pytest.raises(RuntimeError), replayed(modules, dict.fromkeys(modules)):
        raise RuntimeError
    assert not any("forward" in vars(module) for module in modules)
