"""Extraction and the pass over the maps with Dask workers, against those without.

    python tests/benchmarks/bench_scaling.py

A worker has one thread, so that two have as many as one process on a machine with two cores.  The
time to start the workers counts.
"""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import count
from pathlib import Path

from common import extract_into, interleaved, random_segments

from helpers.metrics.surface import shard_values
from helpers.model.loading import load_model
from helpers.store.cluster import map_shards, start_cluster

REPEATS = 3
SEGMENTS = 1000


def main() -> None:
    encoder = load_model(device="cpu")
    corpus = random_segments(SEGMENTS)
    with tempfile.TemporaryDirectory() as root:
        folders = (Path(root) / str(number) for number in count())

        def study() -> None:
            """Extract a store, and pass over it."""
            store = extract_into(next(folders), encoder, corpus)
            for _ in map_shards(shard_values, store, range(store.n_shards)):
                pass

        def study_with_workers(workers: int) -> None:
            with start_cluster(workers, ""):
                study()

        variants = {
            f"{workers} workers": partial(study_with_workers, workers) for workers in (1, 2)
        }
        seconds = interleaved({"none": study, **variants}, REPEATS)
    for name in variants:
        print(f"{name}: {seconds[name] / seconds['none']:.2f} times the time")


if __name__ == "__main__":
    main()
