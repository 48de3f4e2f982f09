from __future__ import annotations

from helpers.model.token_types import roles

BERT = {"cls": "[CLS]", "sep": "[SEP]"}


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


def test_special_tokens_are_those_of_the_model():
    found = roles(["<s>", "[CLS]", "</s>"], {"cls": "<s>", "sep": "</s>"})
    assert found.cls.tolist() == [True, False, False]
    assert found.sep.tolist() == [False, False, True]


def test_a_model_without_special_tokens_has_no_masks_for_them():
    found = roles(["a", "."], {"cls": None, "sep": None})
    assert found.cls is None
    assert found.sep is None
    assert list(found.masks()) == ["punctuation", "other"]
    assert found.other.tolist() == [True, False]


def test_one_of_the_two_special_tokens_can_be_missing():
    found = roles(["a", "</s>"], {"cls": None, "sep": "</s>"})
    assert found.cls is None
    assert found.sep.tolist() == [False, True]
