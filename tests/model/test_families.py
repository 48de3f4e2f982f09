"""Every family of models gives the maps that transformers itself gives."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from store_tools import token_records
from tiny_models import FAMILIES
from transformers import AutoModel, AutoTokenizer

from helpers.data.records import roles
from helpers.metrics.surface import section_3
from helpers.model.gradients import KEY_TYPES, gradient_importance
from helpers.store.extract import extract, shard_tensors

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


def token_shard(encoder, records, first):
    """Compute the tensors of one shard of tokens."""
    store = SimpleNamespace(
        encoder=encoder,
        level="token",
        lens="attention",
        manifest={"hidden": False},
        indices=lambda _: range(first, first + len(records)),
        records=lambda _: records,
    )
    return shard_tensors(store, 0)


def test_maps_do_not_depend_on_the_batch_and_its_padding(family, tiny_encoder, segments):
    encoder = tiny_encoder(family)
    records = token_records(encoder, segments)
    together = token_shard(encoder, records, 0)
    for index, record in enumerate(records):
        alone = token_shard(encoder, [record], index)
        assert set(alone) <= set(together)
        for name, expected in alone.items():
            np.testing.assert_allclose(together[name], expected, **HALF)


def test_special_tokens_come_from_the_tokenizer(family, tiny_encoder, segments):
    encoder = tiny_encoder(family)
    specials = encoder.special_tokens
    record = token_records(encoder, segments)[0]
    masks = roles(record["tokens"], specials)
    maps = token_shard(encoder, [record], 0)["attention/000000"]
    visible = np.ones((len(maps), *maps.shape[2:]), dtype=bool)
    shares = section_3(maps.astype(np.float64), masks, visible)
    if family in WITHOUT_SPECIALS:
        first = {"first": "<|endoftext|>"} if encoder.is_decoder else {}
        assert specials == {"cls": None, "sep": None, **first}
        for name in ("cls", "sep", "sep_to_sep", "other_to_sep"):
            assert np.isnan(shares[name]).all()
    else:
        assert specials == {"cls": encoder.tokenizer.cls_token, "sep": encoder.tokenizer.sep_token}
        assert np.flatnonzero(masks.cls).tolist() == [0]
        assert masks.sep.sum() >= 2
        assert masks.sep[-1]
        del shares["sink"]  # no row lacks mass
        assert all((share > 0).all() for share in shares.values())
    assert masks.punctuation.sum() == 4  # ". , , ." in the first segment


def test_words_are_tokenized_as_in_running_text(family, tiny_encoder):
    encoder = tiny_encoder(family)
    words = ["a", "The", "cat", "doesn't", "watch", "Zürich", "😀"]
    encode = encoder.tokenizer.backend_tokenizer.encode
    running = encode(" ".join(words), add_special_tokens=False).tokens
    apart = encoder.encode_words(words)
    inner = [token for token, word in zip(apart.tokens, apart.word_ids, strict=True) if word]
    assert inner == running[-len(inner) :]  # all but the first word, which has no space before it


def test_gradients_reach_every_layer(family, tiny_encoder, segments):
    encoder = tiny_encoder(family)
    records = token_records(encoder, segments)
    values = gradient_importance(encoder, records, seed=1)["gradients"]
    expected = {"gpt2": "next-token", "t5": "contrastive"}.get(family, "masked-lm")
    assert encoder.objective == expected
    assert values.shape == (len(records), encoder.layers, len(KEY_TYPES))
    missing = dict(zip(KEY_TYPES, np.isnan(values).all(axis=(0, 1)), strict=True))
    assert missing["cls"] == missing["sep"] == (family in WITHOUT_SPECIALS)
    assert not missing["punctuation"]
    assert not missing["other"]
    means = np.nanmean(values[..., ~np.isnan(values).all(axis=(0, 1))], axis=0)  # [layer, type]
    # The last layer of a model with narrow windows may have no masked token that sees a type.
    assert (means[:-1] > 0).all()
    assert means[-1].max() > 0
