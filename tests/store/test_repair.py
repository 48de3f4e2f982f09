"""Repair: the damaged shards are extracted again, alone, and the store is as it was."""

from __future__ import annotations

import shutil

import pytest
from store_tools import MAX_TOKENS, cache_at, content, extract_small, flip, many_segments

from helpers.errors import StoreError
from helpers.model.encoder import load
from helpers.store import examples
from helpers.store import extract as extraction
from helpers.store.extract import repair
from helpers.store.format import verify

COUNT = 22  # 6 shards


@pytest.fixture
def folder(encoder, tmp_path):
    return extract_small(encoder, tmp_path, COUNT).folder


def shard(folder, number):
    return folder / f"shard-{number:05d}.safetensors"


DAMAGES = {
    "flipped": (lambda folder: flip(shard(folder, 3)), [3]),
    "truncated": (lambda folder: shard(folder, 0).write_bytes(b""), [0]),
    "missing": (lambda folder: shard(folder, 5).unlink(), [5]),
    "one for another": (lambda folder: shutil.copy(shard(folder, 0), shard(folder, 1)), [1]),
    "two": (lambda folder: [flip(shard(folder, 1)), shard(folder, 4).unlink()], [1, 4]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shards_alone_are_extracted_again(damage, folder, encoder, written):
    expected = content(folder)
    break_it, numbers = DAMAGES[damage]
    break_it(folder)
    assert len(verify(folder)) == len(numbers)
    done = repair(encoder, folder)
    assert written == numbers
    assert done == [f"{shard(folder, number)}: extracted again" for number in numbers]
    assert verify(folder) == []
    assert content(folder) == expected


def test_a_repair_that_is_killed_goes_on(folder, encoder, monkeypatch):
    expected = content(folder)
    flip(shard(folder, 1))
    shard(folder, 4).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(examples, "shards_tensors", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repair(encoder, folder)
    assert "unfinished" in verify(folder)[0]
    done = repair(encoder, folder)
    assert [line.rsplit("/", 1)[1][:11] for line in done] == ["shard-00001", "shard-00004"]
    assert content(folder) == expected


def test_the_records_of_a_stream_are_whole_until_they_are_damaged(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert verify(stream.folder) == []
    flip(stream.folder / "examples.jsonl")
    (problem,) = verify(stream.folder)
    assert "examples.jsonl: its SHA-256 is not" in problem


@pytest.mark.parametrize("name", ["manifest.json", "examples.jsonl"])
def test_a_damaged_manifest_or_list_needs_the_corpus(name, folder, encoder):
    (folder / name).write_bytes((folder / name).read_bytes()[:50])
    with pytest.raises(StoreError, match=rf"{name}: .*run extraction again"):
        repair(encoder, folder)


def test_another_model_repairs_nothing(folder, tiny_encoder, tiny_folder, written):
    flip(shard(folder, 3))
    half = load(str(tiny_folder("bert")), device="cpu", dtype="bfloat16")
    for other in (tiny_encoder("electra"), half):
        with pytest.raises(StoreError, match=r"than '.*' as it is now: .*'compute_dtype': 'float"):
            repair(other, folder)
    assert not written
