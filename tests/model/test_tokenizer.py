"""Tokens for people."""

from __future__ import annotations

import pytest
import tiny_models
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from helpers.model.tokenizer import readable_tokens


@pytest.fixture(scope="module")
def byte_level():
    return tiny_models.gpt2()[1]


@pytest.fixture(scope="module")
def byte_fallback():
    """The vocabulary of Llama 2: pieces of words, and a token for each byte."""
    vocabulary = [*(f"<0x{byte:02X}>" for byte in range(256)), "<unk>", "▁the", "▁"]
    numbers = {token: number for number, token in enumerate(vocabulary)}
    backend = Tokenizer(models.BPE(numbers, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_readable_tokens_are_the_text_of_a_byte_level_vocabulary(byte_level):
    ids = byte_level("The cat é 我\n")["input_ids"]
    shown = readable_tokens(byte_level, ids)
    assert len(shown) == len(ids)
    assert [f"我 {part}/3" for part in (1, 2, 3)] == shown[-4:-1]
    assert "".join(shown).startswith("The cat")


def test_readable_tokens_of_a_cut_character_and_of_special_tokens(byte_level):
    ids = byte_level("我 a")["input_ids"]
    assert readable_tokens(byte_level, ids[1:3])[0] == "\ufffd"
    assert readable_tokens(byte_level, ids[1:])[-1].strip() == "a"
    assert readable_tokens(byte_level, [byte_level.eos_token_id]) == ["<|endoftext|>"]


def test_readable_tokens_of_byte_fallback(byte_fallback):
    tokens = ["▁the", *(f"<0x{byte:02X}>" for byte in "我".encode()), "▁", "<0xE6>", "▁the"]
    ids = byte_fallback.convert_tokens_to_ids(tokens)
    expected = ["▁the", "我 1/3", "我 2/3", "我 3/3", "▁", "\ufffd", "▁the"]
    assert readable_tokens(byte_fallback, ids) == expected


def test_readable_tokens_of_word_pieces_stay():
    tokenizer = tiny_models.bert()[1]
    ids = tokenizer("Unbelievably 我")["input_ids"]
    assert readable_tokens(tokenizer, ids) == tokenizer.convert_ids_to_tokens(ids)
