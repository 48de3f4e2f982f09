"""Stores: what is in one, and that damage is seen before a number is computed."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from store_tools import MAX_TOKENS, content, extract_small, many_segments

from helpers.errors import StoreError
from helpers.store import extract as extraction
from helpers.store import format, shards
from helpers.store.format import StoreKey, read_manifest
from helpers.store.shards import finished_shard
from helpers.store.store import Records, Store
from helpers.store.verify import verify

COUNT = 10  # shards of 4, 4 and 2


pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture(scope="module")
def pristine(tiny_encoder, tmp_path_factory):
    sizes = dict(extraction.EXAMPLES_PER_SHARD)
    store = extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("pristine"), COUNT)
    extraction.EXAMPLES_PER_SHARD.update(sizes)
    return store.folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / pristine.name)


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def reopened(encoder, folder):
    return extraction.extract(
        encoder, many_segments(COUNT), max_tokens=MAX_TOKENS, root=folder.parent
    )


def test_a_store_has_the_files_and_facts_of_its_format(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(content(folder)) == [
        "examples.jsonl",
        "key.json",
        "manifest.json",
        "report.json",
        "shard-00000.safetensors",
        "shard-00001.safetensors",
        "shard-00002.safetensors",
    ]
    wanted = "format model corpus level dtype max_tokens n_examples examples_per_shard shards"
    assert set(wanted.split()) <= set(manifest)
    assert (manifest["n_examples"], manifest["examples_per_shard"]) == (10, 4)
    assert (manifest["level"], manifest["dtype"]) == ("token", "float16")
    hashes = content(folder)
    for number, shard in enumerate(manifest["shards"]):
        assert shard["file"] == f"shard-{number:05d}.safetensors"
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
    assert store.record(9) == shards[9].record
    assert len(list(store.records(range(3, 6)))) == 3
    for bad in (-1, 10):
        with pytest.raises(IndexError):
            store[bad]
        with pytest.raises(IndexError):
            store.record(bad)
    with pytest.raises(IndexError):
        list(store.shard(3))


def truncated(folder):
    path = folder / "shard-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    return "shard-00001.safetensors", "bytes, expected"


def missing(folder):
    (folder / "shard-00002.safetensors").unlink()
    return "shard-00002.safetensors", "missing"


def renamed(folder):
    (folder / "shard-00000.safetensors").rename(folder / "shard-00007.safetensors")
    return "shard-00000.safetensors", "missing"


def swapped(folder):
    one, other = (folder / f"shard-0000{i}.safetensors" for i in (0, 1))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    # Where the shards have one size, their headers give them away.
    edit(folder / "manifest.json", lambda m: m["shards"][0].update(bytes=len(second)))
    return "shard-00000.safetensors", "holds examples from 4, expected 0"


def foreign(folder):
    path = folder / "shard-00000.safetensors"
    data = path.read_bytes()
    key = json.loads((folder / "manifest.json").read_text())["key"].encode()
    assert data.count(key) == 1
    path.write_bytes(data.replace(key, b"0" * 64))
    return "shard-00000.safetensors", "belongs to another store"


def plain_safetensors(folder):
    path = folder / "shard-00000.safetensors"
    save_file(load_file(path), path)
    edit(folder / "manifest.json", lambda m: m["shards"][0].update(bytes=path.stat().st_size))
    return "shard-00000.safetensors", "not a shard of a store"


def broken_header(folder):
    path = folder / "shard-00001.safetensors"
    data = bytearray(path.read_bytes())
    data[:8] = (1 << 60).to_bytes(8, "little")
    path.write_bytes(bytes(data))
    return "shard-00001.safetensors", "eader"


def manifest_cut_short(folder):
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-200])
    return "manifest.json", "not a whole manifest"


def manifest_nested(folder):
    (folder / "manifest.json").write_text("[" * 100_000)
    return "manifest.json", "not a whole manifest"


def manifest_of_a_newer_format(folder):
    edit(folder / "manifest.json", lambda m: m.update(format=2, shards="all of them"))
    return "manifest.json", "store format 2, this version reads format 1"


def manifest_without_a_shard(folder):
    edit(folder / "manifest.json", lambda m: m["shards"].pop())
    return "manifest.json", "its shards hold 8 of 10 examples"


def manifest_with_another_fact(folder):
    edit(folder / "manifest.json", lambda m: m.update(max_tokens=61))
    return "manifest.json", "its facts do not fit its key"


def manifest_with_a_negative_count(folder):
    edit(folder / "manifest.json", lambda m: m["shards"][0].update(count=-4))
    return "manifest.json", "-4 where a count belongs"


def examples_shorter(folder):
    path = folder / "examples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    return "examples.jsonl", "bytes, expected"


def examples_longer(folder):
    with (folder / "examples.jsonl").open("a") as file:
        file.write('{"tokens": ["[CLS]"]}\n')
    return "examples.jsonl", "bytes, expected"


def examples_with_lines_joined(folder):
    path = folder / "examples.jsonl"
    path.write_bytes(path.read_bytes().replace(b"}\n{", b"} {", 1))
    return "examples.jsonl", "9 records, expected 10"


CHEAPLY_SEEN = [
    truncated,
    missing,
    renamed,
    swapped,
    foreign,
    plain_safetensors,
    broken_header,
    manifest_cut_short,
    manifest_nested,
    manifest_of_a_newer_format,
    manifest_without_a_shard,
    manifest_with_another_fact,
    manifest_with_a_negative_count,
    examples_shorter,
    examples_longer,
    examples_with_lines_joined,
]


@pytest.mark.parametrize("damage", CHEAPLY_SEEN)
def test_opening_names_the_damage_in_one_line(damage, folder, tiny_encoder):
    file, problem = damage(folder)
    with pytest.raises(StoreError) as caught:
        reopened(tiny_encoder("bert"), folder)
    message = str(caught.value)
    assert str(folder / file) in message
    assert problem in message
    assert "\n" not in message
    assert any(way in message for way in ("verify --repair", "extract again", "extraction again"))
    assert any(file in line for line in verify(folder))


@pytest.mark.parametrize("position", [8, 60, -1, -1000])
@pytest.mark.parametrize("file", ["shard-00001.safetensors", "examples.jsonl"])
def test_verification_sees_a_flipped_bit(file, position, folder):
    path = folder / file
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))
    problems = verify(folder)
    assert len(problems) == 1
    assert str(path) in problems[0]
    assert "SHA-256" in problems[0]


def test_an_undamaged_store_has_no_problems(folder):
    assert verify(folder) == []


def test_an_unfinished_store_says_so(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(StoreError, match="unfinished, run extraction again"):
        Store.open(folder)
    assert "unfinished" in verify(folder)[0]


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("model.name", "other"),
        ("model.weights_sha256", "0" * 64),
        ("model.revision", "abc"),
        ("model.random_init", 1),
        ("model.compute_dtype", "bfloat16"),
        ("corpus.name", "other"),
        ("corpus.fingerprint", "0" * 64),
        ("level", "word"),
        ("max_tokens", 61),
        ("tokenizer_sha256", "0" * 64),
        ("special_tokens.sep", None),
        ("hidden", True),
    ],
)
def test_a_store_of_something_else_is_refused_by_name(fact, value, folder):
    facts = json.loads((folder / "key.json").read_text())
    del facts["examples"]
    name, _, inner = fact.partition(".")
    facts[name] = facts[name] | {inner: value} if inner else value
    wanted = StoreKey(**facts)
    assert wanted.hash != read_manifest(folder)["key"]
    with pytest.raises(StoreError, match=f"made for {fact} = .*, wanted {value!r}"):
        Store.open(folder, wanted)
    with pytest.raises(StoreError, match=f"made for {fact} = "):
        Records.read(folder, wanted)


@pytest.mark.parametrize(
    "name", ["../shard-00000.safetensors", "/etc/passwd", "a/../shard-00000.safetensors", ""]
)
@pytest.mark.parametrize("entry", ["shard", "examples"])
def test_names_in_a_manifest_cannot_leave_the_folder(entry, name, folder):
    def rename(manifest):
        (manifest["shards"][0] if entry == "shard" else manifest["examples"])["file"] = name

    edit(folder / "manifest.json", rename)
    with pytest.raises(StoreError, match="called"):
        Store.open(folder)


def test_corpus_and_model_names_cannot_leave_the_cache(folder, tmp_path):
    facts = json.loads((folder / "key.json").read_text())
    del facts["examples"]
    facts["corpus"]["name"] = facts["model"]["name"] = "../../x"
    assert StoreKey(**facts).folder(tmp_path).parent == tmp_path


class Planted:
    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_planted_pickle_is_not_opened(folder, tiny_encoder, tmp_path):
    bomb = Planted()
    bomb.target = tmp_path / "exploded"
    for name in ("examples.pkl", "shard-00003.safetensors", "manifest.json.tmp", "data.npy"):
        (folder / name).write_bytes(pickle.dumps(bomb))
    assert len(list(reopened(tiny_encoder("bert"), folder))) == COUNT
    assert verify(folder) == []
    (folder / "shard-00000.safetensors").write_bytes(pickle.dumps(bomb))
    with pytest.raises(StoreError):
        Store.open(folder)
    (folder / "manifest.json").write_bytes(pickle.dumps(bomb))
    with pytest.raises(StoreError):
        Store.open(folder)
    assert not bomb.target.exists()


def test_a_shard_that_does_not_hold_its_examples_is_not_finished(folder):
    key = read_manifest(folder)["key"]
    indices = range(4, 8)
    assert finished_shard(folder, 1, indices, key).first == 4
    assert finished_shard(folder, 1, range(4, 7), key) is None
    assert finished_shard(folder, 1, indices, "0" * 64) is None
    assert finished_shard(folder, 3, range(12, 16), key) is None
    path = folder / "shard-00001.safetensors"
    data = path.read_bytes()
    for position in (3, 40, len(data) // 2, len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 4
        path.write_bytes(bytes(flipped))
        assert finished_shard(folder, 1, indices, key) is None


def test_a_full_disk_is_named_with_its_bytes(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(format.os, "fsync", full)
    monkeypatch.setattr(format.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1234))
    with pytest.raises(StoreError, match=r"it needs 5,000 bytes and 1,234 are free; make room"):
        format.write_whole(tmp_path / "file", b"x" * 5000)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_known_by_the_message_of_safetensors_too(folder, monkeypatch):
    def full(*_args, **_kwargs):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(shards, "save_file", full)
    with pytest.raises(StoreError, match=r"No space left on device\); it needs 5 bytes"):
        shards.write_shard(folder, 0, {"a": np.zeros(5, np.int8)}, range(4), "key")


def test_a_shard_is_as_open_as_its_folder(folder):
    for mode in (0o750, 0o775):
        folder.chmod(mode)
        shards.write_shard(folder, 0, {"a": np.zeros(5, np.int8)}, range(4), "key")
        assert (folder / "shard-00000.safetensors").stat().st_mode & 0o777 == mode & 0o666


def test_other_errors_of_the_system_are_not_taken_for_a_full_disk(tmp_path):
    with pytest.raises(FileNotFoundError):
        format.write_whole(tmp_path / "nowhere" / "file", b"x")
