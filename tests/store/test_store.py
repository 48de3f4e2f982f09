"""Stores: what is in one, and that damage is seen before a number is computed."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file
from store_tools import cache_at, content, extract_small, flip

from helpers.errors import StoreError
from helpers.store import extract as extraction
from helpers.store import format as recording
from helpers.store.format import read_manifest, verify
from helpers.store.store import Store

COUNT = 10  # shards of 4, 4 and 2


@pytest.fixture(scope="module")
def pristine(tiny_encoder, tmp_path_factory):
    return extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("pristine"), COUNT).folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / pristine.name)


def edit(path, change):
    """Change a manifest by hand, with a checksum that fits."""
    facts = json.loads(path.read_text())
    change(facts)
    del facts["checksum"]
    checksum = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(facts | {"checksum": checksum}))


def test_a_store_has_the_files_and_facts_of_its_format(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [f"shard-0000{number}.safetensors" for number in range(3)]
    assert list(content(folder)) == ["examples.jsonl", "manifest.json", *files]
    wanted = "format model lens corpus level dtype max_tokens n_examples examples_per_shard shards"
    assert set(wanted.split()) <= set(manifest)
    assert (manifest["n_examples"], manifest["examples_per_shard"]) == (10, 4)
    assert (manifest["level"], manifest["dtype"]) == ("token", "float16")
    assert manifest["lens"] == "attention"
    hashes = content(folder)
    for number, shard in enumerate(manifest["shards"]):
        assert shard["file"] == files[number]
        assert (shard["first"], shard["count"]) == (4 * number, [4, 4, 2][number])
        assert shard["bytes"] == (folder / shard["file"]).stat().st_size
        assert shard["sha256"] == hashes[shard["file"]]
    tensors = load_file(folder / "shard-00002.safetensors")
    assert set(tensors) == {
        f"{name}/{index:06d}" for name in ("attention", "token_ids") for index in (8, 9)
    }
    n = len(tensors["token_ids/000008"])
    assert tensors["attention/000008"].shape == (3, 4, n, n)
    assert tensors["attention/000008"].dtype == np.float16
    assert tensors["token_ids/000008"].dtype == np.int32


def test_every_way_of_reading_gives_the_same_examples(folder):
    store = Store.open(folder)
    assert (len(store), store.n_shards, store.layers, store.heads) == (10, 3, 3, 4)
    assert store.special_tokens == {"cls": "[CLS]", "sep": "[SEP]"}
    one_by_one = [store[i] for i in range(len(store))]
    shards = [example for number in range(3) for example in store.shard(number)]
    for ways in zip(one_by_one, shards, store, strict=True):
        for example in ways:
            np.testing.assert_array_equal(example.attention, ways[0].attention)
            np.testing.assert_array_equal(example.token_ids, ways[0].token_ids)
            assert (example.index, example.record) == (ways[0].index, ways[0].record)
    assert [example.index for example in shards] == list(range(10))
    assert list(store.records()) == [example.record for example in shards]
    assert store.record(9) == shards[9].record == store[-1].record
    assert len(list(store.records(range(3, 6)))) == 3
    for beyond in (store.__getitem__, store.record):
        with pytest.raises(IndexError):
            beyond(10)


def rewrite(name, change):
    """Return what changes the bytes of one of a store's files."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def of_manifest(change):
    return lambda folder: edit(folder / "manifest.json", change)


SHARD, LIST, MANIFEST = "shard-00001.safetensors", "examples.jsonl", "manifest.json"
DAMAGES = [
    (rewrite(SHARD, lambda data: data[:-1]), SHARD, "bytes, expected"),
    (lambda folder: (folder / SHARD).unlink(), SHARD, "0 bytes, expected"),
    (rewrite(MANIFEST, lambda data: data[:-200]), MANIFEST, "not a whole manifest"),
    (of_manifest(lambda facts: facts.update(format=3)), MANIFEST, "another format than 2"),
    (rewrite(MANIFEST, lambda data: data.replace(b": 60", b": 61")), MANIFEST, "not a whole"),
    (of_manifest(lambda facts: facts["shards"][0].update(file="../x")), MANIFEST, "not a whole"),
    (rewrite(LIST, lambda data: data[: data[:-1].rindex(b"\n") + 1]), LIST, "bytes, expected"),
    (rewrite(LIST, lambda data: data.replace(b"art", b"trt", 1)), LIST, "SHA-256 is not"),
    (
        lambda folder: (folder / MANIFEST).rename(folder / "unfinished.json"),
        *("", "the store is unfinished, run extraction again"),
    ),
]


@pytest.mark.parametrize(("damage", "file", "problem"), DAMAGES)
def test_opening_names_the_damage_in_one_line(damage, file, problem, folder):
    assert verify(folder) == []
    damage(folder)
    with pytest.raises(StoreError) as caught:
        Store.open(folder)
    message = str(caught.value)
    assert message.startswith(str(folder / file)) and problem in message
    assert "\n" not in message
    remedies = ("verify --repair", "cache --remove", "run extraction again")
    assert any(remedy in message for remedy in remedies)
    assert any(line.startswith(str(folder / file)) for line in verify(folder))


def test_a_changed_byte_is_seen_when_its_shard_is_read(folder):
    flip(folder / SHARD)
    store = Store.open(folder)
    assert len(store.shard(0)) == 4
    for read in (lambda: store.shard(1), lambda: store[5], lambda: list(store)):
        with pytest.raises(StoreError, match=r"shard-00001.*: its SHA-256 is not .*; repair it"):
            read()
    (problem,) = verify(folder)
    assert problem.startswith(str(folder / SHARD))


def test_a_shard_is_checked_once_unless_it_changes(folder, monkeypatch):
    read, original = [], recording.sha256

    def spy(path):
        read.append(path.name)
        return original(path)

    store = Store.open(folder)
    monkeypatch.setattr(recording, "sha256", spy)
    list(store), store[0], list(Store.open(folder))
    maps = [f"shard-0000{i}.safetensors" for i in range(3)]
    assert read == [*maps, LIST], "opening reads no maps"
    os.utime(folder / maps[2], ns=(1, 1))
    list(store)
    assert read[4:] == maps[2:]


def test_tables_follow_the_digests_of_the_shards(folder):
    key = Store.open(folder).key
    of_manifest(lambda facts: facts["shards"][1].update(sha256="0" * 64))(folder)
    assert Store.open(folder).key != key


def test_corpus_and_model_names_cannot_leave_the_cache(folder, tmp_path):
    spec = read_manifest(folder).spec
    hostile = {"name": "../../x"}
    spec = replace(spec, corpus=spec.corpus | hostile, model=spec.model | hostile)
    with cache_at(tmp_path):
        assert spec.folder().parent == tmp_path


class Planted:
    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_planted_pickle_is_not_opened(folder, tiny_encoder, tmp_path):
    bomb = Planted()
    bomb.target = tmp_path / "exploded"
    for name in ("examples.pkl", "shard-00003.safetensors", "manifest.json.tmp", "data.npy"):
        (folder / name).write_bytes(pickle.dumps(bomb))
    assert len(list(extract_small(tiny_encoder("bert"), tmp_path, COUNT))) == COUNT
    assert verify(folder) == []
    for name in (SHARD, MANIFEST):
        (folder / name).write_bytes(pickle.dumps(bomb))
        with pytest.raises(StoreError):
            Store.open(folder)
    assert not bomb.target.exists()


def test_a_full_disk_is_known_by_the_message_of_safetensors_too(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(extraction, "save_file", full)
    with pytest.raises(StoreError, match=r"No space left on device .*; [\d,]+ bytes are free"):
        extraction.write_shard(folder, 0, {"a": np.zeros(5)}, range(4), lambda _: None)


def test_a_shard_is_as_open_as_its_folder(folder):
    for mode in (0o750, 0o775):
        folder.chmod(mode)
        extraction.write_shard(folder, 0, {"a": np.zeros(5)}, range(4), lambda _: None)
        assert (folder / "shard-00000.safetensors").stat().st_mode & 0o777 == mode & 0o666
