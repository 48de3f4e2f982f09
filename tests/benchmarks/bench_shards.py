"""List, interrupt, resume and finish a store of up to a million segments, without a model.

    python tests/benchmarks/bench_shards.py [--json PATH] [--sizes 32000 320000 1000000]

The segments are records alone, and a shard holds one number, so that what is measured is what a
store costs per segment and per shard: time, peak memory, and how often the manifest is written.
Each size runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
from common import options, random_segments, report

from helpers.data.records import Corpus, Record
from helpers.model.encoder import Encoder, load_encoder
from helpers.store.extract import extract, write_shard
from helpers.store.format import Manifest
from helpers.store.store import Store

SIZES = (32_000, 320_000, 1_000_000)
TOKENS = ["[CLS]", *["the"] * 62, "[SEP]", *["a"] * 63, "[SEP]"]


def records(count: int) -> Iterator[Record]:
    """Yield records as those of segments of 128 tokens."""
    for index in range(count):
        yield {"tokens": TOKENS, "title": f"article {index // 20}", "second": 64}


def write_small_shards(store: Store, missing: Sequence[int]) -> None:
    """Write shards that hold one number."""
    for number in missing:
        tensors = {"attention/000000": np.array([number], np.float16)}
        write_shard(store.folder, number, tensors)


def write_half(store: Store, missing: Sequence[int]) -> None:
    """Write half of the shards, and end as a process does that is stopped."""
    write_small_shards(store, missing[: len(missing) // 2])
    raise KeyboardInterrupt


def measure(count: int) -> dict[str, float]:
    """Measure the seconds of each step, the peak memory in MiB and the manifest's writes."""
    encoder = load_encoder(device="cpu")
    corpus = random_segments(0)
    seconds = {}
    with (
        mock.patch("helpers.store.examples.examples", lambda *_: records(count)),
        mock.patch("helpers.store.extract.check_free"),
        mock.patch.object(Manifest, "write", autospec=True, side_effect=Manifest.write) as write,
    ):
        for name, step in (
            ("list", list_examples),
            ("half", stop),
            ("rest", resume),
            ("read", resume),
        ):
            started = time.perf_counter()
            step(encoder, corpus)
            seconds[name] = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**seconds, "peak_mib": peak, "manifest_writes": write.call_count}


def list_examples(encoder: Encoder, corpus: Corpus) -> None:
    """Write the list of examples."""
    extract(encoder, corpus, stream=True)


def stop(encoder: Encoder, corpus: Corpus) -> None:
    """Write half of the shards."""
    try:
        extract(encoder, corpus, fill=write_half)
    except KeyboardInterrupt:
        return


def resume(encoder: Encoder, corpus: Corpus) -> None:
    """Write the other half of the shards; open the store if it is finished."""
    extract(encoder, corpus, fill=write_small_shards)


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--size", type=int, help="measure one size in this process")
    arguments = parser.parse_args()
    if arguments.size:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ATTENTION_CACHE"] = folder
            print(json.dumps(measure(arguments.size)))
        return
    results = {}
    for size in arguments.sizes:
        command = [sys.executable, __file__, "--size", str(size)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results[size] = json.loads(done.stdout.splitlines()[-1])
        print(f"{size:,} segments: {results[size]}")
    report({"sizes": results}, arguments.json)


if __name__ == "__main__":
    main()
