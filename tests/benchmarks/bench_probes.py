"""Time passes of the linear probes over a corpus, with their gradients, against two plain ways.

Run as a script: ``python tests/benchmarks/bench_probes.py``.  The data is synthetic, with the
sentence lengths of UD English EWT.  All ways go over the same sentences on one thread, in turns,
and the ratios are of medians of processor seconds:

- *shared*: one pass for Attn, Attn + GloVe and both control tasks, as `fit_together` makes it.
- *autograd*: the same four losses one after another, differentiated by torch.
- *plain*: Attn + GloVe alone, from the joined vectors of every pair of words, as the released
  notebook of the paper does, one sentence at a time; *factorised*: the same loss by `pass_over`.

``--sentences`` then times a whole pass: 40,000 are as many as in the Penn Treebank.  The peak is
that of the whole process.
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
from helpers.probes.linear import LinearProbe, LinearProbeFitter, Task, pass_over
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


class SameThread:
    """Calls functions at once, as an executor of no threads would."""

    map = staticmethod(map)


def fitters(data: ProbeData, tasks):
    made = []
    for task in tasks:
        probe = LinearProbe(data, with_words=task.with_words)
        task_data = data.control_task() if task.on_control_task else data
        made.append(LinearProbeFitter(probe, task_data, SameThread()))
    return made


def shared_pass(probes, indices):
    data = probes[0].data
    weights = torch.zeros(len(data.parses), dtype=torch.float64)
    weights[indices] = 1
    requests = [(fitter, weights) for fitter in probes]
    with one_thread():
        pass_over(data.batches(indices), requests, SameThread())


def autograd_pass(model, data: ProbeData, indices, size):
    with one_thread():
        for batch in data.groups(indices, size):
            summed = loss(model, data, batch, reduction="sum")
            torch.autograd.grad(summed, list(model.parameters()), materialize_grads=True)


def autograd_passes(probes, indices):
    for fitter in probes:
        autograd_pass(fitter.probe, fitter.data, indices, MAX_BATCH)


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
    four = fitters(data, [Task(), Task(on_control_task=True), Task(True), Task(True, True)])
    attn_glove = [four[2]]
    plain = PlainProbe(2 * layers * heads, WIDTH)
    variants = {
        "shared": partial(shared_pass, four, compared),
        "autograd": partial(autograd_passes, four, compared),
        "factorised": partial(shared_pass, attn_glove, compared),
        "plain": partial(autograd_pass, plain, data, compared, 1),
    }
    medians = interleaved(variants, arguments.repeats, clock=time.process_time)
    numbers = {
        "sentences": len(train),
        "words": data.n_words(train),
        "heads": layers * heads,
        "prepare_s": prepared,
        "pass_s": seconds(partial(shared_pass, attn_glove, train)),
        "compared_sentences": len(compared),
        **{f"{name}_s": median for name, median in medians.items()},
        "autograd_ratio": medians["autograd"] / medians["shared"],
        "plain_ratio": medians["plain"] / medians["factorised"],
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    for name, number in numbers.items():
        print(f"{name:20} {number:.3g}" if isinstance(number, float) else f"{name:20} {number}")
    report({"probes": numbers}, arguments.json)


if __name__ == "__main__":
    main()
