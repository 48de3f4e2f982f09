"""Time the training of probes of several layers together, against one layer after another.

Run as a script: ``python tests/benchmarks/bench_layers.py``.  The data is synthetic: random hidden
states and trees, with the sentence lengths of UD English EWT, and as many layers and dimensions as
the default model has.  Both ways train the same probes on one thread, in turns, and the ratios are
of medians of processor seconds.  *Together* are the groups of layers that a run trains;
*alone* are groups of one layer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from bench_probes import synthetic
from common import GEOMETRIES, interleaved, options, report

from helpers.probes import bilinear, structural
from helpers.probes.data import ProbeData, prepare
from helpers.torch_utils import one_thread

Groups = Iterable[Sequence[int]]  # of layers


def with_states_and_trees(examples, layers, width):
    rng = np.random.default_rng(1)
    for example in examples:
        shape = (layers + 1, len(example), width)
        hidden = rng.standard_normal(shape, np.float32).astype(np.float16)
        heads = [int(rng.integers(word + 1)) for word in range(len(example.record["words"]))]
        yield replace(example, hidden=hidden, record={**example.record, "heads": heads})


def train_bilinear(data: ProbeData, groups: Groups):
    with one_thread():
        for layers in groups:
            bilinear.fit_bilinear_layers(data, 0, layers=layers, rank=bilinear.RANKS[0])


def train_structural(data: ProbeData, groups: Groups):
    with one_thread():
        for layers in groups:
            structural.fit_group_of_layers(data, 1, layers)


def main():
    parser = options(__doc__, repeats=3)
    parser.add_argument("--sentences", type=int, default=1600, help="to train on")
    parser.add_argument("--epochs", type=int, default=8, help="of each training")
    arguments = parser.parse_args()

    for module in (bilinear, structural):
        module.SCHEDULE = module.SCHEDULE._replace(epochs=arguments.epochs, min_updates=1)
    layers, _, width = GEOMETRIES["minilm"]
    examples = synthetic(arguments.sentences, layers, 1)
    data = prepare(with_states_and_trees(examples, layers, width))
    alone = [[layer] for layer in range(layers + 1)]
    variants = {
        "bilinear_together": partial(train_bilinear, data, data.layer_groups),
        "bilinear_alone": partial(train_bilinear, data, alone),
        "structural_together": partial(train_structural, data, data.layer_groups),
        "structural_alone": partial(train_structural, data, alone),
    }
    medians = interleaved(variants, arguments.repeats, clock=time.process_time)
    numbers = {
        "sentences": len(data.splits["train"]),
        "layers": layers + 1,
        **{f"{name}_s": median for name, median in medians.items()},
        "bilinear_ratio": medians["bilinear_alone"] / medians["bilinear_together"],
        "structural_ratio": medians["structural_alone"] / medians["structural_together"],
    }
    for name, number in numbers.items():
        print(f"{name:22} {number:.3g}")
    report({"layers": numbers}, arguments.json)


if __name__ == "__main__":
    main()
