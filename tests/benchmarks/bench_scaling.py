"""Extraction and the pass over the maps: wall and processor time without and with Dask workers.

    python tests/benchmarks/bench_scaling.py [--json PATH] [--repeats N] [--segments N]

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
from common import extract_into, options, random_segments, report

from helpers.metrics.surface import shard_values
from helpers.model.loading import load_model
from helpers.store.cluster import map_shards, start_cluster


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--segments", type=int, default=1000)
    arguments = parser.parse_args()
    encoder = load_model(device="cpu")
    corpus = random_segments(arguments.segments)
    results = {}
    with tempfile.TemporaryDirectory() as root:
        folders = (Path(root) / str(number) for number in count())

        def study() -> None:
            """Extract a store, and pass over it."""
            store = extract_into(next(folders), encoder, corpus)
            for _ in map_shards(shard_values, store, range(store.n_shards)):
                pass

        for workers in (0, 1, 2) * arguments.repeats:
            results.setdefault(workers, []).append(measure(study, workers))
    for workers, runs in results.items():
        wall, processor = np.median(runs, axis=0)
        print(f"{workers} workers: {wall:.1f} s, {processor:.1f} s of processor time")
    report({"segments": arguments.segments, "seconds": results}, arguments.json)


def measure(run: Callable[[], None], workers: int) -> tuple[float, float]:
    """Measure the wall time of a function, and the processor time with that of its workers.

    The time to start the workers counts.
    """
    started = time.perf_counter(), time.process_time()
    of_workers = 0.0
    if not workers:
        run()
    else:
        with start_cluster(workers, "") as client:
            run()
            of_workers = sum(client.run(time.process_time).values())
    wall = time.perf_counter() - started[0]
    return wall, time.process_time() - started[1] + of_workers


if __name__ == "__main__":
    main()
