"""The files of a store, and damage, which is seen before a number is computed, and repaired."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from store_tools import (
    assert_same,
    cache_at,
    content,
    extract_small,
    flip,
    many_segments,
    truncate,
)

import helpers
from helpers.errors import StoreError
from helpers.store import extract as extraction
from helpers.store import store as store_module
from helpers.store.store import (
    Store,
    check_once,
    open_store,
    repair,
    store_folder,
    store_inputs,
    verify,
)

COUNT = 10  # shards of 4, 4 and 2
SHARD_FILES = [f"shard-0000{number}.safetensors" for number in range(3)]
LIST = "examples.jsonl"
MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def pristine(tiny_encoder, tmp_path_factory):
    return extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("pristine"), COUNT).folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / pristine.name)


def edit_manifest(folder, **changes):
    """Change the manifest of a store, and give it the checksum of its new content."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_text()) | changes
    del manifest["checksum"]
    text = json.dumps(manifest, sort_keys=True)
    manifest["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(manifest))


# The format


def test_a_store_has_the_files_and_the_manifest_of_its_format(folder):
    digest_files = [f"{name}.sha256" for name in SHARD_FILES]
    assert list(content(folder)) == sorted([LIST, MANIFEST, *SHARD_FILES, *digest_files])
    manifest = json.loads((folder / MANIFEST).read_text())
    names = {"format", "model", "corpus", "max_tokens", "code", "visible", "checksum"}
    assert names <= manifest.keys()
    expected = {
        "n_examples": 10, "examples_per_shard": 4, "level": "token", "dtype": "float16",
        "lens": "attention", "layers": [1, 2, 3], "heads": 4, "cut_at": 60,
    }  # fmt: skip
    assert manifest | expected == manifest
    for name, digest_file in zip(SHARD_FILES, digest_files, strict=True):
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert (folder / digest_file).read_text() == digest
    tensors = load_file(folder / SHARD_FILES[2])
    assert set(tensors) == {"attention/000008", "attention/000009"}
    n_tokens = len(Store(folder).record(8)["tokens"])
    assert tensors["attention/000008"].shape == (3, 4, n_tokens, n_tokens)
    assert tensors["attention/000008"].dtype == np.float16


def test_examples_are_the_same_by_index_by_shard_and_by_iteration(folder, monkeypatch):
    store = Store(folder)
    assert (len(store), store.n_shards, store.layers, store.heads) == (10, 3, 3, 4)
    assert store.special_tokens == {"cls": "[CLS]", "sep": "[SEP]"}
    by_index = [store[index] for index in range(len(store))]
    by_shard = [*store.shard(0), *store.shard(1), *store.shard(2)]
    assert [example.index for example in by_shard] == list(range(10))
    assert_same(by_index, by_shard)
    assert_same(by_index, store)
    records = list(store.records())
    assert records == [example.record for example in store]
    assert store.record(9) == records[9] == store[-1].record
    assert list(store.records(range(3, 6))) == records[3:6]
    for read in (store.__getitem__, store.record):
        with pytest.raises(IndexError):
            read(10)
    monkeypatch.chdir(folder.parent)
    assert_same(helpers.open_store(folder.name), store)


# Damage


def cut_list(folder):
    path = folder / LIST
    path.write_bytes(path.read_bytes()[:-1].rpartition(b"\n")[0])


def change_manifest(folder):
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes().replace(b": 60", b": 61"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: truncate(folder / MANIFEST),
        lambda folder: edit_manifest(folder, format=5),
        change_manifest,
        lambda folder: (folder / MANIFEST).unlink(),
    ],
    ids=["cut", "old format", "changed", "missing"],
)
def test_a_damaged_manifest_is_named_and_not_repaired(damage, folder):
    assert verify(folder) == {}
    damage(folder)
    before = content(folder)
    message = re.escape(str(folder / MANIFEST)) + ": .*remove its folder[^\n]*$"
    for read in (Store, repair):
        with pytest.raises(StoreError, match=message):
            read(folder)
    assert list(verify(folder)) == [folder / MANIFEST]
    assert content(folder) == before


def test_open_refuses_an_unfinished_store(folder):
    (folder / SHARD_FILES[1]).unlink()
    with pytest.raises(StoreError, match="run extraction again"):
        open_store(folder)
    with pytest.raises(StoreError, match="missing"):
        Store(folder).shard(1)


DAMAGES = {
    "a bit": ([SHARD_FILES[1]], lambda folder: flip(folder / SHARD_FILES[1])),
    "cut": ([SHARD_FILES[1]], lambda folder: truncate(folder / SHARD_FILES[1])),
    "removed": ([SHARD_FILES[1]], lambda folder: (folder / SHARD_FILES[1]).unlink()),
    "another shard": (
        [SHARD_FILES[1]],
        lambda folder: shutil.copy(folder / SHARD_FILES[0], folder / SHARD_FILES[1]),
    ),
    "two shards": (
        SHARD_FILES[:2],
        lambda folder: [flip(folder / SHARD_FILES[number]) for number in range(2)],
    ),
    "list": ([LIST], cut_list),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_seen_when_it_is_read_and_repaired_by_a_rerun(
    name, folder, encoder, written, monkeypatch
):
    damaged, damage = DAMAGES[name]
    expected = content(folder)
    damage(folder)
    check_once.cache_clear()  # as in another process
    problems = verify(folder)
    assert list(problems) == [folder / file for file in damaged]
    store = Store(folder)
    if damaged != [LIST] and SHARD_FILES[0] not in damaged:
        assert len(store.shard(0)) == 4, "other shards can be read"
    for read in (list, lambda store: store[5], lambda store: store.shard(1)):
        with pytest.raises(StoreError) as caught:
            read(store)
        assert str(caught.value) in problems.values()
        assert "SHA-256" in str(caught.value) and "\n" not in str(caught.value)
    repair(folder)
    assert not any((folder / file).exists() for file in damaged)
    with monkeypatch.context() as patch:
        patch.setattr(extraction, "shard_tensors", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            extract_small(encoder, folder.parent, COUNT)
    written.clear()
    extract_small(encoder, folder.parent, COUNT)
    shards = SHARD_FILES if damaged == [LIST] else damaged
    assert written == [SHARD_FILES.index(file) for file in shards]
    assert content(folder) == expected
    repair(folder)
    assert content(folder) == expected


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files of stores that are hashed."""
    names = []
    original = store_module.sha256

    def spy(path):
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(store_module, "sha256", spy)
    return names


def test_a_file_is_hashed_once_and_not_when_its_store_is_found(folder, encoder, hashed):
    store = extract_small(encoder, folder.parent, COUNT)
    assert (store.folder, hashed) == (folder, [])
    assert len(list(store)) == len(list(store)) == 10
    assert store[0].index == 0
    assert sorted(hashed) == [LIST, *SHARD_FILES]


def test_folder_of_a_hostile_name_is_in_the_cache(tmp_path):
    key = {"name": "../../x", "random_init": None}
    inputs = store_inputs(key, dataclasses.replace(many_segments(2), name="../../x"))
    with cache_at(tmp_path):
        assert store_folder(inputs).parent == tmp_path


class Planted:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_open_ignores_and_refuses_planted_pickles(folder, encoder, tmp_path):
    bomb = pickle.dumps(Planted(tmp_path / "exploded"))
    for name in ("examples.pkl", "shard-00003.safetensors", "manifest.json.tmp", "data.npy"):
        (folder / name).write_bytes(bomb)
    assert len(list(extract_small(encoder, tmp_path, COUNT))) == COUNT
    assert verify(folder) == {}
    for name in (SHARD_FILES[1], MANIFEST):
        (folder / name).write_bytes(bomb)
        assert len(verify(folder)) == 1
    with pytest.raises(StoreError):
        Store(folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("mode", [0o750, 0o775])
def test_write_shard_gives_a_shard_the_permissions_of_its_folder(mode, folder):
    folder.chmod(mode)
    extraction.write_shard(folder, 0, {"a": np.zeros(5)})
    assert (folder / SHARD_FILES[0]).stat().st_mode & 0o777 == mode & 0o666
