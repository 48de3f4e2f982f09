from __future__ import annotations

import numpy as np
import pytest

from helpers.analysis.surface import entropy, relative_position, token_types
from helpers.model.tokens import roles

# [CLS] a [SEP]; one layer, two heads: the second attends evenly.
TOKENS = ["[CLS]", "a", "[SEP]"]
FIRST = [[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]]
MAPS = np.array([[FIRST, np.full((3, 3), 1 / 3)]])
BERT = {"cls": "[CLS]", "sep": "[SEP]"}
NOTHING = {"cls": None, "sep": None}


def heads(value):
    return value[0].tolist()


def test_relative_position_by_hand():
    shares = relative_position(MAPS)
    assert heads(shares["previous"]) == pytest.approx([(0.1 + 0.1) / 3, 2 / 9])
    assert heads(shares["current"]) == pytest.approx([(0.5 + 0.3 + 0.9) / 3, 1 / 3])
    assert heads(shares["next"]) == pytest.approx([(0.2 + 0.6) / 3, 2 / 9])


def test_relative_position_of_a_single_token():
    shares = relative_position(np.ones((2, 3, 1, 1)))
    assert shares["current"].tolist() == np.ones((2, 3)).tolist()
    assert not shares["previous"].any()
    assert not shares["next"].any()


def test_token_types_by_hand():
    shares = token_types(MAPS, roles(TOKENS, BERT))
    assert heads(shares["cls"]) == pytest.approx([0.6 / 3, 1 / 3])
    assert heads(shares["sep"]) == pytest.approx([1.8 / 3, 1 / 3])
    assert heads(shares["punctuation"]) == [0, 0]
    assert heads(shares["sep_to_sep"]) == pytest.approx([0.9, 1 / 3])
    assert heads(shares["other_to_sep"]) == pytest.approx([0.9 / 2, 1 / 3])
    for name in ("cls", "sep"):  # whatever a head attends to
        assert heads(shares[f"uniform_{name}"]) == pytest.approx([1 / 3, 1 / 3])


def test_uniform_shares_count_the_special_tokens_that_there_are():
    maps = np.random.default_rng(0).dirichlet(np.ones(5), size=(1, 1, 5))
    tokens = ["<s>", "a", "</s>", "</s>", "b"]  # RoBERTa puts two between two texts
    names = roles(tokens, {"cls": "<s>", "sep": "</s>"})
    assert token_types(maps, names)["uniform_sep"].item() == pytest.approx(2 / 5)
    causal = np.tril(maps)
    causal /= causal.sum(axis=-1, keepdims=True)
    shares = token_types(causal, names)
    rows = [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]  # what each query gives to every token so far
    assert shares["uniform_cls"].item() == pytest.approx(sum(rows) / 5)
    assert shares["uniform_sep"].item() == pytest.approx((rows[2] + 2 * sum(rows[3:])) / 5)


def test_token_types_with_punctuation_and_two_separators():
    tokens = ["[CLS]", ".", "[SEP]", ",", "[SEP]"]
    rng = np.random.default_rng(0)
    maps = rng.dirichlet(np.ones(5), size=(2, 3, 5))
    shares = token_types(maps, roles(tokens, BERT))
    for layer, head in np.ndindex(2, 3):
        one = maps[layer, head]
        assert shares["punctuation"][layer, head] == pytest.approx(
            sum(one[i, j] for i in range(5) for j in (1, 3)) / 5
        )
        assert shares["sep_to_sep"][layer, head] == pytest.approx(
            sum(one[i, j] for i in (2, 4) for j in (2, 4)) / 2
        )
        assert shares["other_to_sep"][layer, head] == pytest.approx(
            sum(one[i, j] for i in (0, 1, 3) for j in (2, 4)) / 3
        )
    together = shares["cls"] + shares["sep"] + shares["punctuation"]
    np.testing.assert_allclose(together, 1)  # no other token is there


def test_token_types_of_a_model_without_special_tokens_are_missing():
    shares = token_types(MAPS, roles(["a", ".", "b"], NOTHING))
    for name in ("cls", "sep", "sep_to_sep", "other_to_sep"):
        assert np.isnan(shares[name]).all()
    assert heads(shares["punctuation"]) == pytest.approx([0.6 / 3, 1 / 3])


def smooth(p, n):
    return 0.9999 * p + 0.0001 / n


def test_entropy_by_hand():
    values = entropy(MAPS, roles(TOKENS, BERT))
    rows = [-sum(smooth(p, 3) * np.log(smooth(p, 3)) for p in row) for row in FIRST]
    assert values["entropy"][0, 0] == pytest.approx(np.mean(rows), rel=1e-12)
    assert values["entropy_from_cls"][0, 0] == pytest.approx(rows[0], rel=1e-12)


@pytest.mark.parametrize("n", [2, 7, 128])
def test_entropy_of_uniform_attention_is_the_logarithm_of_the_length(n):
    tokens = ["[CLS]", *["a"] * (n - 1)]
    values = entropy(np.full((1, 1, n, n), 1 / n), roles(tokens, BERT))
    for name in ("entropy", "entropy_from_cls", "uniform"):
        assert values[name].item() == pytest.approx(np.log(n), rel=1e-12)


def test_entropy_of_attention_to_one_token_is_finite_and_near_zero():
    values = entropy(np.eye(100)[None, None], roles(["a"] * 100, NOTHING))
    assert 0 < values["entropy"].item() < 0.002
    assert np.isnan(values["entropy_from_cls"]).all()


def test_single_precision_is_enough():
    rng = np.random.default_rng(1)
    maps = rng.dirichlet(np.full(60, 0.1), size=(2, 2, 60))
    masks = roles(["[CLS]", *["a", "."] * 29, "[SEP]"], BERT)
    for function in (lambda m: token_types(m, masks), lambda m: entropy(m, masks)):
        exact, single = function(maps), function(maps.astype(np.float32))
        for name, values in exact.items():
            np.testing.assert_allclose(single[name], values, rtol=1e-5)


def test_uniform_attention_of_a_decoder_is_that_over_what_it_can_see():
    n = 12
    maps = np.tril(np.ones((1, 2, n, n))) / (np.arange(n) + 1)[:, None]
    values = entropy(maps, roles(["a"] * n, {"cls": None, "sep": None}))
    expected = np.log(np.arange(n) + 1).mean()
    np.testing.assert_allclose(values["uniform"], expected)
    np.testing.assert_allclose(values["entropy"], expected, atol=0.02)


def test_largest_weight_by_hand():
    maps = np.array([[[[0.9, 0.1], [0.4, 0.6]]]])
    values = entropy(maps, roles(["a", "b"], {"cls": None, "sep": None}))
    assert values["largest"].item() == pytest.approx(0.75)
