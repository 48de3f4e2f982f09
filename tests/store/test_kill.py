"""A process that is killed, or runs twice, leaves a store that a rerun completes."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from faults import KILLS
from store_tools import (
    extract_in_child,
    extract_small,
    only_folder,
)

from helpers.files import sha256
from helpers.store.store import repair

COUNT = 96  # 24 shards


@pytest.fixture
def quick_disk(tmp_path):
    """Yield a folder in memory where there is one: every shard is synced to its disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def start(tiny_folder):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["store_tools", "transformers.models.bert.modeling_bert"])

    def start(root):
        arguments = (str(tiny_folder("bert")), root, COUNT)
        process = context.Process(target=extract_in_child, args=arguments)
        process.start()
        return process

    return start


class Extraction:
    """Work that is killed: its start, the process, the rerun.

    Subclasses do other work.  `begin` makes the folder as it is before the work, and `again` is the
    rerun after the kill.
    """

    def __init__(self, encoder, start, finished):
        self.encoder = encoder
        self.start = start
        self.finished = finished  # a cache with the finished store

    def begin(self, root):
        root.mkdir()

    def again(self, root):
        extract_small(self.encoder, root, COUNT)


class Repair(Extraction):
    """The extraction of a store of which every second shard was cut short and is removed."""

    def begin(self, root):
        shutil.copytree(self.finished, root)
        for shard in sorted(root.glob("*/shard-*.safetensors"))[::2]:
            shard.write_bytes(shard.read_bytes()[:-1])
        repair(only_folder(root))
        assert len(list(root.glob("*/shard-*.safetensors"))) == 12


class OneOfTwo(Extraction):
    """Two extractions at once: the second goes on without a rerun."""

    def begin(self, root):
        self.second = self.start(root)

    def again(self, root):
        self.second.join(timeout=120)
        assert self.second.exitcode == 0


JOBS = {
    "extraction": Extraction,
    "repair": Repair,
    "one of two at once": OneOfTwo,
}


def written(root):
    """Return the shards there are, each with its inode and time of change."""
    stats = {path: path.stat() for path in root.glob("*/shard-?????.safetensors")}
    return {path: (stat.st_ino, stat.st_mtime_ns) for path, stat in stats.items()}


def digests(root):
    """Return the SHA-256 of each file that a finished store has."""
    paths = [*root.glob("*/examples.jsonl"), *root.glob("*/manifest.json"), *written(root)]
    return {str(path.relative_to(root)): sha256(path) for path in paths}


def kill_after(process, root, before, n_files, delay):
    """Kill a process after it has written so many files, and a delay in seconds.

    ``before`` are the files that were there when it began.  Returns the files that it wrote.
    """
    while process.is_alive() and len(written(root).items() - before) < n_files:
        time.sleep(0.001)
    time.sleep(delay)
    process.kill()
    process.join()
    return dict(written(root).items() - before)


@pytest.mark.parametrize("name", JOBS)
def test_a_rerun_after_a_kill_gives_the_same_bytes(
    name, start, tiny_encoder, quick_disk, record_property
):
    encoder = tiny_encoder("bert")
    extract_small(encoder, quick_disk / "finished", COUNT)
    job = JOBS[name](encoder, start, quick_disk / "finished")
    job.begin(quick_disk / "undisturbed")
    before = written(quick_disk / "undisturbed").items()
    start(quick_disk / "undisturbed").join()
    job.again(quick_disk / "undisturbed")
    n_steps = len(written(quick_disk / "undisturbed").items() - before)
    expected = digests(quick_disk / "undisturbed")
    assert n_steps >= 12

    rng = random.Random(0)
    n_written = []  # files that were written before each kill
    for attempt in range(3 * KILLS):
        root = quick_disk / f"kill-{attempt}"
        job.begin(root)
        before = written(root).items()
        process = start(root)
        step = rng.randrange(n_steps)
        delay = rng.uniform(0, 0.05 if step else 0.5)
        finished = kill_after(process, root, before, step, delay)
        job.again(root)
        assert digests(root) == expected
        assert finished.items() <= written(root).items(), "written again"
        shutil.rmtree(root)
        if process.exitcode == -signal.SIGKILL:
            n_written.append(len(finished))
        if len(n_written) == KILLS:
            break
    steps = f"{min(n_written)} to {max(n_written)} of {n_steps} files done"
    record_property("found", f"{name}: {len(n_written)} kills, {steps}")
    assert len(n_written) == KILLS
    assert len(set(n_written)) > KILLS / 6, "most kills were at the same moment"
