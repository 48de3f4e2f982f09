"""Extraction and the pass over the maps by one process, and by one and two Dask workers.

    python tests/benchmarks/bench_scaling.py [--json PATH] [--repeats N] [--segments N]

A worker has one thread here, so that one worker has half of a machine with two cores, and two
have all of it, as the single process has.  The time to start the workers is not counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

from common import extract_into, interleaved, options, random_segments, report
from distributed import Client

from helpers.metrics.surface import shard_values
from helpers.model.encoder import load_encoder
from helpers.store.cluster import dask_client, extract_on_cluster, map_shards
from helpers.store.extract import Fill, fill_here
from helpers.store.store import Store


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--segments", type=int, default=192)
    arguments = parser.parse_args()
    encoder = load_encoder(device="cpu")
    corpus = random_segments(arguments.segments)
    run_numbers = count()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = extract_into(root / "whole", encoder, corpus)
        clients = start_workers(stack)

        def extract_once(fill: Fill = fill_here) -> Store:
            return extract_into(root / str(next(run_numbers)), encoder, corpus, fill=fill)

        def pass_here() -> None:
            for number in range(store.n_shards):
                shard_values(store, number)

        def pass_with(client: Client) -> None:
            for _ in map_shards(shard_values, store, client, range(store.n_shards)):
                pass

        extraction: dict[str, Callable[[], object]] = {"process": extract_once}
        passes: dict[str, Callable[[], object]] = {"process": pass_here}
        for workers, client in clients.items():
            extraction[f"workers {workers}"] = partial(
                extract_once, partial(extract_on_cluster, client)
            )
            passes[f"workers {workers}"] = partial(pass_with, client)
        rates = {
            "extraction": segments_per_second(extraction, arguments.segments, arguments.repeats),
            "pass": segments_per_second(passes, arguments.segments, arguments.repeats),
        }
        bytes_per_segment = sum(shard["bytes"] for shard in store.manifest.shards) / len(store)
    for name, by_variant in rates.items():
        line = ", ".join(f"{variant} {rate:.1f}" for variant, rate in by_variant.items())
        gain = by_variant["workers 2"] / by_variant["workers 1"]
        print(f"{name} (segments/s): {line}; two workers are {gain:.2f} times one")
    print(f"store: {bytes_per_segment / 1e6:.2f} MB per segment")
    results = {
        "segments": arguments.segments,
        "segments_per_s": rates,
        "bytes_per_segment": bytes_per_segment,
    }
    report(results, arguments.json)


def start_workers(stack: ExitStack) -> dict[int, Client]:
    """Start a cluster with one worker and one with two, each worker with one thread."""
    return {count: stack.enter_context(dask_client(workers=count)) for count in (1, 2)}


def segments_per_second(
    variants: dict[str, Callable[[], object]], segments: int, repeats: int
) -> dict[str, float]:
    """Return the throughput of each variant."""
    medians = interleaved(variants, repeats)
    return {variant: segments / seconds for variant, seconds in medians.items()}


if __name__ == "__main__":
    main()
