"""Extraction and the pass over the maps with Dask workers, against those without.

    python tests/benchmarks/bench_scaling.py

A worker has one thread, so that two have as many as one process on a machine with two cores.  The
time to start the workers counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
from common import extract_into, random_segments

from helpers.metrics.surface import shard_values
from helpers.model.loading import load_model
from helpers.store.cluster import map_shards, start_cluster

REPEATS = 3
SEGMENTS = 1000


def main() -> None:
    encoder = load_model(device="cpu")
    corpus = random_segments(SEGMENTS)
    results: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
    with tempfile.TemporaryDirectory() as root:
        folders = (Path(root) / str(number) for number in count())

        def study() -> None:
            """Extract a store, and pass over it."""
            store = extract_into(next(folders), encoder, corpus)
            for _ in map_shards(shard_values, store, range(store.n_shards)):
                pass

        for workers in (*results,) * REPEATS:
            results[workers].append(measure(study, workers))
    medians = {workers: np.median(runs, axis=0) for workers, runs in results.items()}
    for workers in (1, 2):
        wall, processor = medians[workers] / medians[0]
        print(
            f"{workers} workers: {wall:.2f} times the time, {processor:.2f} times the processor's"
        )


def measure(run: Callable[[], None], workers: int) -> tuple[float, float]:
    """Measure the wall time of a function, and the processor time with that of its workers.

    The time to start the workers counts.
    """
    started = time.perf_counter(), time.process_time()
    worker_seconds = 0.0
    if not workers:
        run()
    else:
        with start_cluster(workers, "") as client:
            run()
            worker_seconds = sum(client.run(time.process_time).values())
    wall = time.perf_counter() - started[0]
    return wall, time.process_time() - started[1] + worker_seconds


if __name__ == "__main__":
    main()
