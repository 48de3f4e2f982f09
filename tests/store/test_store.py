"""The files of a store, and damage, which is seen before a number is computed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file
from store_tools import cache_at, content, extract_small, flip, many_segments

import helpers
from helpers.errors import StoreError
from helpers.store import extract as extraction
from helpers.store import store as store_module
from helpers.store.store import Store, open_store, store_folder, store_inputs
from helpers.store.verify import verify

COUNT = 10  # shards of 4, 4 and 2


@pytest.fixture(scope="module")
def pristine(tiny_encoder, tmp_path_factory):
    return extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("pristine"), COUNT).folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / pristine.name)


def edit_manifest(folder, change):
    """Change the manifest of a store, and give it the checksum of its new content."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    del manifest["checksum"]
    text = json.dumps(manifest, sort_keys=True)
    manifest["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(manifest))


SHARD_FILES = [f"shard-0000{number}.safetensors" for number in range(3)]


def test_store_has_the_files_of_its_format(folder):
    assert list(content(folder)) == ["examples.jsonl", "manifest.json", *SHARD_FILES]


def test_manifest_has_the_key_and_the_number_of_examples(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    names = ["format", "model", "lens", "corpus", "level", "dtype", "max_tokens", "n_examples"]
    assert {*names, "examples_per_shard", "shards"} <= manifest.keys()
    assert (manifest["n_examples"], manifest["examples_per_shard"]) == (10, 4)
    assert (manifest["level"], manifest["dtype"]) == ("token", "float16")
    assert manifest["lens"] == "attention"
    assert (manifest["layers"], manifest["heads"], manifest["cut_at"]) == ([1, 2, 3], 4, 60)


def test_manifest_has_the_range_and_digest_of_each_shard(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    counts = [4, 4, 2]
    for number, shard in enumerate(manifest["shards"]):
        path = folder / SHARD_FILES[number]
        assert shard["file"] == path.name
        assert (shard["first"], shard["count"]) == (4 * number, counts[number])
        assert shard["bytes"] == path.stat().st_size
        assert shard["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_shard_has_the_tensors_of_its_examples(folder):
    tensors = load_file(folder / "shard-00002.safetensors")
    assert set(tensors) == {"attention/000008", "attention/000009"}
    n_tokens = len(Store(folder).record(8)["tokens"])
    assert tensors["attention/000008"].shape == (3, 4, n_tokens, n_tokens)
    assert tensors["attention/000008"].dtype == np.float16


def assert_same(examples, expected_examples):
    for example, expected in zip(examples, expected_examples, strict=True):
        np.testing.assert_array_equal(example.attention, expected.attention)
        assert (example.index, example.record) == (expected.index, expected.record)


def test_store_knows_its_sizes_and_special_tokens(folder):
    store = Store(folder)
    assert (len(store), store.n_shards, store.layers, store.heads) == (10, 3, 3, 4)
    assert store.special_tokens == {"cls": "[CLS]", "sep": "[SEP]"}


def test_examples_are_the_same_by_index_by_shard_and_by_iteration(folder):
    store = Store(folder)
    by_index = [store[index] for index in range(len(store))]
    by_shard = [*store.shard(0), *store.shard(1), *store.shard(2)]
    assert [example.index for example in by_shard] == list(range(10))
    assert_same(by_index, by_shard)
    assert_same(by_index, store)


def test_open_store_takes_the_name_of_a_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert_same(helpers.open_store(folder.name), Store(folder))


def test_records_are_those_of_the_examples(folder):
    store = Store(folder)
    records = list(store.records())
    assert records == [example.record for example in store]
    assert store.record(9) == records[9] == store[-1].record
    assert list(store.records(range(3, 6))) == records[3:6]


def test_store_has_no_example_beyond_its_last(folder):
    store = Store(folder)
    with pytest.raises(IndexError):
        store[10]
    with pytest.raises(IndexError):
        store.record(-11)


def test_repr_of_a_store_and_of_an_example_names_them_and_shows_no_array(folder):
    store = Store(folder)
    assert str(folder) in repr(store)
    assert "10 examples" in repr(store)
    shown = repr(store[2])
    assert "Example 2" in shown
    assert "array" not in shown
    assert " ".join(store[2].tokens[:3]) in shown


SHARD = "shard-00001.safetensors"
LIST = "examples.jsonl"
MANIFEST = "manifest.json"


def rewrite(path, change):
    path.write_bytes(change(path.read_bytes()))


def cut_manifest(folder):
    rewrite(folder / MANIFEST, lambda text: text[:-200])


def change_format(folder):
    edit_manifest(folder, lambda manifest: manifest.update(format=4))


def change_manifest(folder):
    rewrite(folder / MANIFEST, lambda text: text.replace(b": 60", b": 61"))


def cut_list(folder):
    rewrite(folder / LIST, lambda text: text[: text[:-1].rindex(b"\n") + 1])


def change_list(folder):
    rewrite(folder / LIST, lambda text: text.replace(b"art", b"trt", 1))


@pytest.mark.parametrize(
    ("damage", "file", "problem"),
    [
        (cut_manifest, MANIFEST, "remove its folder"),
        (change_format, MANIFEST, "format is not 6"),
        (change_manifest, MANIFEST, "remove its folder"),
    ],
)
def test_open_names_the_damage_and_a_remedy_in_one_line(damage, file, problem, folder):
    assert verify(folder) == {}
    damage(folder)
    with pytest.raises(StoreError) as caught:
        Store(folder)
    message = str(caught.value)
    assert message.startswith(str(folder / file))
    assert problem in message
    assert "\n" not in message
    assert "verify --repair" in message or "remove its folder" in message
    assert list(verify(folder).values()) == [message]


def test_open_refuses_an_unfinished_store(folder):
    edit_manifest(folder, lambda manifest: manifest.update(shards=[]))
    with pytest.raises(StoreError, match="run extraction again"):
        open_store(folder)


@pytest.mark.parametrize("damage", [cut_list, change_list])
def test_a_changed_list_is_seen_when_a_record_is_read(damage, folder):
    damage(folder)
    store = Store(folder)
    with pytest.raises(StoreError, match=r"examples.jsonl: .*SHA-256.*verify --repair") as caught:
        store.record(0)
    assert verify(folder) == {folder / LIST: str(caught.value)}


def test_no_name_in_a_manifest_is_a_path(folder):
    edit_manifest(folder, lambda manifest: manifest["shards"][0].update(file="../x"))
    assert len(Store(folder).shard(0)) == 4


def cut_shard(folder):
    rewrite(folder / SHARD, lambda text: text[:-1])


def remove_shard(folder):
    (folder / SHARD).unlink()


READERS = {
    "shard": lambda store: store.shard(1),
    "example": lambda store: store[5],
    "iteration": list,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_changed_byte_is_seen_when_its_shard_is_read(reader, folder):
    flip(folder / SHARD)
    store = Store(folder)
    assert len(store.shard(0)) == 4
    with pytest.raises(StoreError, match=r"shard-00001.*SHA-256.*; repair it"):
        READERS[reader](store)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(cut_shard, "shard-00001.*SHA-256"), (remove_shard, "shard-00001.*missing")],
)
def test_a_damaged_shard_is_named_when_it_is_read(damage, problem, folder):
    damage(folder)
    store = Store(folder)
    with pytest.raises(StoreError, match=problem) as caught:
        store.shard(1)
    assert list(verify(folder).values()) == [str(caught.value)]


def test_verify_finds_a_changed_byte(folder):
    flip(folder / SHARD)
    assert list(verify(folder)) == [folder / SHARD]


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


def test_a_finished_store_is_found_without_hashing_a_file(folder, tiny_encoder, hashed):
    assert extract_small(tiny_encoder("bert"), folder.parent, COUNT).folder == folder
    assert hashed == []


def test_a_shard_is_hashed_once(folder, hashed):
    store = Store(folder)
    assert len(list(store)) == len(list(store)) == 10
    assert store[0].index == 0
    assert sorted(hashed) == [LIST, *SHARD_FILES]


def test_folder_of_a_hostile_name_is_in_the_cache(folder, tmp_path):
    key = {"name": "../../x", "random_init": None}
    inputs = store_inputs(key, dataclasses.replace(many_segments(2), name="../../x"))
    with cache_at(tmp_path):
        assert store_folder(inputs).parent == tmp_path


class Planted:
    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_open_ignores_and_refuses_planted_pickles(folder, tiny_encoder, tmp_path):
    bomb = Planted()
    bomb.target = tmp_path / "exploded"
    for name in ("examples.pkl", "shard-00003.safetensors", "manifest.json.tmp", "data.npy"):
        (folder / name).write_bytes(pickle.dumps(bomb))
    assert len(list(extract_small(tiny_encoder("bert"), tmp_path, COUNT))) == COUNT
    assert verify(folder) == {}
    for name in (SHARD, MANIFEST):
        (folder / name).write_bytes(pickle.dumps(bomb))
        assert len(verify(folder)) == 1
    with pytest.raises(StoreError):
        Store(folder)
    assert not bomb.target.exists()


def test_write_shard_names_a_full_disk_that_safetensors_reports(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(extraction, "save_file", full)
    with pytest.raises(StoreError, match=r"No space left on device .*; [\d,]+ bytes are free"):
        extraction.write_shard(folder, 0, {"a": np.zeros(5)})


@pytest.mark.parametrize("mode", [0o750, 0o775])
def test_write_shard_gives_a_shard_the_permissions_of_its_folder(mode, folder):
    folder.chmod(mode)
    extraction.write_shard(folder, 0, {"a": np.zeros(5)})
    assert (folder / "shard-00000.safetensors").stat().st_mode & 0o777 == mode & 0o666
