"""Roles of tokens, and word maps against a slow loop over words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.model.tokens import (
    by_adding,
    by_products,
    roles,
    to_words,
    vectors_to_words,
    word_groups,
)

BERT = {"cls": "[CLS]", "sep": "[SEP]"}


def random_maps(*shape, seed=0):
    torch.manual_seed(seed)
    return torch.rand(shape).mul(3).softmax(dim=-1)


def slow_to_words(attention, groups):
    """One head at a time, one word at a time, as section 4.1 says it."""
    words = max(groups) + 1
    out = np.zeros((*attention.shape[:-2], words, words))
    for index in np.ndindex(*attention.shape[:-2]):
        head = attention[index]
        for query in range(words):
            rows = [i for i, group in enumerate(groups) if group == query]
            for i in rows:
                for j, key in enumerate(groups):
                    out[index][query, key] += head[i, j] / len(rows)
    return out


@pytest.mark.parametrize(
    ("word_ids", "groups"),
    [
        ([None, 0, 1, None], [0, 1, 2, 3]),
        ([None, 0, 0, 0, 1, 1, None], [0, 1, 1, 1, 2, 2, 3]),
        ([0, 0, 1], [0, 0, 1]),  # a decoder: no special tokens
        ([None, 0, None, None, 1, None], [0, 1, 2, 3, 4, 5]),  # special tokens stay apart
        ([0, None], [0, 1]),
    ],
)
def test_word_groups(word_ids, groups):
    assert word_groups(word_ids) == groups


def test_to_words_by_hand():
    # [CLS] em ##bed: attention to "embed" is the sum of two, from it the mean of two.
    attention = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    expected = torch.tensor([[0.2, 0.8], [0.25, 0.75]])
    torch.testing.assert_close(to_words(attention, [0, 1, 1]), expected)


@pytest.mark.parametrize("convert", [to_words, by_adding, by_products])
def test_every_way_to_words_equals_a_slow_loop_over_heads(convert):
    attention = random_maps(2, 3, 7, 7)
    groups = [0, 1, 1, 1, 2, 3, 3]
    expected = slow_to_words(attention.numpy(), groups)
    np.testing.assert_allclose(convert(attention, groups).numpy(), expected, atol=1e-6)


def test_vectors_of_a_word_are_averaged():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 4.0], [4.0, 0.0]])
    assert vectors_to_words(vectors, [0, 1, 1]).tolist() == [[1.0, 0.0], [3.0, 2.0]]


# Roles


def test_every_position_has_one_role():
    tokens = ["[CLS]", "a", ",", "b", ".", "[SEP]", "c", ".", "[SEP]"]
    found = roles(tokens, BERT)
    assert found.cls.tolist() == [token == "[CLS]" for token in tokens]
    assert found.sep.tolist() == [token == "[SEP]" for token in tokens]
    assert found.punctuation.tolist() == [token in {",", "."} for token in tokens]
    assert found.other.tolist() == [token in {"a", "b", "c"} for token in tokens]
    assert (sum(mask.astype(int) for mask in found.masks().values()) == 1).all()
    assert list(found.masks()) == ["cls", "sep", "punctuation", "other"]


def test_only_full_stops_and_commas_count_as_punctuation():
    tokens = [".", ",", "Ġ.", "▁,", "...", ";", "!", "-", "##.", "Ġ", "▁"]
    assert roles(tokens, BERT).punctuation.tolist() == [True] * 4 + [False] * 7


def test_one_of_the_two_special_tokens_can_be_missing():
    found = roles(["a", "</s>"], {"cls": None, "sep": "</s>"})
    assert found.cls is None
    assert found.sep.tolist() == [False, True]
