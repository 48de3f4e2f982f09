"""Two worker processes give the bits of one, and one of them may die."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from types import FunctionType, ModuleType

import numpy as np
import pytest
from faults import SLOW_KILLS
from store_tools import MAX_TOKENS, cache_at, content, extract_small, many_segments

from helpers.errors import InputError
from helpers.store import cluster
from helpers.store import extract as extraction
from helpers.store.cluster import dask_client, fill_on, map_shards
from helpers.study import Study

# Workers that are forked from a process that has torch start in milliseconds, not in seconds.
dask = pytest.importorskip("dask")
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
distributed_utils = pytest.importorskip("distributed.utils")
PRELOADED = ["distributed", "store_tools", "transformers.models.bert.modeling_bert"]
distributed_utils.get_mp_context().set_forkserver_preload(PRELOADED)

COUNT = 400  # 100 shards


@pytest.fixture(scope="module")
def client():
    with dask_client(workers=2) as client:
        yield client


@pytest.fixture(scope="module")
def alone(tiny_encoder, tmp_path_factory):
    return extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("alone"), COUNT)


def shard_sum(source, number):
    maps = [example.attention.astype(np.float64) for example in source.shard(number)]
    return os.getpid(), len(maps), sum(one.sum(axis=(2, 3)) for one in maps)


def test_two_workers_one_of_them_killed_give_the_bits_of_one_process(
    tiny_encoder, alone, tmp_path, record_property
):
    rng, killed_at = random.Random(0), []

    def kill(root, victim, wanted):
        while len(finished := list(root.glob("*/shard-*"))) < wanted:
            time.sleep(0.005)
        os.kill(victim, signal.SIGKILL)
        killed_at.append(len(finished))

    for number in range(SLOW_KILLS):
        # Of its own: after some kills in a row Dask may leave a worker unreplaced.
        with dask_client(workers=2) as client:
            processes = client.run(os.getpid)
            assert len(set(processes.values())) == 2
            root, victim = tmp_path / str(number), next(iter(processes.values()))
            killer = threading.Thread(target=kill, args=(root, victim, rng.randrange(3, 60)))
            killer.start()
            fill = partial(fill_on, client)
            store = extract_small(tiny_encoder("bert"), root, COUNT, fill=fill)
            killer.join()
        assert killed_at[-1] < store.n_shards
        assert content(store.folder) == content(alone.folder)
        shutil.rmtree(root)
    few, many = min(killed_at), max(killed_at)
    found = f"Dask workers: {len(killed_at)} kills, with {few} to {many} of 100 shards written"
    record_property("found", found)


@pytest.mark.parametrize("kind", ["store", "stream"])
def test_sums_over_shards_come_in_order(kind, client, tiny_encoder, alone):
    client.wait_for_workers(2, timeout=60)
    source = alone
    if kind == "stream":
        with cache_at(alone.folder.parent):
            corpus = many_segments(COUNT)
            source = extraction.stream(tiny_encoder("bert"), corpus, max_tokens=MAX_TOKENS)
    processes, counts, totals = zip(*map_shards(shard_sum, source, client), strict=True)
    expected = [shard_sum(alone, number)[2] for number in range(alone.n_shards)]
    np.testing.assert_array_equal(totals, expected)
    assert set(counts) == {4} and os.getpid() not in processes


def test_a_shard_that_kills_its_workers_is_named(client, alone, monkeypatch):
    client.wait_for_workers(1, timeout=60)
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)

    def die(_source, number):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(InputError, match="shard 1: its workers died again and again"):
        list(map_shards(die, alone, client))


def test_a_cluster_that_has_lost_all_its_workers_is_one_line(alone, monkeypatch):
    elsewhere = ModuleType("not_on_a_worker")
    elsewhere.shard_sum = FunctionType(shard_sum.__code__, vars(elsewhere))
    monkeypatch.setitem(sys.modules, elsewhere.__name__, elsewhere)
    monkeypatch.setattr(cluster, "LOST", 1)
    with (
        dask_client(workers=1) as client,
        pytest.raises(InputError, match=r"no worker for 1 s: .* finished shards are kept"),
    ):
        client.wait_for_workers(1, timeout=60)
        list(map_shards(elsewhere.shard_sum, alone, client))


def test_shards_wait_for_the_first_worker(alone, monkeypatch):
    monkeypatch.setattr(cluster, "LOST", 1)
    with dask_client(workers=1) as client:
        client.cluster.scale(0)
        while client.nthreads():
            time.sleep(0.1)
        hire = threading.Timer(2, client.cluster.scale, [1])
        hire.start()
        assert next(map_shards(shard_sum, alone, client))[1] == 4
        hire.join()


SCHEDULER = """
import time
from distributed import LocalCluster
cluster = LocalCluster(
    n_workers={}, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
    dashboard_address=None,
)
print(cluster.scheduler_address, flush=True)
time.sleep(600)
"""


@pytest.fixture
def mortal(request):
    """A process that is a scheduler, with a worker if no other number is asked for; its address."""
    command = [sys.executable, "-c", SCHEDULER.format(getattr(request, "param", 1))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_scheduler_that_dies_is_one_line_and_finished_shards_stay(
    mortal, encoder, alone, tmp_path, capfd
):
    process, address = mortal

    def kill():
        while not list(tmp_path.glob("*/shard-*")):
            time.sleep(0.005)
        process.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    begun = time.monotonic()
    with (
        pytest.raises(InputError, match=rf"{address}: does not answer; .* are kept"),
        dask_client(scheduler=address) as client,
    ):
        extract_small(encoder, tmp_path, COUNT, fill=partial(fill_on, client))
    assert time.monotonic() - begun < 60
    assert "distributed" not in (shown := capfd.readouterr().err) and "Traceback" not in shown
    assert content(extract_small(encoder, tmp_path, COUNT).folder) == content(alone.folder)


@pytest.mark.parametrize("mortal", [0], indirect=True, ids=["no worker yet"])
def test_a_scheduler_that_dies_before_its_workers_come(mortal, alone, monkeypatch, capfd):
    process, address = mortal
    monkeypatch.setattr(cluster, "CONNECT", 2)
    with (
        pytest.raises(InputError, match=rf"{address}: does not answer; start it"),
        dask_client(scheduler=address) as client,
    ):
        threading.Timer(1, process.kill).start()
        list(map_shards(shard_sum, alone, client))
    assert capfd.readouterr().err == ""


def test_a_study_has_its_shards_and_its_pass_computed_by_workers(
    tiny_folder, tmp_path, monkeypatch
):
    text, made, original = tmp_path / "text.txt", [], cluster.dask_client
    text.write_text("\n".join(f"The cat number {i} sat on a mat ." for i in range(40)) + "\n")

    def spy(**how):
        made.append(how)
        return original(**how)

    monkeypatch.setattr(cluster, "dask_client", spy)
    settings = {"model": str(tiny_folder("bert")), "text": str(text), "segments": 12}
    found = {}
    for workers in (0, 2):
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / f"cache-{workers}"))
        study = Study(**settings, max_tokens=32, device="cpu", workers=workers)
        found[workers] = content(study.segment_store().folder), study.sums.distances
    assert found[0][0] == found[2][0]
    np.testing.assert_array_equal(found[0][1], found[2][1])
    assert made == [{"scheduler": "", "workers": 2}] * 2, "for extraction and pass"
