"""Streams: the store's bits without the store; and reading ahead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from store_tools import MAX_TOKENS, cache_at, content, extract_small, many_segments

from helpers.store import extract as extraction
from helpers.store import store as reader
from helpers.store.store import read_ahead

COUNT = 22  # 6 shards


@pytest.fixture
def stream(encoder, tmp_path):
    corpus = many_segments(COUNT)
    with cache_at(tmp_path / "stream"):
        return extraction.stream(encoder, corpus, max_tokens=MAX_TOKENS)


@pytest.fixture
def store(encoder, tmp_path):
    return extract_small(encoder, tmp_path / "store", COUNT)


def assert_same(examples, others):
    for one, other in zip(examples, others, strict=True):
        assert (one.index, one.record, one.offset) == (other.index, other.record, other.offset)
        for name in ("attention", "token_ids", "hidden"):
            mine, its = np.array(getattr(one, name)), np.array(getattr(other, name))
            assert mine.dtype == its.dtype
            np.testing.assert_array_equal(mine, its)


def test_a_stream_gives_the_bits_of_the_store(stream, store):
    assert_same(stream, store)
    assert_same([stream[5], stream[21]], [store[5], store[21]])
    assert_same(stream.shard(3), store.shard(3))
    assert list(stream.records()) == list(store.records())
    for fact in ("spec", "layers", "heads", "special_tokens", "n_shards"):
        assert getattr(stream, fact) == getattr(store, fact)
    assert len(stream) == len(store) == COUNT
    assert stream.key != store.key, "a stream vouches for no shard"


def test_a_stream_removes_a_half_written_list_of_work(encoder, tmp_path):
    """A process that is killed while it lists leaves the file under a temporary name."""
    corpus = many_segments(COUNT)
    with cache_at(tmp_path):
        key = extraction.store_key(encoder, corpus, max_tokens=MAX_TOKENS)
        leftover = key.folder() / "examples.jsonl.0123456789ab.tmp"
        leftover.parent.mkdir(parents=True)
        leftover.write_text('{"tokens": ["[CLS]"')
        opened = extraction.stream(encoder, corpus, max_tokens=MAX_TOKENS)
    assert len(opened) == COUNT and not leftover.exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_word_level_streams_have_vectors(encoder, sentences, tmp_path):
    options = {"level": "word", "max_tokens": 60, "hidden": True}
    with cache_at(tmp_path / "a"):
        store = extraction.extract(encoder, sentences, **options)
    with cache_at(tmp_path / "b"):
        assert_same(extraction.stream(encoder, sentences, **options), store)


def test_a_store_goes_on_from_the_records_of_a_stream(stream, store, encoder):
    assert sorted(content(stream.folder)) == ["examples.jsonl", "unfinished.json"], "no maps"
    records = (stream.folder / "examples.jsonl").stat()
    after = extract_small(encoder, stream.folder.parent, COUNT)
    assert after.folder == stream.folder
    assert (after.folder / "examples.jsonl").stat().st_mtime_ns == records.st_mtime_ns
    assert content(after.folder) == content(store.folder)
    assert_same(stream, store)


@pytest.mark.parametrize("kind", ["store", "stream"])
def test_reading_ahead_gives_the_same_shards(kind, store, stream):
    source = {"store": store, "stream": stream}[kind]
    shards = list(read_ahead(source))
    assert [len(shard) for shard in shards] == [4, 4, 4, 4, 4, 2]
    assert_same([example for shard in shards for example in shard], store)


def test_an_error_in_a_measure_is_the_last_thing_said(tiny_folder, tmp_path):
    """The generator of a stream is closed when the interpreter has nearly gone."""
    (tmp_path / "text.txt").write_text("\n".join(f"Cat {n} sat on a mat." for n in range(99)))
    own = {"model": str(tiny_folder("bert")), "text": str(tmp_path / "text.txt"), "stream": True}
    code = f"""from helpers.study import Study
def measure(example): raise KeyError("mine")
examples = iter(Study(**{own}).segment_store())
[measure(example) for example in examples]"""
    two = os.environ | {"OMP_NUM_THREADS": "2", "ATTENTION_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=two)
    assert done.stderr.splitlines()[-1] == "KeyError: 'mine'"


def test_the_next_shard_is_read_while_one_is_used(store, monkeypatch):
    reading = threading.Semaphore(0)
    original = reader._opened

    def spy(*shard):
        reading.release()
        return original(*shard)

    monkeypatch.setattr(reader, "_opened", spy)
    shards = read_ahead(store)
    next(shards)
    for _ in range(2):  # the first and the second shard
        assert reading.acquire(timeout=5)
    assert not reading.acquire(timeout=0.1), "only one shard is read ahead"
    shards.close()
