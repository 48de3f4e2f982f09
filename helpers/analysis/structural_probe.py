"""The structural probe of Hewitt and Manning (2019), the first row of Table 3 (section 5).

A linear map B of one layer's word vectors under which squared distances,
``d_B(h_i, h_j)^2 = |B (h_i - h_j)|^2``, are the words' distances in the dependency tree.  The
minimum spanning tree of the predicted distances is the parse, without directions.

Dependency trees without directions: distances, edges, and the tree nearest to distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from helpers.analysis.probe_data import (
    PAIRS_PER_BATCH,
    MapBuffer,
    Parse,
    Split,
    pairs,
    read_parse,
    read_split,
)
from helpers.analysis.probe_scores import STRUCTURAL, UUAS, Counts, ProbeResult
from helpers.analysis.training import Schedule, one_thread, train, validation_slice
from helpers.errors import InputError
from helpers.model.parallel import length_batches
from helpers.progress import progress
from helpers.store.store import Example

SCHEDULE = Schedule(epochs=12, learning_rate=0.001, batch_size=20)
TYPICAL_DISTANCE = 5.0  # edges between two words of a sentence, about: where training starts


class StructuralProbe(nn.Module):
    """The map B, ``rank`` x ``width``."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        # Differences of unit-variance vectors have variance 2 in each of the `width` dimensions.
        deviation = (TYPICAL_DISTANCE / (2 * rank * width)) ** 0.5
        self.projection = nn.Parameter(torch.randn(rank, width) * deviation)

    def forward(
        self, vectors: Float[Tensor, "sentence word width"]
    ) -> Float[Tensor, "sentence word other"]:
        """Return the squared distance of every pair of words under B."""
        mapped = vectors @ self.projection.T
        products = mapped @ mapped.transpose(1, 2)
        norms = products.diagonal(dim1=1, dim2=2)
        return (norms[:, :, None] + norms[:, None, :] - 2 * products).clamp(min=0)


@dataclass(frozen=True)
class WordStates:
    """Parsed sentences and the hidden states of their words; layer 0 is the embeddings.

    ``distances`` are the tree distances; ``layers[l][s]`` is sentence s's [word, width], less
    the sentence's mean, which no difference of words depends on.  ``scales`` are the layers'
    standard deviations on train: divided by them, layers of any model train alike.
    """

    parses: list[Parse]
    splits: dict[Split, list[int]]
    distances: list[Int[np.ndarray, "word other"]]
    layers: list[MapBuffer]
    scales: Float[np.ndarray, " layer"]
    width: int

    def batches(
        self, indices: Sequence[int], layer: int, *, size: int, order: np.random.Generator | None
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield sentence numbers, vectors and tree distances, padded (distances with -1)."""
        lengths = [len(parse) for parse in self.parses]
        for group in length_batches(
            lengths, indices, size=size, budget=PAIRS_PER_BATCH, cost=pairs, order=order
        ):
            width = max(lengths[index] for index in group)
            vectors = torch.zeros(len(group), width, self.width)
            distances = torch.full((len(group), width, width), -1.0)
            for row, index in enumerate(group):
                n = lengths[index]
                vectors[row, :n] = torch.from_numpy(self.layers[layer][index])
                distances[row, :n, :n] = torch.from_numpy(self.distances[index])
            vectors /= self.scales[layer]
            yield group, vectors, distances


@dataclass(frozen=True)
class StructuralResult:
    """The scores at the best layer, and how it was chosen.

    ``by_layer`` has layer (0 is the embeddings), validation_uuas (percent, on the slice of
    train that training stops by) and chosen.
    """

    result: ProbeResult
    layer: int
    by_layer: pd.DataFrame


def prepare_states(examples: Iterable[Example], *, memory_budget: int = 1 << 30) -> WordStates:
    """Read the hidden states of word-level examples once.

    They take ``2 * (layers + 1) * width`` bytes a word; what exceeds ``memory_budget`` bytes
    goes to temporary files.  Raises ``InputError`` for examples without hidden states or parse,
    and where train or dev has no sentence.
    """
    states: WordStates | None = None
    for example in progress(examples, "states for the structural probe", unit="sentence"):
        if example.hidden is None:
            raise InputError(
                f"example {example.index}: no hidden states, which the structural probe reads; "
                "extract this store again with hidden states"
            )
        if states is None:
            layers, _, width = example.hidden.shape
            buffers = [MapBuffer(memory_budget // layers) for _ in range(layers)]
            squares = np.zeros(layers)
            states = WordStates([], {"train": [], "dev": []}, [], buffers, squares, width)
        split, parse = read_split(example), read_parse(example)
        states.splits[split].append(len(states.parses))
        states.parses.append(parse)
        try:
            states.distances.append(tree_distances(parse.heads))
        except InputError as error:
            raise InputError(f"example {example.index}: {error}") from error
        vectors = example.hidden[:, example.word_positions].astype(np.float32)
        vectors -= vectors.mean(1, keepdims=True)
        if split == "train":
            squares += np.square(vectors, dtype=np.float64).sum((1, 2))
        for buffer, layer in zip(states.layers, vectors, strict=True):
            buffer.append(layer.astype(np.float16))
    for split in ("train", "dev"):
        if states is None or not states.splits[split]:
            raise InputError(f"no {split} sentences: a probe needs a treebank with train and dev")
    values = states.width * sum(len(states.parses[index]) for index in states.splits["train"])
    scales = np.sqrt(squares / values)
    return replace(states, scales=np.where(scales > 0, scales, 1.0))


@one_thread()
def fit_structural(
    states: WordStates,
    *,
    rank: int = 64,
    seeds: int | Sequence[int] = 3,
    schedule: Schedule = SCHEDULE,
) -> StructuralResult:
    """Train a probe on every layer, choose the layer on train, and score it on dev.

    The first seed's slice of train decides the layer; the other seeds train on that layer only.
    """
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    rank = min(rank, states.width)
    fits = [
        _fit(states, layer, rank, seeds[0], schedule)
        for layer in progress(range(len(states.layers)), STRUCTURAL, unit="layer")
    ]
    by_layer = [fit.validation for fit in fits]
    layer = int(np.argmax(by_layer))
    chosen = [fits[layer]] + [_fit(states, layer, rank, seed, schedule) for seed in seeds[1:]]
    dev = states.splits["dev"]
    scored = [undirected_attachment(states, fit.model, layer, dev) for fit in chosen]
    counts = Counts(np.stack([right for right, _ in scored]), scored[0][1])
    result = ProbeResult(
        STRUCTURAL,
        {UUAS: counts},
        len(states.splits["train"]),
        len(dev),
        seeds,
        [fit.model for fit in chosen],
        [fit.epochs for fit in chosen],
    )
    numbers = np.arange(len(fits))
    table = {"layer": numbers, "validation_uuas": by_layer, "chosen": numbers == layer}
    return StructuralResult(result, layer, pd.DataFrame(table))


def distance_loss(
    predicted: Float[Tensor, "sentence word other"], gold: Float[Tensor, "sentence word other"]
) -> Tensor:
    """Return the mean over sentences of ``sum_ij |d_T(i, j) - d_B(i, j)^2| / n^2``.

    ``gold`` is -1 on padding (Hewitt and Manning, section 2.2).
    """
    inside = gold >= 0
    errors = ((predicted - gold).abs() * inside).sum((1, 2))
    return (errors / inside.sum((1, 2))).mean()


def undirected_attachment(
    states: WordStates, model: StructuralProbe, layer: int, indices: Sequence[int]
) -> tuple[Int[np.ndarray, " sentence"], Int[np.ndarray, " sentence"]]:
    """Return how many gold edges the spanning trees have, and how many there are.

    Punctuation is left out: the trees span the other words, and count their edges only.
    """
    right, total = {}, {}
    with torch.no_grad():
        for group, vectors, _ in states.batches(indices, layer, size=64, order=None):
            for distances, index in zip(model(vectors).numpy(), group, strict=True):
                parse = states.parses[index]
                gold = tree_edges(parse.heads, ~parse.punctuation)
                kept = np.flatnonzero(~parse.punctuation)
                found = spanning_tree(distances[np.ix_(kept, kept)])
                edges = {frozenset((int(kept[i]), int(kept[j]))) for i, j in found}
                right[index], total[index] = len(gold & edges), len(gold)
    return np.array([right[i] for i in indices]), np.array([total[i] for i in indices])


@dataclass(frozen=True)
class _Fit:
    model: StructuralProbe
    epochs: int
    validation: float


def _fit(states: WordStates, layer: int, rank: int, seed: int, schedule: Schedule) -> _Fit:
    """Train on one layer; ``validation`` is the UUAS on the slice that training stopped by."""
    order = np.random.default_rng(seed)
    kept, held = validation_slice(states.splits["train"], schedule.validation_share, order)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = StructuralProbe(states.width, rank)

    def loss(batch: tuple[list[int], Tensor, Tensor]) -> Tensor:
        _, vectors, distances = batch
        return distance_loss(model(vectors), distances)

    def validate() -> float:
        batches = list(states.batches(held, layer, size=64, order=None))
        return sum(loss(batch).item() * len(batch[0]) for batch in batches) / len(held)

    losses = train(
        model,
        batches=lambda: states.batches(kept, layer, size=schedule.batch_size, order=order),
        loss=loss,
        validate=validate,
        epochs=schedule.epochs_for(len(kept)),
        schedule=schedule,
    )
    right, total = undirected_attachment(states, model, layer, held)
    return _Fit(model, len(losses), 100 * right.sum() / max(total.sum(), 1))


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> list[tuple[int, int]]:
    """Return the edges of the minimum spanning tree (Prim), as pairs of word numbers from 0."""
    n = len(distances)
    if n < 2:
        return []
    nearest, link = distances[0].astype(np.float64), np.zeros(n, int)
    outside = np.ones(n, bool)
    outside[0] = False
    edges = []
    for _ in range(n - 1):
        word = int(np.where(outside, nearest, np.inf).argmin())
        edges.append((int(link[word]), word))
        outside[word] = False
        closer = distances[word] < nearest
        nearest[closer], link[closer] = distances[word][closer], word
    return edges


def tree_edges(heads: Int[np.ndarray, " word"], kept: Bool[np.ndarray, " word"]) -> set[frozenset]:
    """Return the edges between ``kept`` words, as pairs of word numbers from 0."""
    return {
        frozenset((word, int(head) - 1))
        for word, head in enumerate(heads)
        if head > 0 and kept[word] and kept[head - 1]
    }


def tree_distances(heads: Int[np.ndarray, " word"]) -> Int[np.ndarray, "word other"]:
    """Return the number of edges between every two words of a dependency tree.

    ``heads`` are 1-based, 0 for the root; several roots are joined through ROOT.  Raises
    ``InputError`` for a cycle.
    """
    n = len(heads)
    distances = np.zeros((n + 1, n + 1), np.int16)  # row 0 is ROOT
    placed, waiting = [0], list(range(1, n + 1))
    while waiting:
        ready = [word for word in waiting if heads[word - 1] in placed]
        if not ready:
            raise InputError(f"the heads of words {waiting} form a cycle; expected a tree")
        for word in ready:
            distances[word, placed] = distances[heads[word - 1], placed] + 1
            distances[placed, word] = distances[word, placed]
            placed.append(word)
        waiting = [word for word in waiting if word not in ready]
    return distances[1:, 1:]
