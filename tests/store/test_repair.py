"""Repair removes the damaged files of a store, and the next extraction makes them again."""

from __future__ import annotations

import shutil

import pytest
from store_tools import (
    MAX_TOKENS,
    cache_at,
    content,
    extract_small,
    flip,
    many_segments,
    truncate,
)

from helpers.errors import StoreError
from helpers.store import extract as extraction
from helpers.store.store import check_once
from helpers.store.verify import repair, verify

COUNT = 22  # 6 shards


@pytest.fixture
def folder(encoder, tmp_path):
    return extract_small(encoder, tmp_path, COUNT).folder


def shard(folder, number):
    return folder / f"shard-{number:05d}.safetensors"


def flip_shard(folder):
    flip(shard(folder, 3))


def empty_shard(folder):
    shard(folder, 0).write_bytes(b"")


def copy_shard_over_another(folder):
    shutil.copy(shard(folder, 0), shard(folder, 1))


def damage_two_shards(folder):
    flip(shard(folder, 1))
    truncate(shard(folder, 4))


@pytest.mark.parametrize(
    ("damage", "numbers"),
    [
        (flip_shard, [3]),
        (empty_shard, [0]),
        (copy_shard_over_another, [1]),
        (damage_two_shards, [1, 4]),
    ],
)
def test_repair_removes_damaged_shards_that_a_rerun_extracts(
    damage, numbers, folder, encoder, tmp_path, written
):
    expected = content(folder)
    damage(folder)
    assert len(verify(folder)) == len(numbers)
    repair(folder)
    problems = verify(folder)
    assert list(problems) == [shard(folder, number) for number in numbers]
    for path, line in problems.items():
        assert line.startswith(f"{path}: ") and "missing" in line
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == numbers
    assert content(folder) == expected
    assert verify(folder) == {}


def test_extract_makes_a_missing_shard_of_a_finished_store(folder, encoder, tmp_path, written):
    expected = content(folder)
    shard(folder, 5).unlink()
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == [5]
    assert content(folder) == expected


def test_extract_continues_after_a_repair_that_failed(folder, encoder, tmp_path, monkeypatch):
    expected = content(folder)
    damage_two_shards(folder)
    repair(folder)
    with monkeypatch.context() as patch:
        patch.setattr(extraction, "shard_tensors", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            extract_small(encoder, tmp_path, COUNT)
    extract_small(encoder, tmp_path, COUNT)
    assert content(folder) == expected


def test_verify_checks_the_records_of_a_stream(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.extract(
            encoder, many_segments(COUNT), max_tokens=MAX_TOKENS, stream=True
        )
    assert verify(stream.folder) == {}
    flip(stream.folder / "examples.jsonl")
    (problem,) = verify(stream.folder).values()
    assert "examples.jsonl" in problem and "SHA-256" in problem


def test_stream_lists_again_after_a_repair(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.extract(
            encoder, many_segments(COUNT), max_tokens=MAX_TOKENS, stream=True
        )
        expected = content(stream.folder)
        truncate(stream.folder / "examples.jsonl")
        repair(stream.folder)
        extraction.extract(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS, stream=True)
    assert content(stream.folder) == expected


def test_a_store_with_a_damaged_list_is_extracted_again(folder, encoder, tmp_path, written):
    expected = content(folder)
    truncate(folder / "examples.jsonl")
    check_once.cache_clear()  # as in another process
    with pytest.raises(StoreError, match=f"examples.jsonl: .*verify --repair {folder.name}"):
        list(extract_small(encoder, tmp_path, COUNT))
    repair(folder)
    assert not (folder / "examples.jsonl").exists()
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == list(range(6))
    assert content(folder) == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (truncate, "manifest"),
        (lambda path: path.write_text('{"format": 3, "checksum": ""}'), "format.* 6"),
    ],
)
def test_repair_names_a_manifest_that_it_cannot_read(change, problem, folder):
    change(folder / "manifest.json")
    before = content(folder)
    with pytest.raises(StoreError, match=f"{problem}.*remove its folder"):
        repair(folder)
    assert content(folder) == before


def test_repair_leaves_an_undamaged_store_alone(folder):
    before = content(folder)
    repair(folder)
    assert content(folder) == before
