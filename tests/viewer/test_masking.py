"""Masked words are given to the model, and the viewer shows the maps that it then has."""

import numpy as np
import pytest
from toy_corpora import corpus_of, sentence_of

from helpers.errors import InputError
from helpers.store.extract import extract
from helpers.viewer.masking import masked_example
from helpers.viewer.view import ViewerWidget, view

WORDS = ["the", "dog", "saw", "Ann", "."]


@pytest.fixture
def store(encoder, own_cache):
    corpus = corpus_of([sentence_of(WORDS), sentence_of(WORDS[::-1])])
    return extract(encoder, corpus, level="word", max_tokens=32)


def test_nothing_masked_gives_the_maps_of_the_store(encoder, store):
    same = masked_example(store, 1, [], encoder)
    np.testing.assert_array_equal(same.attention, store[1].attention)


def test_a_masked_word_changes_the_maps_as_the_mask_token_in_the_text_does(
    encoder, store, tmp_path
):
    masked = masked_example(store, 0, [2], encoder)
    assert masked.record["words"] == ["the", encoder.tokenizer.mask_token, "saw", "Ann", "."]
    corpus = corpus_of([sentence_of(masked.record["words"])], name="masked")
    options = {"level": "word", "max_tokens": 32}
    expected = extract(encoder, corpus, **options)[0].attention
    np.testing.assert_allclose(masked.attention, expected, atol=1e-3)
    assert np.abs(masked.attention - store[0].attention).max() > 0.01


def test_the_kernel_masks_where_it_is_asked_to(encoder, store):
    widget = ViewerWidget(view(store, encoder=encoder))
    assert widget.settings["panes"][0]["masks"]
    content, _ = widget.reply({"kind": "page", "example": 0, "masked": [2]})
    assert content["page"]["tokens"][2] == encoder.tokenizer.mask_token
    _, sent = widget.reply({"kind": "map", "example": 0, "masked": [2], "head": 0})
    n = len(store[0])
    weights = np.frombuffer(sent[0], "<u2").reshape(n, n) / 10_000
    expected = masked_example(store, 0, [2], encoder).attention[0, 0]
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    assert not ViewerWidget(view(store)).settings["panes"][0]["masks"]


def test_another_model_cannot_mask(tiny_encoder, encoder, store):
    with pytest.raises(InputError, match="is not that model"):
        view(store, encoder=tiny_encoder("roberta"))


def test_a_part_of_a_store_is_a_store_to_the_viewer(encoder, store):
    part = store[1:]
    shown = view(part, encoder=encoder)
    assert (len(part), shown.example) == (1, 0)
    np.testing.assert_array_equal(part[0].attention, store[1].attention)
    assert part[0].index == 0 and part[0].record == store[1].record
    assert WORDS[0] in shown.html()
    assert shown.search(word="dog")["example"].tolist() == [0]
    with pytest.raises(InputError, match="no example 1"):
        view(part, 1)
    assert [example.index for example in store[0:2][::-1]] == [0, 1]
