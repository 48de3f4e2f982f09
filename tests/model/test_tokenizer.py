"""Limits of the input, and texts that hold the names of special tokens."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from tiny_models import POSITIONS

from helpers.errors import ModelError
from helpers.model.encoder import load
from helpers.store.extract import extract


@pytest.mark.parametrize(
    ("family", "reserved"),
    [("bert", 0), ("gpt2", 0), ("modernbert", 0), ("roberta", 2), ("xlm_roberta", 2), ("mpnet", 2)],
)
def test_the_longest_input_is_one_that_the_model_takes(family, reserved, tiny_encoder):
    encoder = tiny_encoder(family)
    assert encoder.max_length == POSITIONS - reserved
    word = encoder.encode_words(["a"]).ids[-2 if encoder.special_ids else -1]
    ids = torch.full((1, encoder.max_length), word)
    with torch.inference_mode():
        encoder.model(ids, attention_mask=torch.ones_like(ids))
        if family not in {"modernbert"}:  # rotary positions have no table to run out of
            with pytest.raises((IndexError, RuntimeError)):
                longer = torch.full((1, encoder.max_length + 1), word)
                encoder.model(longer, attention_mask=torch.ones_like(longer))


def test_the_tokenizer_can_set_a_lower_limit(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy, model_max_length=32)
    tokenizer.save_pretrained(bert_copy)
    assert load(str(bert_copy), device="cpu").max_length == 32


@pytest.mark.parametrize("max_tokens", [7, POSITIONS + 1])
def test_extraction_refuses_lengths_that_the_model_cannot_take(
    max_tokens, tiny_encoder, segments, own_cache
):
    with pytest.raises(ModelError, match=f"not between 8 and {POSITIONS}"):
        extract(tiny_encoder("bert"), segments, max_tokens=max_tokens)


def test_truncation_and_padding_in_a_tokenizer_file_are_ignored(bert_copy):
    tokenizer = hf.AutoTokenizer.from_pretrained(bert_copy)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=12)
    tokenizer.backend_tokenizer.save(str(bert_copy / "tokenizer.json"))
    encoder = load(str(bert_copy), device="cpu")
    words = ["a", "b", "c", "d", "e"]
    assert encoder.encode_words(words).tokens == ["[CLS]", *words, "[SEP]"]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta", "modernbert", "xlm_roberta"])
def test_names_of_special_tokens_in_a_text_are_text(family, tiny_encoder):
    encoder = tiny_encoder(family)
    word = encoder.special_tokens["sep"]
    if family == "xlm_roberta":
        word = "[SEP]"  # a Unigram model has "</s>" among its pieces
    assert not encoder.special_ids & set(encoder.encode_words([word]).ids[1:-1])
