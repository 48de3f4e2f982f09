"""Every family of models gives the maps that transformers itself gives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from store_tools import token_records
from tiny_models import FAMILIES
from transformers import AutoModel, AutoTokenizer

from helpers.data.records import roles
from helpers.store.extract import extract

WITHOUT_SPECIALS = {"gpt2", "t5"}  # no cls_token, no sep_token
HALF = {"rtol": 2**-10, "atol": 2**-22}  # float16 precision, and float32 noise before rounding


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@cache
def reference_model(folder):
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    return model.get_encoder() if model.config.is_encoder_decoder else model


def reference_maps(folder, inputs):
    with torch.no_grad():
        output = reference_model(folder)(**inputs, output_attentions=True)
    return torch.stack(output.attentions)[:, 0].numpy()


def test_stored_token_maps_are_those_of_the_model(
    family, tiny_folder, tiny_encoder, segments, own_cache
):
    encoder = tiny_encoder(family)
    folder = tiny_folder(family)
    store = extract(encoder, segments, level="token", max_tokens=60)
    assert not store.report, "the example texts fit"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    spreads = []
    for segment, example in zip(segments.records(), store, strict=True):
        if encoder.is_decoder:
            text = f"{tokenizer.bos_token}{segment.first}\n\n{segment.second}"
            inputs = tokenizer(text, return_tensors="pt")
        else:
            inputs = tokenizer(segment.first, segment.second, return_tensors="pt")
        expected = reference_maps(folder, inputs)
        assert example.stored_attention.dtype == np.float16
        assert example.attention.shape == expected.shape
        np.testing.assert_allclose(example.attention, expected, **HALF)
        spreads.append(expected.max(axis=-1).mean() * expected.shape[-1])
    assert min(spreads) > 1.3, "maps that are nearly uniform would hide mistakes"


def test_stored_word_maps_are_sums_and_means_of_token_maps(
    family, tiny_folder, tiny_encoder, sentences, own_cache
):
    encoder = tiny_encoder(family)
    folder = tiny_folder(family)
    store = extract(encoder, sentences, level="word", max_tokens=60)
    for example in store:
        encoding = encoder.encode_words(example.record["words"])
        tokens = reference_maps(folder, {"input_ids": torch.tensor([encoding.ids])})
        groups = group_positions(encoding.word_ids)
        expected = np.empty((*tokens.shape[:2], len(groups), len(groups)))
        for i, rows in enumerate(groups):
            for j, columns in enumerate(groups):
                expected[..., i, j] = tokens[:, :, rows][..., columns].sum(-1).mean(-1)
        np.testing.assert_allclose(example.attention, expected, **HALF)
        words = range(len(groups))[example.word_positions]
        assert len(words) == len(example.record["words"])
        assert [encoding.word_ids[groups[i][0]] for i in words] == list(range(len(words)))


def group_positions(word_ids):
    groups = []
    for position, word in enumerate(word_ids):
        if word is not None and position and word_ids[position - 1] == word:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def test_words_are_tokenized_as_in_running_text(family, tiny_encoder):
    encoder = tiny_encoder(family)
    words = ["a", "The", "cat", "doesn't", "watch", "Zürich", "😀"]
    encode = encoder.tokenizer.backend_tokenizer.encode
    running = encode(" ".join(words), add_special_tokens=False).tokens
    apart = encoder.encode_words(words)
    inner = [token for token, word in zip(apart.tokens, apart.word_ids, strict=True) if word]
    assert inner == running[-len(inner) :]  # all but the first word, which has no space before it


def test_special_tokens_come_from_the_tokenizer(family, tiny_encoder, segments):
    encoder = tiny_encoder(family)
    specials = encoder.special_tokens
    masks = roles(token_records(encoder, segments)[0]["tokens"], specials)
    assert masks.punctuation.sum() == 4  # ". , , ." in the first segment
    if family in WITHOUT_SPECIALS:
        first = {"first": "<|endoftext|>"} if encoder.is_decoder else {}
        assert specials == {"cls": None, "sep": None, **first}
        return
    assert specials == {"cls": encoder.tokenizer.cls_token, "sep": encoder.tokenizer.sep_token}
    assert np.flatnonzero(masks.cls).tolist() == [0]
    assert masks.sep.sum() >= 2 and masks.sep[-1]
