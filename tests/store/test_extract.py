"""Extraction: the same bits whatever computes them, resumption, full disks, odd maps."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess

import pytest
import torch
from store_tools import MAX_TOKENS, content, extract_small, flip, many_segments

from helpers import paths
from helpers.errors import ModelError, StoreError
from helpers.model import forward
from helpers.store import examples as work
from helpers.store import extract as extraction
from helpers.store.examples import examples, shards_tensors
from helpers.store.format import StoreKey, last_run, note_use

COUNT = 22  # shards of 4, the last of 2


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(threads, encoder, tmp_path):
    before = torch.get_num_threads()
    alone = extract_small(encoder, tmp_path / "alone", COUNT)
    try:
        torch.set_num_threads(threads)
        together = extract_small(encoder, tmp_path / "together", COUNT)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert content(alone.folder) == content(together.folder)


def test_work_is_taken_up_as_it_is_needed(encoder):
    records = list(examples(encoder, many_segments(40), MAX_TOKENS, {}))
    taken = []

    def four_by_four():
        for first in range(0, 40, 4):
            taken.append(first)
            yield range(first, first + 4), records[first : first + 4]

    shards = shards_tensors(encoder, four_by_four(), level="token")
    for done in range(3):
        indices, _ = next(shards)
        assert indices == range(4 * done, 4 * done + 4)
        assert len(taken) <= done + 4, "memory must not grow with the corpus"
    shards.close()


def test_an_interrupted_extraction_goes_on(encoder, written, monkeypatch, tmp_path):
    expected = content(extract_small(encoder, tmp_path / "whole", COUNT).folder)
    folder = extract_small(encoder, tmp_path / "parts", COUNT).folder
    (folder / "manifest.json").rename(folder / "unfinished.json")
    (folder / "shard-00001.safetensors").unlink()
    flip(folder / "shard-00003.safetensors")
    (folder / "shard-00002.safetensors.abc.tmp").write_bytes(b"half")
    written.clear()
    monkeypatch.setattr(work, "examples", lambda *_: pytest.fail("the list is there"))
    extract_small(encoder, tmp_path / "parts", COUNT)
    assert written == [1, 3]
    assert content(folder) == expected
    extract_small(encoder, tmp_path / "parts", COUNT)
    assert written == [1, 3]


def test_ctrl_c_keeps_the_shards_that_are_finished(encoder, monkeypatch, tmp_path):
    original = extraction.write_shard

    def interrupted(folder, number, *rest):
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return original(folder, number, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction, "write_shard", interrupted)
        extract_small(encoder, tmp_path, COUNT)
    assert len(list(tmp_path.glob("*/shard-*"))) == 2
    assert len(extract_small(encoder, tmp_path, COUNT)) == COUNT


@pytest.mark.parametrize(
    ("part", "spoil", "message"),
    [
        (0, float("nan"), r"example \d+ is off from summing to 1 by nan"),
        (0, float("inf"), r"example \d+ is off from summing to 1 by inf"),
        (0, 0.5, r"example \d+ is off from summing to 1 by 0.5; .* copy of the model$"),
        (1, float("nan"), r"example \d+, layer 2 .* reaches nan, and .* copy of the model$"),
        (1, -90_000.0, r"example \d+, layer 2 .* reaches 90,\d+, and .*; it cannot be stored"),
    ],
)
def test_maps_and_vectors_that_cannot_be_stored_are_refused_by_example(
    part, spoil, message, encoder, sentences, monkeypatch, own_cache
):
    original = forward.forward

    def spoiled(*args, **kwargs):
        found = original(*args, **kwargs)  # maps, vectors
        for layer in found[part][2:3]:
            layer[(0, 0, 0, 0)[: layer.ndim]] += spoil
        return found

    monkeypatch.setattr(forward, "forward", spoiled)
    with pytest.raises(ModelError, match=message):
        extraction.extract(encoder, sentences, hidden=True, level="word", max_tokens=60)


def test_the_bytes_needed_are_known_before_starting(encoder, sentences, own_cache):
    for options in ({}, {"level": "word"}, {"level": "word", "hidden": True}):
        corpus = sentences if options else many_segments(COUNT)
        stream = extraction.stream(encoder, corpus, **options, max_tokens=MAX_TOKENS)
        expected = extraction.needed_bytes(stream, range(stream.n_shards))
        assert extraction.needed_bytes(stream, []) == 0
        store = extraction.extract(encoder, corpus, **options, max_tokens=MAX_TOKENS)
        held = sum(
            example.attention.nbytes + (0 if example.hidden is None else example.hidden.nbytes)
            for example in store
        )
        assert expected == held


def test_a_disk_that_is_too_small_is_refused_before_starting(encoder, monkeypatch, tmp_path):
    usage = paths.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(paths.shutil, "disk_usage", lambda _: usage)
    wanted = r"the maps need [\d,]+ more bytes and 1,000 are free; make room"
    with pytest.raises(StoreError, match=wanted):
        extract_small(encoder, tmp_path, COUNT)
    assert not list(tmp_path.glob("*/shard-*"))


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


def test_a_disk_that_fills_up_keeps_what_is_finished(encoder, monkeypatch, small_disk, tmp_path):
    expected = content(extract_small(encoder, tmp_path, COUNT).folder)
    monkeypatch.setattr(extraction, "check_free", lambda *_: None)
    with pytest.raises(StoreError, match=r"No space left .*; [\d,]+ bytes are free\); make room"):
        extract_small(encoder, small_disk, COUNT)
    (folder,) = small_disk.glob("*--token-*[!k]")
    finished = {name: sum_ for name, sum_ in content(folder).items() if name.startswith("shard")}
    assert 0 < len(finished) < 6
    assert finished.items() <= expected.items()
    assert not list(folder.glob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    assert content(extract_small(encoder, small_disk, COUNT).folder) == expected


def test_a_read_only_cache_opens_what_is_finished_and_names_what_it_cannot_write(
    encoder, small_disk
):
    folder = extract_small(encoder, small_disk, 4).folder
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert len(list(extract_small(encoder, small_disk, 4))) == 4
    with pytest.raises(StoreError, match=r"cannot be written \(Read-only .* set ATTENTION_CA"):
        extract_small(encoder, small_disk, 5)
    note_use(folder, "mine")
    assert last_run(folder) == ""


def test_a_key_changes_with_everything_that_determines_the_maps(encoder):
    def key(encoder=encoder, count=4, **options):
        options = {"max_tokens": 60} | options
        return extraction.store_key(encoder, many_segments(count), **options)

    norm = key(lens="norm")
    half = key(dataclasses.replace(encoder, dtype="bfloat16"))
    others = [key(count=5), key(level="word"), key(max_tokens=59), key(hidden=True), half, norm]
    assert len({key().hash, *(other.hash for other in others)}) == 7
    assert norm.folder().name == f"bert--toy-many--token-norm-{norm.hash[:10]}"
    assert StoreKey(**dataclasses.asdict(norm)).folder() == norm.folder()
