"""Value norms on a map made by hand, and against loops."""

import numpy as np
import pytest
import torch

from helpers.errors import ModelError
from helpers.model.token_types import roles
from helpers.model.word_attention import norm_maps
from helpers.studies.attention_moves.value_norms import lens_values, sink_values

# One layer, one head, three tokens: [CLS] cat . - half of all attention is on [CLS], whose value
# vector is a tenth of the others'.
ATTENTION = np.array([[[[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]]])
NORMS = np.array([[[0.1, 1.0, 1.0]]])
ROLES = roles(["[CLS]", "cat", "."], {"cls": "[CLS]", "sep": "[SEP]"})


def test_a_norm_map_is_weight_times_size_normalised():
    expected = [[0.08, 0.1, 0.1], [0.05, 0.3, 0.2], [0.02, 0.2, 0.6]]
    expected = [[value / sum(row) for value in row] for row in expected]
    np.testing.assert_allclose(norm_maps(ATTENTION, NORMS)[0, 0], expected)


def test_shares_values_and_the_token_that_moves_most():
    moved = norm_maps(ATTENTION, NORMS)
    values = lens_values({"attention": ATTENTION, "norm": moved}, NORMS, ROLES)
    found = {name: value.item() for name, value in values.items()}
    assert found["attention_cls"] == pytest.approx(0.5)
    assert found["norm_cls"] == pytest.approx((0.08 / 0.28 + 0.05 / 0.55 + 0.02 / 0.82) / 3)
    assert found["attention_punctuation"] == pytest.approx(0.3)
    for lens in ("attention", "norm"):
        assert sum(found[f"{lens}_{kind}"] for kind in ("cls", "punctuation", "other")) == (
            pytest.approx(1)
        )
        assert found[f"{lens}_sep"] == 0, "there is [SEP] in the model, none in the text"
    assert found["value_cls"] == pytest.approx(0.1 / 0.7)
    assert np.isnan(found["value_sep"])
    # [CLS] is looked at most by itself and by "cat"; by size it never wins: only "." agrees.
    assert found["same_token"] == pytest.approx(1 / 3)


def test_a_token_that_the_model_does_not_have_has_no_numbers():
    own = roles(["a", "cat", "."], {"cls": None, "sep": None})
    moved = norm_maps(ATTENTION, NORMS)
    values = lens_values({"attention": ATTENTION, "norm": moved}, NORMS, own)
    assert np.isnan(values["attention_cls"]).all() and np.isnan(values["norm_sep"]).all()
    assert values["attention_other"].item() == pytest.approx(0.7)


def test_sinks_against_loops():
    generator = np.random.default_rng(0)
    layers, heads, n, width = 2, 3, 5, 4
    attention = generator.dirichlet(np.ones(n), (layers, heads, n))
    norms, states = generator.random((layers, heads, n)), generator.normal(size=(layers, n, width))
    lenses = {"attention": attention, "norm": norm_maps(attention, norms)}
    found = sink_values(lenses, norms, states)
    assert all(value.shape == (layers, 1) for value in found.values())
    for layer in range(layers):
        size = [np.sqrt(sum(x * x for x in vector)) for vector in states[layer]]
        middle = np.median([abs(x) for vector in states[layer] for x in vector])
        ratios = [norms[layer, h, 0] / np.mean(norms[layer, h, 1:]) for h in range(heads)]
        expected = {
            "attention_first": np.mean([attention[layer, h, :, 0].mean() for h in range(heads)]),
            "uniform": 1 / n,
            "value_first": np.mean(ratios),
            "state_first": size[0] / np.mean(size[1:]),
            "peak_first": max(abs(states[layer, 0])) / middle,
            "peak_others": np.mean([max(abs(vector)) for vector in states[layer, 1:]]) / middle,
        }
        for name, value in expected.items():
            assert found[name][layer, 0] == pytest.approx(value), name


@pytest.mark.parametrize("size", [0, np.nan, np.inf])
def test_what_moves_nothing_or_is_not_finite_has_no_norm_map(size):
    with pytest.raises(ModelError, match="moves nothing at all, or what is not finite"):
        norm_maps(ATTENTION, np.full_like(NORMS, size))


def test_arrays_and_tensors_have_the_same_norm_map():
    own = norm_maps(torch.tensor(ATTENTION), torch.tensor(NORMS))
    np.testing.assert_allclose(own.numpy(), norm_maps(ATTENTION, NORMS), rtol=1e-12)
