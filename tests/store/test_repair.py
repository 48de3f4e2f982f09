"""Repair extracts the damaged shards of a store again, and no others; lists and manifests too."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

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
from helpers.model.encoder import load
from helpers.store import examples, format
from helpers.store import extract as extraction
from helpers.store.extract import repair, repair_list
from helpers.store.format import read_manifest, verify

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


def remove_shard(folder):
    shard(folder, 5).unlink()


def copy_shard_over_another(folder):
    shutil.copy(shard(folder, 0), shard(folder, 1))


def damage_two_shards(folder):
    flip(shard(folder, 1))
    shard(folder, 4).unlink()


@pytest.mark.parametrize(
    ("damage", "numbers"),
    [
        (flip_shard, [3]),
        (empty_shard, [0]),
        (remove_shard, [5]),
        (copy_shard_over_another, [1]),
        (damage_two_shards, [1, 4]),
    ],
)
def test_repair_extracts_damaged_shards_only(damage, numbers, folder, encoder, written):
    expected = content(folder)
    damage(folder)
    assert len(verify(folder)) == len(numbers)
    lines = repair(encoder, folder)
    assert written == numbers
    assert lines == [f"{shard(folder, number)}: extracted again" for number in numbers]
    assert verify(folder) == []
    assert content(folder) == expected


def test_repair_continues_after_a_repair_that_failed(folder, encoder, monkeypatch):
    expected = content(folder)
    damage_two_shards(folder)
    with monkeypatch.context() as patch:
        patch.setattr(examples, "shards_tensors", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repair(encoder, folder)
    assert "unfinished" in verify(folder)[0]
    lines = repair(encoder, folder)
    assert lines == [f"{shard(folder, number)}: extracted again" for number in (1, 4)]
    assert content(folder) == expected


def test_verify_checks_the_records_of_a_stream(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert verify(stream.folder) == []
    flip(stream.folder / "examples.jsonl")
    (problem,) = verify(stream.folder)
    assert "examples.jsonl: its SHA-256 is not" in problem


def test_repair_list_keeps_the_maps_of_a_damaged_list(folder, encoder, tmp_path, written):
    expected = content(folder)
    truncate(folder / "examples.jsonl")
    with pytest.raises(StoreError, match=f"examples.jsonl: .*verify --repair {folder.name}"):
        extract_small(encoder, tmp_path, COUNT)
    assert "examples.jsonl damaged" in repair_list(folder)
    assert "unfinished" in verify(folder)[0]
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert not written
    assert content(folder) == expected


def test_repair_list_and_a_rerun_mend_a_damaged_list_and_shard(folder, encoder, tmp_path, written):
    expected = content(folder)
    truncate(folder / "examples.jsonl")
    flip(shard(folder, 3))
    repair_list(folder)
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == [3]
    assert content(folder) == expected


def test_maps_of_a_list_with_other_examples_are_extracted_again(folder, encoder, tmp_path, written):
    truncate(folder / "examples.jsonl")
    repair_list(folder)
    written.clear()
    corpus = many_segments(COUNT)
    renamed = [segment._replace(title="another") for segment in corpus.read(Counter())]
    other_corpus = replace(corpus, read=lambda counts: iter(renamed), reader=corpus.read)
    with cache_at(tmp_path):
        store = extraction.extract(encoder, other_corpus, max_tokens=MAX_TOKENS)
    assert store.folder == folder
    assert written == [0, 1, 2, 3, 4, 5]
    assert store.record(0)["title"] == "another"
    assert verify(folder) == []


@pytest.mark.parametrize("change", [truncate, lambda path: path.write_text('{"format": 1}')])
def test_repair_list_removes_a_store_whose_manifest_is_damaged(change, folder, encoder, tmp_path):
    expected = content(folder)
    change(folder / "manifest.json")
    assert "manifest unreadable" in repair_list(folder)
    assert not folder.exists()
    extract_small(encoder, tmp_path, COUNT)
    assert content(folder) == expected


def test_repair_list_removes_a_damaged_list_without_maps(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
        truncate(stream.folder / "examples.jsonl")
        assert "examples.jsonl damaged" in repair_list(stream.folder)
        assert not stream.folder.exists()
        again = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert verify(again.folder) == []


def test_repair_list_leaves_a_store_with_a_whole_list_alone(folder):
    flip(shard(folder, 3))
    before = content(folder)
    assert repair_list(folder) == ""
    assert content(folder) == before


@pytest.mark.parametrize("accepted", ["", "made by other code"])
def test_repair_list_leaves_a_store_of_other_code_alone(accepted, folder):
    manifest = read_manifest(folder)
    spec = manifest.spec if accepted else replace(manifest.spec, code="other")
    replace(manifest, spec=spec, accepted=accepted).write(folder / "manifest.json")
    truncate(folder / "examples.jsonl")
    before = content(folder)
    with pytest.raises(StoreError, match="made by other code"):
        repair_list(folder)
    assert content(folder) == before


def test_repair_list_leaves_a_store_of_another_format_alone(folder, monkeypatch):
    monkeypatch.setattr(format, "FORMAT", format.FORMAT + 1)
    before = content(folder)
    with pytest.raises(StoreError, match=f"another format.*cache --remove {folder.name}"):
        repair_list(folder)
    assert content(folder) == before


@pytest.mark.parametrize("change", ["another family", "another precision"])
def test_repair_refuses_another_model(change, folder, tiny_encoder, tiny_folder, written):
    flip(shard(folder, 3))
    written.clear()
    if change == "another family":
        encoder = tiny_encoder("electra")
    else:
        encoder = load(str(tiny_folder("bert")), device="cpu", dtype="bfloat16")
    with pytest.raises(StoreError, match=r"than '.*' as it is now: .*'compute_dtype': 'float"):
        repair(encoder, folder)
    assert not written
