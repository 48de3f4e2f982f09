"""Extraction and the pass over the maps by one process, and by one and two Dask workers.

    python tests/benchmarks/bench_scaling.py [--json PATH] [--repeats N] [--segments N]

A worker has one thread here, so that one worker has half of a machine with two cores, and two
have all of it, as the single process has.  Starting the workers is not counted: a cluster runs.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import torch
from common import extract_into, interleaved, options, random_segments, report

from helpers.analysis.surface import combine, shard_sums, sweep
from helpers.model.encoder import load
from helpers.store.cluster import dask_client, fill_on, map_shards


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--segments", type=int, default=192)
    given = parser.parse_args()
    encoder, corpus, fresh = load(device="cpu"), random_segments(given.segments), count()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = extract_into(root / "whole", encoder, corpus)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # what each worker gets: the threads here by the workers
        clients = {}
        for workers in (1, 2):
            clients[workers] = stack.enter_context(dask_client(workers=workers))
        torch.set_num_threads(threads)

        def into() -> Path:
            return root / str(next(fresh))

        extraction = {"process": lambda: extract_into(into(), encoder, corpus)}
        passes = {"process": lambda: sweep(store)}
        for workers, client in clients.items():
            extraction[f"workers {workers}"] = lambda client=client: extract_into(
                into(), encoder, corpus, fill=partial(fill_on, client)
            )
            passes[f"workers {workers}"] = lambda client=client: combine(
                map_shards(shard_sums, store, client)
            )
        results = {
            "segments": given.segments,
            "segments_per_s": {
                name: {
                    variant: given.segments / seconds
                    for variant, seconds in interleaved(variants, given.repeats).items()
                }
                for name, variants in (("extraction", extraction), ("pass", passes))
            },
            "bytes_per_segment": sum(shard.bytes for shard in store.manifest.shards) / len(store),
        }
    for name, rates in results["segments_per_s"].items():
        line = ", ".join(f"{variant} {rate:.1f}" for variant, rate in rates.items())
        gain = rates["workers 2"] / rates["workers 1"]
        print(f"{name} (segments/s): {line}; two workers are {gain:.2f} times one")
    print(f"store: {results['bytes_per_segment'] / 1e6:.2f} MB a segment")
    report(results, given.json)


if __name__ == "__main__":
    main()
