"""Time a pass of Attn + GloVe over a corpus, with its gradient, against a plain way.

Run as a script: ``python tests/benchmarks/bench_probes.py``.  The data is synthetic, with the
sentence lengths of UD English EWT.  The plain reference joins the vectors of every pair of
words, as the released notebook of the paper does, one sentence at a time; both go over the same
sentences, in turns, and the ratio is of medians.  ``--sentences`` then times a whole pass: 40,000
are as many as in the Penn Treebank.  The peak is that of the whole process.
"""

from __future__ import annotations

import resource
import time
from functools import partial

import numpy as np
import torch
from common import GEOMETRIES, interleaved, options, report, seconds
from torch import nn

from helpers.probes.data import MAX_BATCH, N_SPECIAL_POSITIONS, ProbeData, prepare
from helpers.probes.linear import LinearProbe
from helpers.probes.training import loss, one_thread
from helpers.store.store import Example

WORDS = (16.3, 12.4)  # mean and standard deviation of EWT's train sentences
LONGEST = 120
WIDTH = 50  # of the word vectors


class PlainProbe(nn.Module):
    """The same scores from the [word, word, 2 * width] array of joined vectors."""

    def __init__(self, features, width):
        super().__init__()
        self.pairs = nn.Linear(2 * width, features)
        self.root = nn.Linear(width, features * N_SPECIAL_POSITIONS)

    def forward(self, data, indices):
        vectors = data.vectors[data.word_numbers(indices)]
        special, maps = data.maps(indices)
        count, n, width = vectors.shape
        candidate = vectors[:, None].expand(count, n, n, width)
        dependent = vectors[:, :, None].expand(count, n, n, width)
        weights = self.pairs(torch.cat([candidate, dependent], -1))
        words = (weights * maps.unflatten(0, (count, n))).sum(-1)
        root = (self.root(vectors) * special.unflatten(0, (count, n))).sum(-1, keepdim=True)
        return torch.cat([root, words], -1)


def synthetic(sentences, layers, heads, seed=0):
    rng = np.random.default_rng(seed)
    mean, deviation = WORDS
    shape = (mean / deviation) ** 2
    scale = deviation**2 / mean
    lengths = np.clip(rng.gamma(shape, scale, sentences).round().astype(int), 2, LONGEST)
    pool = rng.random((layers, heads, LONGEST + 2, LONGEST + 2), np.float32)
    for index, n in enumerate(lengths):
        maps = pool[:, :, : n + 2, : n + 2]
        maps = (maps / maps.sum(-1, keepdims=True)).astype(np.float16)
        record = {
            "words": ["w"] * n,
            "heads": rng.integers(0, n + 1, n).tolist(),
            "relations": ["dep"] * n,
            "split": "dev" if index == 0 else "train",
        }
        yield Example(index, maps, record)


def one_pass(model, data: ProbeData, indices, size):
    with one_thread():
        for batch in data.groups(indices, size):
            summed = loss(model, data, batch, reduction="sum")
            torch.autograd.grad(summed, list(model.parameters()))


def main():
    parser = options(__doc__, repeats=3)
    parser.add_argument("--sentences", type=int, default=10_000, help="of the whole pass")
    parser.add_argument("--compared", type=int, default=500, help="sentences of the comparison")
    arguments = parser.parse_args()

    rng = np.random.default_rng(1)

    def vectors(words):
        return rng.standard_normal((len(words), WIDTH), np.float32)

    layers, heads, _ = GEOMETRIES["minilm"]
    examples = synthetic(arguments.sentences, layers, heads)
    start = time.perf_counter()
    data = prepare(examples, vectors)
    prepared = time.perf_counter() - start
    train = data.splits["train"]
    compared = train[: arguments.compared]
    factorised = LinearProbe(data, with_words=True)
    plain = PlainProbe(2 * layers * heads, WIDTH)
    variants = {
        "factorised": partial(one_pass, factorised, data, compared, MAX_BATCH),
        "plain": partial(one_pass, plain, data, compared, 1),
    }
    medians = interleaved(variants, arguments.repeats)
    numbers = {
        "sentences": len(train),
        "words": int(sum(len(data.parses[index]) for index in train)),
        "heads": layers * heads,
        "prepare_s": prepared,
        "pass_s": seconds(partial(one_pass, factorised, data, train, MAX_BATCH)),
        "compared_sentences": len(compared),
        "factorised_s": medians["factorised"],
        "plain_s": medians["plain"],
        "ratio": medians["plain"] / medians["factorised"],
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    for name, number in numbers.items():
        print(f"{name:20} {number:.3g}" if isinstance(number, float) else f"{name:20} {number}")
    report({"probes": numbers}, arguments.json)


if __name__ == "__main__":
    main()
