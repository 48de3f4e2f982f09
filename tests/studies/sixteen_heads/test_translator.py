"""Masks and greedy translations of encoder-decoder models, against the plain definitions."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.studies.sixteen_heads import translator as translators
from helpers.studies.sixteen_heads.numbers import DIGITS, WORDS, Translation, number_pairs
from helpers.studies.sixteen_heads.translator import (
    IGNORED,
    KINDS,
    Translator,
    WordCodec,
    batch_of,
    mask_gradients,
    masked,
    new_marian,
    translate,
)

LAYERS, HEADS = 2, 3
PAIRS = number_pairs(12, 5, seed=0)[0]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    codec = WordCodec((*WORDS, *DIGITS))
    model = new_marian(codec, layers=LAYERS, heads=HEADS, width=24)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name or "fc" in name:
                parameter.mul_(4)  # far from uniform attention
    return Translator(model.eval().requires_grad_(False), codec, {})


def logits(translator, kind=None, mask=None):
    batch = batch_of(translator.codec, PAIRS)
    if kind is None:
        return translator.model(**batch).logits
    with masked(translator.model, kind, mask):
        return translator.model(**batch).logits


def projections(model, kind):
    layers = (model.get_encoder() if kind == "encoder" else model.get_decoder()).layers
    return [
        (layer.encoder_attn if kind == "cross" else layer.self_attn).out_proj for layer in layers
    ]


def test_words_become_ids_and_words_again():
    codec = WordCodec(["two", "one"])
    ids = codec.ids("one two three")
    assert len(ids) == 4
    assert codec.text(ids) == "one two <unk>"
    assert codec.text([0, *codec.ids("two two"), 0]) == "two two"


def test_padding_is_no_label():
    batch = batch_of(WordCodec(("a", "b")), [Translation("a", "b b"), Translation("a b a", "b")])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 4)
    assert batch["attention_mask"].sum(dim=1).tolist() == [2, 4]
    assert (batch["labels"] == IGNORED).sum(dim=1).tolist() == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_mask_of_ones_changes_no_bit(translator, kind):
    assert torch.equal(logits(translator, kind, torch.ones(LAYERS, HEADS)), logits(translator))


@pytest.mark.parametrize("kind", KINDS)
def test_mask_of_zero_is_the_head_taken_out_of_the_projection(translator, kind):
    mask = torch.ones(LAYERS, HEADS)
    mask[1, 2] = 0
    found = logits(translator, kind, mask)
    weight = projections(translator.model, kind)[1].weight
    before = weight.detach().clone()
    width = weight.shape[1] // HEADS
    with torch.no_grad():
        weight[:, 2 * width :] = 0
        expected = logits(translator)
        weight.copy_(before)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, logits(translator), atol=1e-4)


def test_kinds_are_masked_apart(translator):
    zero = torch.zeros(LAYERS, HEADS)
    outputs = [logits(translator, kind, zero) for kind in KINDS]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(outputs[one], outputs[other], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_each_pair_alone_by_small_steps(translator, kind):
    found = mask_gradients(translator, PAIRS, kind)
    assert found.shape == (len(PAIRS), LAYERS, HEADS)
    model, step = translator.model.double(), 1e-4
    try:
        for layer, head in ((0, 1), (1, 2)):
            ends = []
            for sign in (1, -1):
                mask = torch.ones(LAYERS, HEADS, dtype=torch.double)
                mask[layer, head] += sign * step
                ends.append([loss_alone(translator, pair, kind, mask) for pair in PAIRS])
            slope = np.subtract(*ends) / (2 * step)
            np.testing.assert_allclose(found[:, layer, head], slope, atol=2e-4)
    finally:
        model.float()


def loss_alone(translator, pair, kind, mask):
    batch = batch_of(translator.codec, [pair])
    with masked(translator.model, kind, mask):
        scores = translator.model(**batch).logits[0]
    return F.cross_entropy(scores, batch["labels"][0]).item()


def test_greedy_translation_takes_the_likeliest_word_each_time(translator, monkeypatch):
    monkeypatch.setattr(translators, "BATCH_SIZE", 5)
    found = translate(translator.model, translator.codec, [p.source for p in PAIRS])
    assert len(set(found)) > 1
    for pair, text in zip(PAIRS, found, strict=True):
        source = torch.tensor([translator.codec.ids(pair.source)])
        ids = [0]
        while len(ids) <= source.shape[1] + 2:
            scores = translator.model(input_ids=source, decoder_input_ids=torch.tensor([ids]))
            ids.append(int(scores.logits[0, -1].argmax()))
            if ids[-1] == 1:
                break
        expected = translator.codec.text(ids[1:])
        assert text.startswith(expected)
        assert text == expected or ids[-1] != 1
