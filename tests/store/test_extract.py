"""Extraction: its bits depend on threads in no way; it resumes; disks fill up; maps are odd."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess

import pytest
import torch
from store_tools import MAX_TOKENS, content, extract_small, many_segments

from helpers import files as paths
from helpers.errors import ModelError, StoreError
from helpers.files import json_digest, sha256
from helpers.model import forward
from helpers.store import extract as extraction
from helpers.store import store as store_module
from helpers.store.extract import row_problem, write_shard
from helpers.store.store import store_folder, store_inputs

COUNT = 22  # shards of 4, the last of 2


@pytest.mark.parametrize("threads", [2, 3])
def test_extract_gives_the_same_bytes_on_several_threads(threads, encoder, tmp_path):
    threads_before = torch.get_num_threads()
    on_one = extract_small(encoder, tmp_path / "one", COUNT)
    try:
        torch.set_num_threads(threads)
        on_several = extract_small(encoder, tmp_path / "several", COUNT)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(threads_before)
    assert content(on_several.folder) == content(on_one.folder)


def interrupt(folder, number, *_):
    """Write two shards, and then be stopped by Ctrl-C."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return write_shard(folder, number, *_)


def test_extract_resumes_after_ctrl_c_without_reading_finished_shards(
    encoder, written, monkeypatch, tmp_path
):
    expected = content(extract_small(encoder, tmp_path / "whole", COUNT).folder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction, "write_shard", interrupt)
        extract_small(encoder, tmp_path / "parts", COUNT)
    (folder,) = (tmp_path / "parts").glob("*/")
    assert len(list(folder.glob("shard-*.safetensors"))) == 2
    (folder / "shard-00003.safetensors.abc.tmp").write_bytes(b"half")
    read_names = []

    def note_and_hash(path):
        read_names.append(path.name)
        return sha256(path)

    written.clear()
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "sha256", note_and_hash)
        patch.setattr(extraction, "examples", lambda *_: pytest.fail("listed again"))
        extract_small(encoder, tmp_path / "parts", COUNT)
        extract_small(encoder, tmp_path / "parts", COUNT)
    assert set(read_names) <= {"examples.jsonl"}
    assert written == [2, 3, 4, 5]
    assert content(folder) == expected


@pytest.mark.parametrize(
    ("part", "spoil", "message"),
    [
        (0, float("nan"), r"in example \d+ .* sum nan\)"),
        (0, 0.5, r"in example \d+ .* sum 1.5\); .* complete copy of the model"),
        (1, float("nan"), r"in example \d+ a hidden state reaches nan"),
        (1, -90_000.0, r"in example \d+ a hidden state reaches 90,\d+"),
    ],
)
def test_extract_names_the_example_that_cannot_be_stored(
    part, spoil, message, encoder, sentences, monkeypatch, own_cache
):
    original = forward.forward

    def spoiled(*args, **kwargs):
        maps_and_vectors = original(*args, **kwargs)
        layer = maps_and_vectors[part][2]
        first_value = (0,) * layer.ndim
        layer[first_value] += spoil
        return maps_and_vectors

    monkeypatch.setattr(forward, "forward", spoiled)
    options = {"hidden": True, "level": "word", "max_tokens": 60}
    with pytest.raises(ModelError, match=message):
        extraction.extract(encoder, sentences, **options)
    with pytest.raises(ModelError, match=message):
        list(extraction.extract(encoder, sentences, **options, stream=True))


@pytest.mark.parametrize(
    ("row", "has_sink"),
    [([-0.25, 0.75, 0.5], False), ([0.9, 0.5, 0.5], True), ([float("inf"), 0, 0], True)],
)
def test_row_problem_finds_a_row_that_is_no_distribution(row, has_sink):
    maps = torch.full((2, 3, 3, 3), 1 / 3)
    assert not row_problem(maps, has_sink=has_sink)
    maps[1, 2, 0] = torch.tensor(row)
    assert "a row of attention is no distribution" in row_problem(maps, has_sink=has_sink)


@pytest.mark.parametrize(
    "options",
    [{}, {"level": "word"}, {"level": "word", "hidden": True}],
    ids=["tokens", "words", "vectors"],
)
def test_needed_bytes_is_the_size_of_maps_and_vectors(options, encoder, sentences, own_cache):
    corpus = sentences if options else many_segments(COUNT)
    stream = extraction.extract(encoder, corpus, **options, max_tokens=MAX_TOKENS, stream=True)
    estimate = extraction.needed_bytes(stream)
    store = extraction.extract(encoder, corpus, **options, max_tokens=MAX_TOKENS)
    assert extraction.needed_bytes(stream) == 0
    n_bytes = 0
    for example in store:
        n_bytes += example.stored_attention.nbytes
        if example.hidden is not None:
            n_bytes += example.hidden.nbytes
    assert estimate == n_bytes


def test_extract_refuses_a_disk_that_is_too_small(encoder, monkeypatch, tmp_path):
    usage = paths.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(paths.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match=r"need [\d,]+ more bytes and 1,000 are free; make room"):
        extract_small(encoder, tmp_path, COUNT)
    assert not list(tmp_path.glob("*/shard-*"))


@pytest.mark.parametrize(
    "name", ["examples.jsonl", "shard-00003.safetensors.", "shard-00003.safetensors.sha256", "mani"]
)
def test_a_disk_that_refuses_any_file_is_named_and_a_rerun_gives_the_same_bytes(
    name, encoder, monkeypatch, tmp_path
):
    expected = content(extract_small(encoder, tmp_path / "whole", COUNT).folder)

    def refuse(path):
        if path.name.startswith(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(paths, "inherit_permissions", refuse)
        with pytest.raises(StoreError, match=rf"/{name[:-1]}.*No space left .*; make room"):
            extract_small(encoder, tmp_path / "parts", COUNT)
    assert content(extract_small(encoder, tmp_path / "parts", COUNT).folder) == expected


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]
    if os.name != "posix" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root")
    yield disk
    # A map of a shard may still be open until it is collected.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_extract_keeps_finished_shards_when_the_disk_fills_up(
    encoder, monkeypatch, small_disk, tmp_path
):
    expected = content(extract_small(encoder, tmp_path, COUNT).folder)
    monkeypatch.setattr(extraction, "check_free", lambda *_: None)
    with pytest.raises(StoreError, match=r"No space left .*; [\d,]+ bytes are free\); make room"):
        extract_small(encoder, small_disk, COUNT)
    (folder,) = small_disk.glob("*--token-*[!k]")
    finished = [path.name for path in folder.glob("shard-*.safetensors")]
    assert 0 < len(finished) < 6
    for name in finished:
        assert content(folder)[name] == expected[name]
    assert not list(folder.glob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    assert content(extract_small(encoder, small_disk, COUNT).folder) == expected


def test_extract_reads_a_read_only_cache_and_refuses_to_write_to_it(encoder, small_disk):
    extract_small(encoder, small_disk, 4)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert len(list(extract_small(encoder, small_disk, 4))) == 4
    with pytest.raises(StoreError, match=r"cannot be written \(Read-only .* set ATTENTION_CA"):
        extract_small(encoder, small_disk, 5)


def test_store_inputs_have_everything_that_decides_the_maps(encoder):
    def inputs(key=encoder.key, count=4, max_tokens=60, **options):
        return store_inputs(key, many_segments(count), max_tokens=max_tokens, **options)

    half_precision = {**encoder.key, "dtype": "bfloat16"}
    changes = [{}, {"count": 5}, {"level": "word"}, {"max_tokens": 59}, {"hidden": True},
               {"lens": "norm"}, {"key": half_precision}]  # fmt: skip
    assert len({json_digest(inputs(**change)) for change in changes}) == len(changes)
    norm = inputs(lens="norm")
    expected = f"bert--toy-many--token-norm-{json_digest(norm)[:10]}"
    assert store_folder(norm).name == expected


def test_texts_are_cut_at_what_the_model_takes(encoder, own_cache):
    encoder = dataclasses.replace(encoder, max_length=20)
    store = extraction.extract(encoder, many_segments(3), max_tokens=60)
    assert (store.cut_at, max(map(len, store))) == (20, 20)
    assert store.report == {"segments cut to the token limit": 3}
