"""Stores and sums of a cluster are those of one process, and a worker may die."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from faults import SLOW_KILLS
from store_tools import content, extract_small

from helpers.errors import InputError
from helpers.metrics.surface import head_table, sums
from helpers.store import cluster
from helpers.store.cluster import map_shards, start_cluster
from helpers.store.extract import ComputedStore
from helpers.store.store import Store
from helpers.study import Study

# Workers that are forked from a process that has torch start in milliseconds, not in seconds.
dask = pytest.importorskip("dask")
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
distributed = pytest.importorskip("distributed")
distributed_utils = pytest.importorskip("distributed.utils")
PRELOADED = ["distributed", "store_tools", "transformers.models.bert.modeling_bert"]
distributed_utils.get_mp_context().set_forkserver_preload(PRELOADED)

COUNT = 400  # 100 shards


@pytest.fixture
def client():
    with start_cluster(2, "") as client:
        yield client


@pytest.fixture(scope="module")
def expected_store(tiny_encoder, tmp_path_factory):
    """The store that one process writes."""
    return extract_small(tiny_encoder("bert"), tmp_path_factory.mktemp("expected"), COUNT)


def shard_sum(source, number):
    """Return the process, the number of examples of a shard, and the sum of their maps."""
    maps = [example.attention.astype(np.float64) for example in source.shard(number)]
    return os.getpid(), len(maps), sum(example_maps.sum(axis=(2, 3)) for example_maps in maps)


def kill_worker(root, process_id, n_shards):
    """Kill a worker once there are so many shards; return how many there were."""
    deadline = time.monotonic() + 120  # the extraction may have failed
    finished = list(root.glob("*/shard-*.safetensors"))
    while len(finished) < n_shards and time.monotonic() < deadline:
        time.sleep(0.005)
        finished = list(root.glob("*/shard-*.safetensors"))
    os.kill(process_id, signal.SIGKILL)
    return len(finished)


def test_a_store_has_the_same_bytes_after_a_worker_was_killed(
    tiny_encoder, expected_store, tmp_path, record_property
):
    rng = random.Random(0)
    killed_at = []
    for attempt in range(SLOW_KILLS):
        root = tmp_path / str(attempt)
        # Each kill has a cluster of its own: after several, Dask may not replace a worker.
        with start_cluster(2, "") as client, ThreadPoolExecutor(1) as killer:
            processes = sorted(client.run(os.getpid).values())
            assert len(set(processes)) == 2
            kill = killer.submit(kill_worker, root, processes[0], rng.randrange(3, 60))
            store = extract_small(tiny_encoder("bert"), root, COUNT)
            killed_at.append(kill.result())
        assert killed_at[-1] < store.n_shards
        assert content(store.folder) == content(expected_store.folder)
        shutil.rmtree(root)
    shards = f"{min(killed_at)} to {max(killed_at)} of 100 shards written"
    record_property("found", f"Dask workers: {len(killed_at)} kills, with {shards}")


def test_map_shards_gives_results_in_order(client, tiny_encoder, expected_store):
    client.wait_for_workers(2, timeout=60)
    root = expected_store.folder.parent
    source = extract_small(tiny_encoder("bert"), root, COUNT, stream=True)
    results = map_shards(shard_sum, source, range(source.n_shards))
    processes, counts, totals = zip(*results, strict=True)
    expected = [shard_sum(expected_store, number)[2] for number in range(expected_store.n_shards)]
    np.testing.assert_array_equal(totals, expected)
    assert set(counts) == {4}
    assert os.getpid() not in processes


def die(_source, number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_map_shards_gives_up_if_a_shard_kills_its_workers_or_none_is_left(
    expected_store, monkeypatch
):
    monkeypatch.setattr(cluster, "NO_WORKER_TIMEOUT", "1s")
    message = "its workers died .* memory.* finished shards are kept"
    with start_cluster(1, "") as client:
        client.wait_for_workers(1, timeout=60)
        monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
        with pytest.raises(InputError, match=message):
            list(map_shards(die, expected_store, [0, 1]))
        client.cluster.scale(0)
        with pytest.raises(InputError, match=message):
            list(map_shards(shard_sum, expected_store, [0]))


def test_a_worker_refuses_a_store_of_another_model_or_code(expected_store, encoder, monkeypatch):
    changed = dataclasses.replace(encoder, key={**encoder.key, "dtype": "bfloat16"})
    with pytest.raises(InputError, match="a worker has other code or another model"):
        cluster._opened(ComputedStore, expected_store.folder, cluster._source(changed))
    monkeypatch.setattr(cluster, "CODE_DIGEST", "other")
    cluster._opened.cache_clear()
    with pytest.raises(InputError, match="a worker has other code or another model"):
        cluster._opened(Store, expected_store.folder, "")


def test_a_worker_makes_the_control_that_it_is_given(encoder):
    matched = encoder.with_temperatures([[2.0] * 4] * 3, {"texts": "some"})
    for control in (matched, encoder.with_reordered_layers(1)):
        assert cluster._loaded(cluster._source(control)).key == control.key


SCHEDULER = """
import time
from distributed import LocalCluster
cluster = LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
    dashboard_address=None,
)
print(cluster.scheduler_address, flush=True)
time.sleep(600)
"""


@pytest.fixture
def scheduler_process():
    """A scheduler in a process of its own, with one worker, and its address."""
    command = [sys.executable, "-c", SCHEDULER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_extract_keeps_shards_when_the_scheduler_dies(
    scheduler_process, encoder, expected_store, tmp_path, monkeypatch, capfd
):
    process, address = scheduler_process
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", 2)

    def kill():
        while not list(tmp_path.glob("*/shard-*.safetensors")):
            time.sleep(0.005)
        process.kill()

    threading.Thread(target=kill, daemon=True).start()
    started = time.monotonic()
    with (
        pytest.raises(InputError, match=rf"{address} does not answer.* are kept"),
        start_cluster(0, address),
    ):
        extract_small(encoder, tmp_path, COUNT)
    assert time.monotonic() - started < 240, "it waits without end"
    messages = capfd.readouterr().err
    assert "distributed" not in messages and "Traceback" not in messages
    assert content(extract_small(encoder, tmp_path, COUNT).folder) == content(expected_store.folder)


def test_a_study_computes_shards_and_sums_on_workers(tiny_folder, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"The cat number {i} sat on a mat ." for i in range(40)) + "\n")
    study = Study(
        model=str(tiny_folder("bert")), text=str(text), segments=12, max_tokens=32, device="cpu"
    )
    files = []
    tables = []
    for workers in (0, 2):
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / f"cache-{workers}"))
        study_with_workers = Study(**asdict(study.settings) | {"workers": workers})
        store = study_with_workers.segment_store()
        files.append(content(store.folder))
        tables.append(head_table(sums(store), ["entropy"]))
    assert files[0] == files[1]
    pd.testing.assert_frame_equal(*tables)
    with distributed.default_client() as client:
        assert len(client.nthreads()) == 2, "one cluster for extraction and sums"
