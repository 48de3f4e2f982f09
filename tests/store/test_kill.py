"""Processes that are killed, interrupted or run twice, and the store that they leave."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest
from store_tools import content, extract_in_child, extract_small

from helpers.store.shards import stop_signals

KILLS = 30
COUNT = 96  # 24 shards


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["store_tools", "transformers.models.bert.modeling_bert"])
    return context


@pytest.fixture
def quick_disk(tmp_path):
    """Yield a folder in memory where there is one: every shard is synced to its disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def start(processes, tiny_folder, small_shards):
    def start(root, count=COUNT):
        process = processes.Process(
            target=extract_in_child, args=(str(tiny_folder("bert")), root, count)
        )
        process.start()
        return process

    return start


def shards(root):
    return {path.name: path.stat() for path in root.glob("*/shard-*.safetensors")}


def wait_for(condition, process):
    deadline = time.monotonic() + 60
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_for_shards(root, process, count):
    wait_for(lambda: len(shards(root)) >= count, process)


def test_a_rerun_after_any_kill_gives_the_same_bytes(start, tiny_encoder, quick_disk, capsys):
    encoder = tiny_encoder("bert")
    whole = extract_small(encoder, quick_disk / "undisturbed", COUNT).folder
    expected = content(whole)
    start(quick_disk / "warm-up").join()
    process, started = start(quick_disk / "timed"), time.monotonic()
    wait_for(lambda: list(quick_disk.glob("timed/*/unfinished.json")), process)
    begun = time.monotonic() - started
    process.join()
    longest = time.monotonic() - started
    assert process.exitcode == 0
    assert content(quick_disk / "timed" / whole.name) == expected

    rng, killed = random.Random(0), []
    for attempt in range(3 * KILLS):
        root = quick_disk / f"kill-{attempt}"
        process = start(root)
        time.sleep(rng.uniform(begun if attempt % 3 else 0, longest))
        process.kill()
        process.join()
        if process.exitcode == 0:  # done before: quicker than when it was timed
            begun, longest = 0.9 * begun, 0.9 * longest
            continue
        assert process.exitcode == -signal.SIGKILL
        finished = shards(root)
        killed.append(len(finished))
        store = extract_small(encoder, root, COUNT)
        assert store.folder.name == whole.name
        assert content(store.folder) == expected
        for name, before in finished.items():
            after = (store.folder / name).stat()
            assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        if len(killed) == KILLS:
            break
    with capsys.disabled():
        print(f"\n{len(killed)} kills survived, with {sorted(killed)} of 24 shards finished")
    assert len(killed) == KILLS
    assert sum(0 < count < 24 for count in killed) > KILLS / 10, "too few hit the extraction"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_at_a_shard_boundary_and_say_how_to_go_on(number, start, tmp_path):
    process = start(tmp_path, 4000)
    wait_for_shards(tmp_path, process, 2)
    asked = time.monotonic()
    os.kill(process.pid, number)
    process.join(timeout=30)
    assert process.exitcode == 2
    assert time.monotonic() - asked < 5
    message = (tmp_path / "messages").read_text()
    done = len(shards(tmp_path))
    assert f"stopped after {done} of 1000 shards" in message
    assert "run the same command again" in message
    assert 2 <= done < 1000
    assert not list(tmp_path.glob("*/*.tmp"))
    assert not list(tmp_path.glob("*/manifest.json"))


def test_two_processes_at_once_end_with_one_good_store(start, tiny_encoder, tmp_path):
    both = [start(tmp_path / "both") for _ in range(2)]
    for process in both:
        process.join(timeout=120)
        assert process.exitcode == 0
    expected = extract_small(tiny_encoder("bert"), tmp_path / "alone", COUNT).folder
    assert content(tmp_path / "both" / expected.name) == content(expected)


def test_the_lock_of_a_dead_process_is_free(start, tmp_path):
    process = start(tmp_path, 4000)
    wait_for_shards(tmp_path, process, 1)
    waiting = start(tmp_path, 4000)
    log = tmp_path / "messages"
    wait_for(lambda: "another process is filling it; waiting" in log.read_text(), waiting)
    before = len(shards(tmp_path))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    wait_for_shards(tmp_path, waiting, before + 5)
    os.kill(waiting.pid, signal.SIGTERM)
    waiting.join(timeout=30)
    assert waiting.exitcode == 2


@pytest.fixture
def interruptible():
    """Take SIGINT as a terminal's process does: a shell lets those in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_signal_does_what_it_did_before(interruptible):
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
