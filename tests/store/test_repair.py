"""Repair removes the damaged files of a store, and the next extraction makes them again."""

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
from helpers.store import examples, format
from helpers.store import extract as extraction
from helpers.store.format import read_manifest, repair, verify

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
    lines = repair(folder)
    advice = "removed; the next run that needs the store makes it again"
    assert lines == [f"{shard(folder, number)}: {advice}" for number in numbers]
    missing = [f"{shard(folder, number)}: missing; run extraction" for number in numbers]
    for line, start in zip(verify(folder), missing, strict=True):
        assert line.startswith(start)
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == numbers
    assert content(folder) == expected
    assert verify(folder) == []


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
        patch.setattr(examples, "shards_tensors", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            extract_small(encoder, tmp_path, COUNT)
    extract_small(encoder, tmp_path, COUNT)
    assert content(folder) == expected


def test_verify_checks_the_records_of_a_stream(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert verify(stream.folder) == []
    flip(stream.folder / "examples.jsonl")
    (problem,) = verify(stream.folder)
    assert "examples.jsonl: its SHA-256 is not" in problem


def test_repair_keeps_the_maps_of_a_damaged_list(folder, encoder, tmp_path, written):
    expected = content(folder)
    truncate(folder / "examples.jsonl")
    with pytest.raises(StoreError, match=f"examples.jsonl: .*verify --repair {folder.name}"):
        extract_small(encoder, tmp_path, COUNT)
    (line,) = repair(folder)
    assert line.startswith(f"{folder / 'examples.jsonl'}: removed")
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert not written
    assert content(folder) == expected


def test_repair_and_a_rerun_mend_a_damaged_list_and_shard(folder, encoder, tmp_path, written):
    expected = content(folder)
    truncate(folder / "examples.jsonl")
    flip(shard(folder, 3))
    repair(folder)
    written.clear()
    extract_small(encoder, tmp_path, COUNT)
    assert written == [3]
    assert content(folder) == expected


def test_maps_of_a_list_with_other_examples_are_extracted_again(folder, encoder, written):
    truncate(folder / "examples.jsonl")
    repair(folder)
    written.clear()
    corpus = many_segments(COUNT)
    renamed = [segment._replace(title="another") for segment in corpus.read(Counter())]
    key = read_manifest(folder).spec
    with cache_at(folder.parent):
        renamed_corpus = replace(corpus, read=lambda counts: iter(renamed))
        extraction.write_examples(encoder, renamed_corpus, folder, key)
        assert not list(folder.glob("shard-*"))
        store = extraction.extract(encoder, corpus, max_tokens=MAX_TOKENS)
    assert store.folder == folder
    assert written == [0, 1, 2, 3, 4, 5]
    assert store.record(0)["title"] == "another"
    assert verify(folder) == []


@pytest.mark.parametrize("change", [truncate, lambda path: path.write_text('{"format": 1}')])
def test_repair_removes_a_store_whose_manifest_is_damaged(change, folder, encoder, tmp_path):
    expected = content(folder)
    change(folder / "manifest.json")
    (line,) = repair(folder)
    assert line.startswith("manifest unreadable")
    assert not folder.exists()
    extract_small(encoder, tmp_path, COUNT)
    assert content(folder) == expected


def test_stream_lists_again_after_a_repair(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
        expected = content(stream.folder)
        truncate(stream.folder / "examples.jsonl")
        repair(stream.folder)
        extraction.stream(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert content(stream.folder) == expected


def test_repair_leaves_an_undamaged_store_alone(folder):
    before = content(folder)
    assert repair(folder) == []
    assert content(folder) == before


@pytest.mark.parametrize("accepted", ["", "made by other code"])
def test_repair_leaves_a_store_of_other_code_alone(accepted, folder):
    manifest = read_manifest(folder)
    spec = manifest.spec if accepted else replace(manifest.spec, code="other")
    replace(manifest, spec=spec, accepted=accepted).write(folder)
    truncate(folder / "examples.jsonl")
    before = content(folder)
    with pytest.raises(StoreError, match="made by other code"):
        repair(folder)
    assert content(folder) == before


def test_extract_does_not_add_shards_to_those_of_other_code(folder, encoder, tmp_path):
    replace(read_manifest(folder), accepted="made by other code").write(folder)
    shard(folder, 5).unlink()
    with pytest.raises(StoreError, match=f"made by other code.*cache --remove {folder.name}"):
        extract_small(encoder, tmp_path, COUNT)


def test_a_store_of_another_format_is_named_and_left_alone(folder, encoder, tmp_path, capsys):
    older = folder.rename(folder.with_name(f"{folder.name[:-10]}0123456789"))
    manifest = (older / "manifest.json").read_text()
    (older / "manifest.json").write_text(manifest.replace('"format": 3', '"format": 2'))
    before = content(older)
    with pytest.raises(StoreError, match=f"another format.*cache --remove {older.name}"):
        repair(older)
    capsys.readouterr()
    extract_small(encoder, tmp_path, COUNT)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{older / 'manifest.json'}: written by a version of this project")
    assert content(older) == before


def test_manifest_is_written_at_the_start_and_at_the_end(encoder, tmp_path, monkeypatch):
    n_writes = 0
    original = format.Manifest.write

    def count_writes(*arguments):
        nonlocal n_writes
        n_writes += 1
        original(*arguments)

    monkeypatch.setattr(format.Manifest, "write", count_writes)
    extract_small(encoder, tmp_path, COUNT)
    assert n_writes == 2


def test_extract_reads_no_shard_whose_digest_is_noted(encoder, tmp_path, monkeypatch):
    def stop(folder, number, *rest):
        if number == 4:
            raise KeyboardInterrupt
        return original(folder, number, *rest)

    original = extraction.write_shard
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction, "write_shard", stop)
        extract_small(encoder, tmp_path, COUNT)
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    with (folder / "digests.jsonl").open("a") as file:
        file.write('{"file": "shard-000')  # a line that a kill has cut
    hashed = []
    read_digest = format.sha256
    monkeypatch.setattr(
        format, "sha256", lambda path: hashed.append(path.name) or read_digest(path)
    )
    extract_small(encoder, tmp_path, COUNT)
    assert [name for name in hashed if name.startswith("shard")] == [
        "shard-00004.safetensors",
        "shard-00005.safetensors",
    ]
    assert not (folder / "digests.jsonl").exists()
