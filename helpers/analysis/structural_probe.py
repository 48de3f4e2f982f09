"""The structural probe of Hewitt and Manning (2019), the first row of Table 3 (section 5).

A linear map B of one layer's word vectors under which squared distances,
``d_B(h_i, h_j)^2 = |B (h_i - h_j)|^2``, are the words' distances in the dependency tree.  The
minimum spanning tree of the predicted distances is the parse, without directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn

from helpers.analysis.probe_data import BATCH, Counts, MapBuffer, Sentences
from helpers.analysis.training import Schedule, side_by_side, train, validation_slice
from helpers.errors import InputError
from helpers.store.store import Example

RANK = 64
SCHEDULE = Schedule(epochs=6, learning_rate=0.001, batch_size=20)
LABEL = "structural probe"
TYPICAL_DISTANCE = 5.0  # edges between two words of a sentence, about: where training starts


class StructuralProbe(nn.Module):
    """The map B: ``projection`` is ``rank`` x ``width``."""

    def __init__(self, width: int, rank: int, seed: int = 0) -> None:
        super().__init__()
        # Differences of unit-variance vectors have variance 2 in each of the `width` dimensions.
        deviation = (TYPICAL_DISTANCE / (2 * rank * width)) ** 0.5
        drawn = torch.randn(rank, width, generator=torch.Generator().manual_seed(seed))
        self.projection = nn.Parameter(drawn * deviation)

    def forward(
        self, vectors: Float[Tensor, "sentence word width"]
    ) -> Float[Tensor, "sentence word other"]:
        """Return the squared distance of every pair of words under B."""
        mapped = vectors @ self.projection.T
        products = mapped @ mapped.transpose(1, 2)
        norms = products.diagonal(dim1=1, dim2=2)
        return (norms[:, :, None] + norms[:, None, :] - 2 * products).clamp(min=0)


@dataclass
class WordStates(Sentences):
    """Parsed sentences and the hidden states of their words; layer 0 is the embeddings.

    ``distances`` are the tree distances; ``states[s]`` is sentence s's [layer, word, width], less
    the sentence's mean, which no difference of words depends on.  ``scales`` are the layers'
    standard deviations on train: divided by them, layers of any model train alike.
    """

    distances: list[Int[np.ndarray, "word other"]] = field(default_factory=list)
    states: MapBuffer = field(default_factory=MapBuffer)
    scales: Float[np.ndarray, " layer"] = field(default_factory=lambda: np.zeros(0))

    def batch(
        self, indices: Sequence[int], layer: int
    ) -> tuple[Float[Tensor, "sentence word width"], Float[Tensor, "sentence word other"]]:
        """Return one layer's vectors of sentences of one length, and their tree distances."""
        vectors = np.stack([self.states[index][layer] for index in indices]).astype(np.float32)
        distances = np.stack([self.distances[index] for index in indices])
        return torch.from_numpy(vectors) / self.scales[layer], torch.from_numpy(distances).float()


def prepare_states(examples: Iterable[Example]) -> WordStates:
    """Read the hidden states of word-level examples once.

    They take ``2 * (layers + 1) * width`` bytes a word; what exceeds the memory budget goes to a
    temporary file.  Errors as in `probe_data.prepare`, and InputError for no hidden states.
    """
    trees, squares, values = WordStates(), 0, 0
    for example, parse in trees.read(examples, "states for the structural probe"):
        if example.hidden is None:
            raise InputError(
                f"example {example.index}: no hidden states, which the structural probe reads; "
                "extract this store again with hidden states"
            )
        trees.distances.append(tree_distances(parse.heads, f"example {example.index}"))
        states = example.hidden[:, example.word_positions].astype(np.float32)
        states -= states.mean(1, keepdims=True)
        trees.states.append(states.astype(np.float16))
        if example.record["split"] == "train":
            squares = squares + np.square(states, dtype=np.float64).sum((1, 2))
            values += states[0].size
    scales = np.sqrt(squares / values)
    trees.scales = np.where(scales > 0, scales, 1.0)
    return trees


def fit_structural(states: WordStates, *, seeds: int) -> tuple[Counts, Counts, pd.DataFrame]:
    """Train probes of several seeds on the layer that `fit_layers` chooses, and score them on dev.

    Returns the edges found at that layer, those at layer 0 (the embeddings, which the control of
    random weights shares), and the table of layers.
    """
    fits, table = fit_layers(states)
    best = int(table["chosen"].argmax())
    others = [partial(_fit, states, best, seed) for seed in range(1, seeds)]
    models = [fits[best], *(model for model, _ in side_by_side(others, LABEL))]
    dev = states.splits["dev"]
    found = [undirected_attachment(states, model, best, dev) for model in models]
    chosen = Counts(np.concatenate([own.right for own in found]), found[0].total)
    return chosen, undirected_attachment(states, fits[0], 0, dev), table


def fit_layers(states: WordStates) -> tuple[list[StructuralProbe], pd.DataFrame]:
    """Train a probe of the first seed on every layer, and choose the layer on train.

    Beside the probes, a table of layer, validation_uuas (percent, on the slice of train that is
    held out) and chosen.
    """
    layers = range(len(states.scales))
    fits = side_by_side([partial(_fit, states, layer, 0) for layer in layers], LABEL)
    probes, uuas = map(list, zip(*fits, strict=True))
    table = pd.DataFrame({"layer": layers, "validation_uuas": uuas})
    return probes, table.assign(chosen=table.index == table["validation_uuas"].fillna(0).argmax())


def distance_loss(
    predicted: Float[Tensor, "sentence word other"], gold: Float[Tensor, "sentence word other"]
) -> Tensor:
    """Return the sentences' mean ``sum_ij |d_T(i, j) - d_B(i, j)^2| / n^2`` (their section 2.2)."""
    return (predicted - gold).abs().mean()


def undirected_attachment(
    states: WordStates, model: StructuralProbe, layer: int, indices: Sequence[int]
) -> Counts:
    """Count the edges of each sentence's tree, without punctuation, that the spanning tree has."""
    found = {}
    with torch.no_grad():
        for group in states.groups(indices, BATCH):
            vectors, _ = states.batch(group, layer)
            for distances, index in zip(model(vectors).numpy(), group, strict=True):
                parse = states.parses[index]
                kept, heads = np.flatnonzero(~parse.punctuation), parse.heads
                tree = np.zeros(distances.shape, bool)
                tree[np.ix_(kept, kept)] = spanning_tree(distances[np.ix_(kept, kept)])
                edges = kept[(heads[kept] > 0) & ~parse.punctuation[heads[kept] - 1]]
                found[index] = tree[edges, heads[edges] - 1].sum(), len(edges)
    right, total = np.array([found[index] for index in indices]).T
    return Counts(right[None], total)


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> Bool[np.ndarray, "word other"]:
    """Return which pairs of words the minimum spanning tree joins, in both directions."""
    # A distance of zero would be no edge to scipy; the same sum for all changes no comparison.
    tree = minimum_spanning_tree(distances.astype(np.float64) + 1).toarray() > 0
    return tree | tree.T


def tree_distances(heads: Int[np.ndarray, " word"], where: str) -> Int[np.ndarray, "word other"]:
    """Return the number of edges between every two words of a dependency tree.

    ``heads`` are 1-based, 0 for the root; roots are joined through ROOT.  InputError for a cycle.
    """
    n = len(heads)
    edges = csr_array((np.ones(n), (heads, np.arange(1, n + 1))), shape=(n + 1, n + 1))
    distances = shortest_path(edges, directed=False, unweighted=True)
    lost = np.flatnonzero(np.isinf(distances[0])).tolist()
    if lost:
        raise InputError(f"{where}: the heads of words {lost} form a cycle; expected a tree")
    return distances[1:, 1:].astype(np.int16)


def _fit(states: WordStates, layer: int, seed: int) -> tuple[StructuralProbe, float]:
    """Train on one layer; return the probe, and its UUAS on a slice of train that is held out."""
    order = np.random.default_rng(seed)
    kept, held = validation_slice(states.splits["train"], order)
    width = states.states[0].shape[-1]
    model = StructuralProbe(width, min(RANK, width), seed)

    def loss(group: list[int]) -> Tensor:
        vectors, distances = states.batch(group, layer)
        return distance_loss(model(vectors), distances)

    train(model, lambda: states.groups(kept, SCHEDULE.batch_size, order), loss, SCHEDULE)
    return model, float(undirected_attachment(states, model, layer, held).by_seed[0])
