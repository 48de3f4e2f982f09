"""Processes that are killed, interrupted or run twice, and the store that they leave."""

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
from store_tools import extract_in_child, extract_small, keep_tables, repair_in_child

from helpers.paths import sha256
from helpers.store.extract import repair

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

    def start(root, count=COUNT, work=extract_in_child):
        process = context.Process(target=work, args=(str(tiny_folder("bert")), root, count))
        process.start()
        return process

    return start


def wait_for(condition, process):
    deadline = time.monotonic() + 60
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Extraction:
    """Work that is killed: what it starts from, what runs, the rerun, and what has to come out."""

    work = staticmethod(extract_in_child)

    def __init__(self, encoder, start, whole):
        self.encoder, self.start, self.whole = encoder, start, whole

    def begin(self, root):
        root.mkdir()

    def again(self, root):
        extract_small(self.encoder, root, COUNT)


class Repair(Extraction):
    work = staticmethod(repair_in_child)

    def begin(self, root):
        shutil.copytree(self.whole, root)
        for shard in sorted(root.glob("*/shard-*"))[::2]:
            shard.write_bytes(shard.read_bytes()[:-1])

    def again(self, root):
        (folder,) = (path for path in root.iterdir() if path.is_dir())
        assert len(repair(self.encoder, folder)) <= 12


class OneOfTwo(Extraction):
    """The other one goes on; nobody starts anything again."""

    def begin(self, root):
        self.other = self.start(root)

    def again(self, root):
        self.other.join(timeout=120)
        assert self.other.exitcode == 0


class KeptTables(Extraction):
    work = staticmethod(keep_tables)

    def again(self, root):
        process = self.start(root, work=self.work)
        process.join()
        assert process.exitcode == 0


KINDS = {
    "extraction": Extraction,
    "repair": Repair,
    "one of two at once": OneOfTwo,
    "kept tables": KeptTables,
}


def written(root):
    """The shards and kept tables there are, and what tells one from another of the same name."""
    found = [*root.glob("*/shard-?????.safetensors"), *root.glob("derived/t*[0-9a-f]/*.csv")]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def digests(root):
    found = [*root.glob("*/examples.jsonl"), *root.glob("*/manifest.json"), *written(root)]
    return {str(path.relative_to(root)): sha256(path) for path in found}


@pytest.mark.parametrize("kind", KINDS)
def test_after_any_kill_the_rerun_gives_the_same_bytes(
    kind, start, tiny_encoder, quick_disk, record_property
):
    extract_small(tiny_encoder("bert"), quick_disk / "whole", COUNT)
    job = KINDS[kind](tiny_encoder("bert"), start, quick_disk / "whole")
    job.begin(quick_disk / "undisturbed")
    old = written(quick_disk / "undisturbed").items()
    start(quick_disk / "undisturbed", work=job.work).join()
    job.again(quick_disk / "undisturbed")
    steps = len(written(quick_disk / "undisturbed").items() - old)
    expected = digests(quick_disk / "undisturbed")
    assert steps >= 12

    rng, killed = random.Random(0), []
    for attempt in range(3 * KILLS):
        root = quick_disk / f"kill-{attempt}"
        job.begin(root)
        old = written(root).items()
        process, step = start(root, work=job.work), rng.randrange(steps)
        while process.is_alive() and len(written(root).items() - old) < step:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05 if step else 0.5))
        process.kill()
        process.join()
        before = {path: state for path, state in written(root).items() if (path, state) not in old}
        job.again(root)
        assert digests(root) == expected
        assert before.items() <= written(root).items(), "written again"
        shutil.rmtree(root)
        if process.exitcode == -signal.SIGKILL:
            killed.append(len(before))
        if len(killed) == KILLS:
            break
    done = f"{min(killed)} to {max(killed)} of {steps} files done"
    record_property("found", f"{kind}: {len(killed)} kills, {done}")
    assert len(killed) == KILLS
    assert len(set(killed)) > KILLS / 6, "most hit the same moment"


def test_the_lock_of_a_dead_process_is_free(start, tmp_path):
    process = start(tmp_path, 4000)
    wait_for(lambda: written(tmp_path), process)
    waiting = start(tmp_path, 4000)
    log = tmp_path / "messages"
    wait_for(lambda: "another process is filling it; waiting" in log.read_text(), waiting)
    process.kill()
    process.join()
    before = len(written(tmp_path))
    wait_for(lambda: len(written(tmp_path)) >= before + 5, waiting)
    waiting.kill()
