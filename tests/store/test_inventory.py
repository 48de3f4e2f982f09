"""Repair: the damaged shards are extracted again, alone, and the store is as it was."""

from __future__ import annotations

import shutil

import pytest
from store_tools import MAX_TOKENS, cache_at, content, extract_small, many_segments

from helpers.errors import StoreError
from helpers.model.encoder import load
from helpers.store import shards
from helpers.store.extract import Stream
from helpers.store.inventory import load_encoder, repair, stores, verify

COUNT = 22  # 6 shards


pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture
def folder(encoder, tmp_path):
    return extract_small(encoder, tmp_path, COUNT).folder


@pytest.fixture
def written(monkeypatch):
    """The numbers of the shards that a repair writes."""
    numbers, original = [], shards.write_shard

    def spy(folder, number, *rest):
        numbers.append(number)
        return original(folder, number, *rest)

    monkeypatch.setattr(shards, "write_shard", spy)
    return numbers


def shard(folder, number):
    return folder / f"shard-{number:05d}.safetensors"


def flip(path, position=-9):
    data = bytearray(path.read_bytes())
    data[position] ^= 2
    path.write_bytes(bytes(data))


def swap(folder):
    one, other = shard(folder, 0), shard(folder, 1)
    one.rename(folder / "third")
    other.rename(one)
    (folder / "third").rename(other)


DAMAGES = {
    "flipped": (lambda folder: flip(shard(folder, 3)), [3]),
    "truncated": (lambda folder: shard(folder, 0).write_bytes(b""), [0]),
    "missing": (lambda folder: shard(folder, 5).unlink(), [5]),
    "renamed": (lambda folder: shard(folder, 2).rename(folder / "shard-00009.safetensors"), [2]),
    "swapped": (swap, [0, 1]),
    "copied": (lambda folder: shutil.copy(shard(folder, 1), shard(folder, 4)), [4]),
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
    (folder / "shard-00009.safetensors").unlink(missing_ok=True)
    assert content(folder) == expected


def cut(path):
    path.write_bytes(path.read_bytes()[:50])


def test_a_repair_that_is_killed_goes_on(folder, encoder, monkeypatch):
    expected = content(folder)
    flip(shard(folder, 1))
    shard(folder, 4).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(shards, "shards_tensors", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repair(encoder, folder)
    assert "unfinished" in verify(folder)[0]
    done = repair(encoder, folder)
    assert [line.rsplit("/", 1)[1][:11] for line in done] == ["shard-00001", "shard-00004"]
    assert content(folder) == expected


def test_an_unfinished_store_is_finished_without_its_corpus(folder, encoder, written):
    expected = content(folder)
    (folder / "manifest.json").rename(folder / "unfinished.json")
    shard(folder, 2).unlink()
    repair(encoder, folder)
    assert written == [2]
    assert content(folder) == expected


def test_the_records_of_a_stream_are_whole_until_they_are_damaged(encoder, tmp_path):
    with cache_at(tmp_path):
        stream = Stream.open(encoder, many_segments(COUNT), max_tokens=MAX_TOKENS)
    assert verify(stream.folder) == []
    flip(stream.folder / "examples.jsonl")
    (problem,) = verify(stream.folder)
    assert "examples.jsonl: SHA-256 is" in problem


@pytest.mark.parametrize("name", ["manifest.json", "unfinished.json"])
def test_a_damaged_manifest_needs_the_corpus(name, folder, encoder, written):
    (folder / "manifest.json").rename(folder / name)
    cut(folder / name)
    with pytest.raises(StoreError, match=rf"{name}: not a whole manifest; .*extraction again"):
        repair(encoder, folder)
    assert not written


def test_an_undamaged_store_is_left_alone(folder, encoder):
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert repair(encoder, folder) == []
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("damage", [lambda path: flip(path, 30), cut, lambda path: path.unlink()])
def test_damaged_records_need_the_corpus(damage, folder, encoder, written):
    damage(folder / "examples.jsonl")
    with pytest.raises(StoreError, match=r"examples.jsonl: .*run extraction again"):
        repair(encoder, folder)
    assert not written


def test_another_model_repairs_nothing(folder, tiny_encoder, tiny_folder, written):
    flip(shard(folder, 3))
    with pytest.raises(StoreError, match=r"made for model.name = 'bert', wanted 'electra'"):
        repair(tiny_encoder("electra"), folder)
    half = load(str(tiny_folder("bert")), device="cpu", dtype="bfloat16")
    with pytest.raises(StoreError, match=r"model.compute_dtype = 'float32', wanted 'bfloat16'"):
        repair(half, folder)
    assert not written


def test_another_format_is_not_touched(folder, encoder, written):
    (folder / "manifest.json").write_text('{"format": 3}')
    shard(folder, 0).unlink()
    with pytest.raises(StoreError, match="this version reads format 2; remove it with"):
        repair(encoder, folder)
    assert not written


def test_stores_are_found_and_their_encoder_is_loaded(
    folder, encoder, tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path))
    (tmp_path / "derived").mkdir()
    assert stores() == [folder]
    (folder / "manifest.json").rename(folder / "unfinished.json")
    assert stores() == [folder]
    (folder / "unfinished.json").rename(folder / "manifest.json")
    again = load_encoder(folder, model=str(tiny_folder("bert")), device="cpu")
    assert again.identity == encoder.identity
    with pytest.raises(StoreError, match=r"model.name = 'bert', wanted 'electra'"):
        load_encoder(folder, model=str(tiny_folder("electra")), device="cpu")
