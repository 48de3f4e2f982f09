"""Peak resident memory of every step, for a corpus of 4,000 examples beside one of 250.

    python tests/benchmarks/bench_memory.py

Each step runs in a process of its own, with the heads of the default model and little width, over
random text.
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np
from common import (
    in_a_process,
    peak_mebibytes,
    random_encoder,
    random_segments,
    random_sentences,
)

from helpers.metrics import clustering, surface
from helpers.metrics import dependency_heads as relations
from helpers.metrics.head_counts import count_heads
from helpers.probes import training
from helpers.probes.data import prepare
from helpers.probes.modules import Attn
from helpers.store.extract import extract

SIZES = (250, 4000)
WIDTH = 96


def tokens(count: int):
    return extract(random_encoder("minilm", width=WIDTH), random_segments(count, longest=30))


def words(count: int):
    encoder = random_encoder("minilm", width=WIDTH)
    return extract(encoder, random_sentences(count), level="word", hidden=True)


def passed(count: int):
    store = tokens(count)
    surface.sums(store)
    clustering.distances(store)


def streamed(count: int):
    encoder = random_encoder("minilm", width=WIDTH)
    store = extract(encoder, random_segments(count, longest=30), stream=True)
    surface.sums(store)
    clustering.distances(store)


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


STEPS = {
    "extract tokens": tokens,
    "extract words": words,
    "sections 3 and 6": passed,
    "the same, streamed": streamed,
    "dependency heads": dependency_heads,
    "probe": probe,
}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ATTENTION_CACHE"] = folder
            STEPS[sys.argv[1]](int(sys.argv[2]))
        print(peak_mebibytes())
        sys.exit()
    for step in STEPS:
        (small,), (large,) = (in_a_process(step, size) for size in SIZES)
        print(f"{step}: {large:,.0f} MiB, {large / small:.2f} times those of {SIZES[0]} examples")
