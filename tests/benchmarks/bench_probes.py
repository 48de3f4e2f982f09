"""Time an epoch of Attn + GloVe against plain ways, and three seeds together against one by one.

Run as a script: ``python tests/benchmarks/bench_probes.py``.  The data is synthetic, with the
sentence lengths of UD English EWT.  The plain reference joins the vectors of every pair of
words, as the released notebook of the paper does, one sentence a step; both train on the same
sentences, in turns, and the ratio is of medians.  So do three seeds as members of one model and
three models one after the other.  ``--sentences`` then times a whole epoch.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from common import options, report
from torch import nn

from helpers.analysis.probe_data import PLACES, ProbeData, prepare
from helpers.analysis.table3 import KINDS, AttentionWordsProbe, loss
from helpers.analysis.training import one_thread
from helpers.store.store import Example

WORDS = (16.3, 12.4)  # mean and standard deviation of EWT's train sentences
LONGEST = 120


class PlainProbe(nn.Module):
    """The same scores from the [word, word, 2 * width] array of joined vectors."""

    def __init__(self, features, width):
        super().__init__()
        self.pairs = nn.Linear(2 * width, features)
        self.root = nn.Linear(width, features * PLACES)

    def forward(self, batch):
        vectors = batch.vectors
        count, n, width = vectors.shape
        candidate = vectors[:, None].expand(count, n, n, width)
        dependent = vectors[:, :, None].expand(count, n, n, width)
        weights = self.pairs(torch.cat([candidate, dependent], -1))
        words = (weights * batch.maps.transpose(2, 3)).sum(-1)
        root = self.root(vectors).unflatten(-1, (-1, PLACES)) * batch.special
        return torch.cat([root.sum((-2, -1))[..., None], words], -1)[None]


def synthetic(sentences, layers, heads, seed=0):
    rng = np.random.default_rng(seed)
    mean, deviation = WORDS
    shape, scale = (mean / deviation) ** 2, deviation**2 / mean
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


def epoch_seconds(model, data: ProbeData, indices, size):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    order = np.random.default_rng(0)
    start = time.perf_counter()
    with one_thread():  # as fit_probe does
        for batch in data.batches(indices, size=size, order=order):
            optimizer.zero_grad()
            (loss(model, batch).sum() / batch.lengths.sum()).backward()
            optimizer.step()
    return time.perf_counter() - start


def main():
    parser = options(__doc__, repeats=3)
    parser.add_argument("--sentences", type=int, default=10_000, help="of the whole epoch")
    parser.add_argument("--compared", type=int, default=500, help="sentences of the comparison")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=50, help="of the word vectors")
    given = parser.parse_args()

    rng = np.random.default_rng(1)

    def vectors(words):
        return rng.standard_normal((len(words), given.width), np.float32)

    examples = synthetic(given.sentences, given.layers, given.heads)
    start = time.perf_counter()
    data = prepare(examples, vectors)
    prepared = time.perf_counter() - start
    train, size = data.splits["train"], KINDS["Attn + GloVe"].schedule.batch_size
    compared = train[: given.compared]
    fast, plain, together, apart = [], [], [], []
    for _ in range(given.repeats):
        probe = AttentionWordsProbe(data)
        fast.append(epoch_seconds(probe, data, compared, size))
        plain.append(epoch_seconds(PlainProbe(data.features, given.width), data, compared, 1))
        models = [AttentionWordsProbe(data, range(count)) for count in (3, 1, 1, 1)]
        first, *others = (epoch_seconds(model, data, compared, size) for model in models)
        together.append(first)
        apart.append(sum(others))
    probe = AttentionWordsProbe(data)
    numbers = {
        "sentences": len(train),
        "words": int(sum(len(data.parses[index]) for index in train)),
        "heads": given.layers * given.heads,
        "prepare_s": prepared,
        "epoch_s": epoch_seconds(probe, data, train, size),
        "compared_sentences": len(compared),
        "factorised_s": float(np.median(fast)),
        "plain_s": float(np.median(plain)),
        "ratio": float(np.median(plain) / np.median(fast)),
        "three_seeds_together_s": float(np.median(together)),
        "three_seeds_apart_s": float(np.median(apart)),
        "seeds_ratio": float(np.median(apart) / np.median(together)),
    }
    for name, value in numbers.items():
        print(f"{name:20} {value:.3g}" if isinstance(value, float) else f"{name:20} {value}")
    report({"probes": numbers}, given.json)


if __name__ == "__main__":
    main()
