"""Peak resident memory of every step, for corpora of three sizes.

    python tests/benchmarks/bench_memory.py [--json PATH]

Each step runs in a process of its own, with the heads of the default model and little width, over
random text.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import options, random_encoder, random_segments, random_sentences, report

from helpers.metrics import dependency_heads as relations
from helpers.metrics import head_distance, surface
from helpers.metrics.head_counts import count_heads
from helpers.probes import training
from helpers.probes.data import prepare
from helpers.probes.linear import Attn
from helpers.store.extract import extract

SIZES = (250, 1000, 4000)
WIDTH = 96


def tokens(count: int):
    return extract(random_encoder("minilm", width=WIDTH), random_segments(count, longest=30))


def words(count: int):
    encoder = random_encoder("minilm", width=WIDTH)
    return extract(encoder, random_sentences(count), level="word", hidden=True)


def passed(count: int):
    store = tokens(count)
    surface.sums(store)
    head_distance.distances(store)


def streamed(count: int):
    encoder = random_encoder("minilm", width=WIDTH)
    store = extract(encoder, random_segments(count, longest=30), stream=True)
    surface.sums(store)
    head_distance.distances(store)


def dependency_heads(count: int):
    counts = count_heads(words(count))
    relations.dependency_heads(counts, minimum=100)
    relations.held_out_heads(counts, minimum=100)


def probe(count: int):
    def vectors(forms: list[str]) -> np.ndarray:
        return np.ones((len(forms), 50), np.float32)

    training.EPOCHS = training.MIN_UPDATES = 1
    data = prepare(words(count), vectors)
    training.train([Attn(data, with_words=True)], data, data.splits["train"])


STEPS: dict[str, Callable[[int, Path], object]] = {
    "extract tokens": tokens,
    "extract words": words,
    "sections 3 and 6": passed,
    "the same, streamed": streamed,
    "dependency heads": dependency_heads,
    "probe": probe,
}


def peak(step: str, count: int) -> int:
    """Run a step in a process of its own; return its peak resident memory in MiB."""
    command = [sys.executable, __file__, "--step", step, "--count", str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--step", choices=STEPS, help="run one step and print its peak")
    parser.add_argument("--count", type=int)
    arguments = parser.parse_args()
    if arguments.step:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ATTENTION_CACHE"] = folder
            STEPS[arguments.step](arguments.count)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    print(f"{'peak memory (MiB), examples:':28}" + "".join(f"{size:>8}" for size in SIZES))
    rows = {}
    for step in STEPS:
        peaks = {size: peak(step, size) for size in SIZES}
        growth = peaks[SIZES[-1]] / peaks[SIZES[0]] - 1
        columns = "".join(f"{mebibytes:8}" for mebibytes in peaks.values())
        print(f"{step:28}{columns} {growth:+.0%}")
        rows[step] = peaks
    report({"peak_mib": rows}, arguments.json)


if __name__ == "__main__":
    main()
