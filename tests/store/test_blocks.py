"""Texts whose whole maps are too large: sections 3 and 4.3 measure them in blocks, others cut."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from store_tools import cache_at, many_segments
from tolerances import weights_error
from toy_corpora import PARAGRAPHS, corpus_of

from helpers.data.records import Document, Mention
from helpers.errors import ModelError, StoreError
from helpers.metrics import head_distance, per_example, surface
from helpers.metrics.coreference import (
    CANDIDATES,
    AntecedentJudgements,
    coreference_table,
    evaluate_antecedents,
)
from helpers.metrics.heads import DIRECTIONS, PickFrom, picked_words, picks_in
from helpers.model import blocks
from helpers.model.forward import forward, model_inputs
from helpers.store import examples
from helpers.store import extract as extraction
from helpers.store import format as store_format
from helpers.study import Study

COUNT = 10
LIMIT = 24  # tokens of the longest whole maps
MAX_TOKENS = 60
FEW_QUERIES = 7


@pytest.fixture
def small_limit(monkeypatch):
    """Let whole maps of three layers of four heads have 24 tokens at most, and blocks 7 queries."""
    monkeypatch.setattr(store_format, "MAX_MAP_BYTES", 3 * 4 * 2 * LIMIT**2)
    monkeypatch.setattr(
        examples, "rows_in_blocks", partial(blocks.rows_in_blocks, n_queries=FEW_QUERIES)
    )


@pytest.fixture(params=["bert", "modernbert", "gpt2"])
def family_encoder(request, tiny_encoder):
    return tiny_encoder(request.param)


@pytest.fixture
def store(family_encoder, tmp_path):
    """Whole maps, which are computed when they are read."""
    with cache_at(tmp_path / "whole"):
        return extraction.stream(family_encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)


@pytest.fixture
def long_store(family_encoder, tmp_path, store, small_limit):
    """The same texts, whose maps come in blocks."""
    assert not store.in_blocks
    with cache_at(tmp_path / "blocks"):
        opened = extraction.stream(family_encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert opened.in_blocks
    return opened


def test_section_3_of_texts_in_blocks_is_that_of_whole_maps(store, long_store):
    longest = max(len(record["tokens"]) for record in store.records())
    assert longest > 2 * LIMIT
    expected = surface.head_table(surface.sweep(store), surface.SECTION_3)
    table = surface.head_table(surface.sweep(long_store), surface.SECTION_3)
    assert list(table) == list(expected)
    # Stored maps are rounded to half precision, and blocks are not.
    pd.testing.assert_frame_equal(table, expected, rtol=0, atol=2e-4)
    assert len(surface.sweep(long_store, 1).groups) == len(long_store.indices(1))


def test_measures_of_each_example_are_those_of_whole_maps(store, long_store):
    expected = pd.concat(per_example.section_3(store))
    table = pd.concat(per_example.section_3(long_store))
    pd.testing.assert_frame_equal(table, expected, rtol=0, atol=1e-3)


def test_blocks_are_equal_to_eager_maps(family_encoder, tmp_path, small_limit):
    with cache_at(tmp_path):
        store = extraction.stream(family_encoder, many_segments(2), max_tokens=MAX_TOKENS)
    record = store.record(0)
    maps, _ = forward(family_encoder, [model_inputs(family_encoder, record)])
    for layer, first, rows in received(store, 0):
        expected = maps[layer][0, :, first : first + FEW_QUERIES].numpy()
        np.testing.assert_allclose(rows, expected, rtol=0, atol=weights_error(expected))


def received(store, index):
    calls = []
    list(store.texts())[index].for_each_block(lambda *block: calls.append(block))
    assert calls
    return calls


def test_what_needs_whole_maps_says_so(long_store):
    for call in (lambda: long_store[0], lambda: head_distance.sweep(long_store)):
        with pytest.raises(StoreError, match=f"--max-tokens {LIMIT} or less"):
            call()


# Section 4


@pytest.fixture
def documents():
    """Long documents, which are parsed and have coreference chains, with words of many tokens."""
    rng = np.random.default_rng(0)
    words = sorted({word for _, paragraph in PARAGRAPHS for word in paragraph.split()})
    records = []
    for number in range(6):
        n = int(rng.integers(30, 38))
        mentions = [Mention(word, word + 1, word % 3, word) for word in range(0, n, 2)]
        records.append(
            Document(
                words=tuple(rng.choice(words, size=n).tolist()),
                tags=("NOUN",) * n,
                mentions=tuple(mentions),
                split=("train", "dev")[number % 2],
                source=f"document {number}",
            )
        )
    return corpus_of(records, "long-documents")


@pytest.fixture
def word_stores(family_encoder, tmp_path, monkeypatch, documents):
    """Stores of the words of the documents: of whole maps, and in blocks."""
    stores = []
    for name in ("whole", "blocks"):
        if name == "blocks":
            monkeypatch.setattr(store_format, "MAX_MAP_BYTES", 3 * 4 * 2 * LIMIT**2)
            few = partial(blocks.rows_in_blocks, n_queries=FEW_QUERIES)
            monkeypatch.setattr(examples, "rows_in_blocks", few)
        with cache_at(tmp_path / name):
            opened = extraction.stream(family_encoder, documents, level="word", max_tokens=64)
        stores.append(opened)
    assert [store.in_blocks for store in stores] == [False, True]
    return stores


def test_blocks_of_words_are_the_rows_of_word_maps(word_stores):
    whole, in_blocks = word_stores
    for example, text in zip(whole, in_blocks.texts(), strict=True):
        assert len(text.record["inputs"]["groups"]) > len(text)  # words of several tokens
        assert text.shape == example.shape
        np.testing.assert_array_equal(text.visible_keys, example.visible_keys)
        rows = {}

        def receive(layer, first, block, rows=rows):
            assert first == sum(part.shape[1] for part in rows.setdefault(layer, []))
            rows[layer].append(block)

        text.for_each_block(receive)
        assert len(rows[0]) > 2
        maps = np.stack([np.concatenate(parts, axis=1) for parts in rows.values()])
        np.testing.assert_allclose(maps, example.attention, atol=1e-3)  # half precision


def test_picks_in_blocks_are_those_of_whole_maps(word_stores):
    whole, in_blocks = word_stores
    for example, text in zip(whole, in_blocks.texts(), strict=True):
        is_word = text.is_word
        candidates = [is_word, np.ones_like(is_word), is_word & (np.arange(len(text)) % 3 == 0)]
        variants = [PickFrom(part, direction) for part in candidates for direction in DIRECTIONS]
        picks = picks_in(text, variants)
        # Half precision makes some weights equal that are not: they are compared in full.
        full = rows_of(text)
        for variant, picked in zip(variants, picks, strict=True):
            allowed = np.broadcast_to(variant.candidates, (len(text), len(text)))
            expected = picked_words(
                full,
                direction=variant.direction,
                candidates=allowed,
                visible=example.visible_keys[:, None],
            )
            np.testing.assert_array_equal(picked, expected)


def rows_of(text):
    """Put the blocks of a text together."""
    maps = np.empty(text.shape, np.float32)

    def receive(layer, first, block):
        maps[layer, :, first : first + block.shape[1]] = block

    text.for_each_block(receive)
    return maps


def test_antecedents_in_blocks_are_those_of_whole_maps(word_stores):
    whole, in_blocks = map(evaluate_antecedents, (word_stores[0], word_stores[1].texts()))
    assert len(whole.mentions) > 20
    pd.testing.assert_frame_equal(in_blocks.mentions, whole.mentions)
    np.testing.assert_array_equal(in_blocks.sees_antecedent, whole.sees_antecedent)
    for candidates in CANDIDATES:
        np.testing.assert_array_equal(in_blocks.chance[candidates], whole.chance[candidates])
        differ = in_blocks.heads[candidates] != whole.heads[candidates]
        assert differ.mean() < 0.01  # where half precision makes weights equal
    again = AntecedentJudgements.from_arrays(in_blocks.to_arrays())
    pd.testing.assert_frame_equal(coreference_table(again), coreference_table(in_blocks))


def test_long_examples_have_smaller_shards():
    assert extraction.shard_size("token", 60) == extraction.shard_size("token", 128) == 32
    assert extraction.shard_size("word", 512) == 16
    assert extraction.shard_size("token", 4096) == 1


# A study


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"{first}\n{second}" for first, second in PARAGRAPHS))
    return str(path)


@pytest.fixture
def make_study(tiny_folder, text, own_cache):
    def make(**settings):
        options = {"model": str(tiny_folder("bert")), "max_tokens": 48, "segments": 6}
        return Study(text=text, device="cpu", **options | settings)

    return make


def test_a_study_measures_section_3_in_blocks_and_cuts_the_rest(make_study, small_limit):
    cut = make_study()
    assert cut.in_blocks
    assert "up to 48 tokens, in blocks" in cut.long_text_note
    assert cut.long_text_note in cut.notes
    lengths = [len(record["tokens"]) for record in cut.segment_store().records()]
    assert max(lengths) == LIMIT
    distances, _ = cut.distances()
    assert distances.shape == (12, 12)
    table = surface.head_table(cut.sums, surface.SECTION_3)
    controls = cut.control_sums
    store_format.MAX_MAP_BYTES = 2**30  # monkeypatch puts it back
    whole = make_study(stream=True)
    assert not whole.in_blocks
    assert whole.long_text_note == ""
    expected = surface.head_table(whole.sums, surface.SECTION_3)
    pd.testing.assert_frame_equal(table, expected, rtol=0, atol=2e-4)
    # The temperatures of the other control are matched on the texts as they are cut.
    random = whole.control_sums["random"].mean("entropy")
    np.testing.assert_allclose(controls["random"].mean("entropy"), random, atol=2e-4)


def test_a_study_finds_antecedents_beyond_the_cut_of_whole_maps(make_study, small_limit):
    cut = make_study(max_tokens=60)
    found = cut.antecedents()
    cut_documents = cut.coreference_store()
    assert not cut_documents.is_stored(0)  # nothing but pictures needs it
    of_cut_documents = evaluate_antecedents(cut_documents)
    assert len(found.mentions) > len(of_cut_documents.mentions)
    random = cut.antecedents(cut.controls["random"])
    store_format.MAX_MAP_BYTES = 2**30  # monkeypatch puts it back
    whole = make_study(max_tokens=60, stream=True)
    assert not whole.in_blocks
    expected = whole.antecedents()
    pd.testing.assert_frame_equal(found.mentions, expected.mentions)
    for judged, whole_maps in (
        (found, expected),
        (random, whole.antecedents(whole.controls["random"])),
    ):
        differ = judged.heads["words"] != whole_maps.heads["words"]
        assert differ.mean() < 0.02  # where half precision makes weights equal


def test_the_norm_lens_has_no_blocks(make_study, small_limit):
    study = make_study(lens="norm")
    assert not study.in_blocks
    assert study.long_text_note.startswith("Nothing measures texts")
    assert np.isfinite(study.sums.mean("entropy")).all()


def test_a_family_without_the_interface_is_refused(make_study, tiny_folder, small_limit):
    study = make_study(model=str(tiny_folder("mpnet")))
    with pytest.raises(ModelError, match="interface of transformers"):
        _ = study.sums
