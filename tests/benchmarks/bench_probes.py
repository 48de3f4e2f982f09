"""Time an epoch of Attn and Attn + GloVe, which read the maps of each batch from the store.

Run as a script: ``python tests/benchmarks/bench_probes.py``.  The data is synthetic, with the
sentence lengths of UD English EWT, and its maps are made when they are read.  40,000 sentences are
as many as in the Penn Treebank.  The peak is that of the whole process.
"""

from __future__ import annotations

import resource
import time

import numpy as np
from common import GEOMETRIES, options, report

from helpers.probes import training
from helpers.probes.data import prepare
from helpers.probes.linear import Attn
from helpers.store.store import Example

WORDS = (16.3, 12.4)  # mean and standard deviation of EWT's train sentences
LONGEST = 120
WIDTH = 50  # of the word vectors


class SyntheticStore:
    """A store whose maps are parts of one map."""

    def __init__(self, sentences, layers, heads):
        self.rng = np.random.default_rng(0)
        mean, deviation = WORDS
        lengths = self.rng.gamma((mean / deviation) ** 2, deviation**2 / mean, sentences)
        self.lengths = np.clip(lengths.round().astype(int), 2, LONGEST)
        shape = (layers, heads, LONGEST + 2, LONGEST + 2)
        self.maps = (self.rng.random(shape, np.float32) / LONGEST).astype(np.float16)

    def records(self):
        for index, n in enumerate(self.lengths):
            yield {
                "words": ["w"] * n,
                "heads": self.rng.integers(0, n + 1, n).tolist(),
                "relations": ["dep"] * n,
                "split": "dev" if index == 0 else "train",
            }

    def __getitem__(self, index):
        n = self.lengths[index]
        return Example(index, self.maps[:, :, : n + 2, : n + 2], {"words": ["w"] * n})


def main():
    parser = options(__doc__, repeats=1)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--geometry", choices=GEOMETRIES, default="minilm")
    arguments = parser.parse_args()

    layers, heads, _ = GEOMETRIES[arguments.geometry]
    rng = np.random.default_rng(1)
    store = SyntheticStore(arguments.sentences, layers, heads)
    data = prepare(store, lambda words: rng.standard_normal((len(words), WIDTH), np.float32))
    probes = [Attn(data), Attn(data, with_words=True)]
    training.EPOCHS = training.MIN_UPDATES = 1
    start = time.process_time()
    training.train(probes, data, data.splits["train"])
    numbers = {
        "sentences": len(data.splits["train"]),
        "heads": layers * heads,
        "epoch_s": time.process_time() - start,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    for name, number in numbers.items():
        print(f"{name:20} {number:.3g}" if isinstance(number, float) else f"{name:20} {number}")
    report({"probes": numbers}, arguments.json)


if __name__ == "__main__":
    main()
