"""Streams give the bits of a store without storing maps."""

from __future__ import annotations

import pytest
from store_tools import MAX_TOKENS, assert_same, cache_at, content, extract_small, many_segments

from helpers.store import extract as extraction

COUNT = 22  # 6 shards


@pytest.fixture
def stream(encoder, tmp_path):
    corpus = many_segments(COUNT)
    with cache_at(tmp_path / "stream"):
        return extraction.extract(encoder, corpus, max_tokens=MAX_TOKENS, stream=True)


@pytest.fixture
def store(encoder, tmp_path):
    return extract_small(encoder, tmp_path / "store", COUNT)


def test_stream_gives_the_bits_of_the_store(stream, store):
    assert_same(stream, store)
    assert_same([stream[5], stream[21]], [store[5], store[21]])
    assert_same(stream.shard(3), store.shard(3))
    assert list(stream.records()) == list(store.records())
    for name in ("visible", "layers", "heads", "special_tokens", "n_shards"):
        assert getattr(stream, name) == getattr(store, name)
    assert len(stream) == len(store) == COUNT
    assert stream.key == store.key, "they share their tables"


def test_extract_uses_the_records_of_a_stream(stream, store, encoder):
    assert sorted(content(stream.folder)) == ["examples.jsonl", "manifest.json"], "no maps"
    records = (stream.folder / "examples.jsonl").stat()
    after = extract_small(encoder, stream.folder.parent, COUNT)
    assert after.folder == stream.folder
    assert (after.folder / "examples.jsonl").stat().st_mtime_ns == records.st_mtime_ns
    assert content(after.folder) == content(store.folder)
    assert_same(stream, store)


def test_stream_reads_the_shards_of_a_finished_store_and_computes_those_it_lacks(
    store, encoder, monkeypatch
):
    expected = list(extract_small(encoder, store.folder.parent, COUNT))
    (store.folder / "shard-00003.safetensors").unlink()
    computed = []
    original = extraction.shard_tensors

    def spy(store, number):
        computed.append(number)
        return original(store, number)

    monkeypatch.setattr(extraction, "shard_tensors", spy)
    with cache_at(store.folder.parent):
        opened = extraction.extract(
            encoder, many_segments(COUNT), max_tokens=MAX_TOKENS, stream=True
        )
    assert_same(opened, expected)
    assert computed == [3]
