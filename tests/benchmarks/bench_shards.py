"""List, interrupt, resume and finish a store of up to a million segments, without a model.

    python tests/benchmarks/bench_shards.py [--json PATH] [--sizes 32000 320000 1000000]

The segments are records alone, and a shard holds one number, so that what is measured is what a
store costs per segment and per shard: time and peak memory.
Each size runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
from common import options, random_segments, report

from helpers.data.records import Record
from helpers.model.loading import load_model
from helpers.store import extract as extraction
from helpers.store.extract import extract, write_shard
from helpers.store.store import Store

SIZES = (32_000, 320_000, 1_000_000)
TOKENS = ["[CLS]", *["the"] * 62, "[SEP]", *["a"] * 63, "[SEP]"]


def records(count: int) -> Iterator[Record]:
    """Yield records as those of segments of 128 tokens."""
    for index in range(count):
        yield {"tokens": TOKENS, "title": f"article {index // 20}", "second": 64}


def write_small_shard(store: Store, number: int) -> None:
    """Write a shard that holds one number."""
    tensors = {"attention/000000": np.array([number], np.float16)}
    write_shard(store.folder, number, tensors)


def write_half(store: Store, number: int) -> None:
    """Write a shard of the first half, or end as a process does that is stopped."""
    if number >= store.n_shards // 2:
        raise KeyboardInterrupt
    write_small_shard(store, number)


def measure(count: int) -> dict[str, float]:
    """Measure the seconds of each step, and the peak memory in MiB."""
    encoder = load_model(device="cpu")
    corpus = random_segments(0)
    steps = {"list": None, "half": write_half, "rest": write_small_shard, "read": None}
    seconds = {}
    with (
        mock.patch.object(extraction, "examples", lambda *_: records(count)),
        mock.patch.object(extraction, "check_free"),
    ):
        for name, make_shard in steps.items():
            started = time.perf_counter()
            with (
                contextlib.suppress(KeyboardInterrupt),
                mock.patch.object(extraction, "make_shard", make_shard),
            ):
                extract(encoder, corpus, stream=name == "list")
            seconds[name] = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {**seconds, "peak_mib": peak}


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
