"""The structural probe of Hewitt and Manning (2019), the first row of Table 3 (section 5).

A linear map B of one layer's word vectors under which squared distances,
``d_B(h_i, h_j)^2 = |B (h_i - h_j)|^2``, are the words' distances in the dependency tree.  The
minimum spanning tree of the predicted distances is the parse, without directions.

Two choices make the scores the same on every processor, to within a few edges.  The loss is smooth
where a predicted distance meets the true one, whereas the corner of the absolute error turned
rounding errors of 1e-6 into parameters that differed by 8%.  The vectors are trained on in their
principal axes, in which Adam converges in half as many epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import BATCH, SAMPLE, Counts, MapBuffer, Sentences
from helpers.analysis.training import Schedule, side_by_side, train, validation_slice
from helpers.errors import InputError
from helpers.store.store import Example

RANK = 64
# With 20 epochs the absolute error on held-out sentences differs by less than 0.2%.
SCHEDULE = Schedule(epochs=8, learning_rate=0.001, batch_size=20)
SMOOTH_BELOW = 0.5  # edges: smaller errors of a distance count by their squares
LABEL = "structural probe"
LAYER_COLUMNS = ["layer", "validation_uuas", "validation_uuas_low", "validation_uuas_high"]
TYPICAL_DISTANCE = 5.0  # edges between two words of a sentence, about: where training starts


class StructuralProbe(nn.Module):
    """The map B: ``projection`` is ``rank`` x ``width``."""

    def __init__(self, width: int, rank: int, seed: int = 0) -> None:
        super().__init__()
        # Differences of unit-variance vectors have variance 2 in each of the `width` dimensions.
        deviation = (TYPICAL_DISTANCE / (2 * rank * width)) ** 0.5
        standard = np.random.default_rng(seed).standard_normal((rank, width), np.float32)
        self.projection = nn.Parameter(torch.from_numpy(standard) * deviation)

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
        vectors = torch.from_numpy(np.stack([self.states[index][layer] for index in indices]))
        distances = torch.from_numpy(np.stack([self.distances[index] for index in indices]))
        return vectors.float() / self.scales[layer], distances.float()


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
    """Train probes on every layer, choose a layer on train, and score its probes on dev.

    Parameters
    ----------
    states
        Parsed sentences and their hidden states.
    seeds
        Number of probes for each layer, which differ in their start and in the order of sentences.

    Returns
    -------
    chosen
        Edges found on dev at the chosen layer, by every seed.
    embeddings
        Edges found on dev at layer 0, which the control of random weights shares.
    table
        The table of layers: see `fit_layers`.
    """
    probes, table = _fit_every_layer(states, seeds)
    best = int(table["chosen"].argmax())
    dev = states.splits["dev"]
    chosen = _attachment_by_seed(states, probes[best], best, dev)
    embeddings = _attachment_by_seed(states, probes[0], 0, dev)
    return chosen, embeddings, table


def fit_layers(states: WordStates) -> tuple[list[StructuralProbe], pd.DataFrame]:
    """Train one probe on every layer, and choose the layer on train.

    Returns
    -------
    probes
        The probe of every layer.
    table
        A row for each layer: ``layer``, ``validation_uuas`` in percent on the slice of train that
        is held out (a mean over seeds), its 95% interval ``validation_uuas_low`` and
        ``validation_uuas_high``, and whether it is ``chosen``.  The interval covers the choice of
        articles and the noise of training (`Counts.estimate`).
    """
    probes, table = _fit_every_layer(states, 1)
    return [by_seed[0] for by_seed in probes], table


def distance_loss(
    predicted: Float[Tensor, "sentence word other"], gold: Float[Tensor, "sentence word other"]
) -> Tensor:
    """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

    In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
    less half of `SMOOTH_BELOW`, and the scaled square ``error^2 / (2 SMOOTH_BELOW)`` below it.
    """
    return F.smooth_l1_loss(predicted, gold, beta=SMOOTH_BELOW)


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


def _fit_every_layer(
    states: WordStates, seeds: int
) -> tuple[list[list[StructuralProbe]], pd.DataFrame]:
    """Train probes of several seeds on every layer; return them by layer, and the table."""
    layers = range(len(states.scales))
    kept, held = validation_slice(states.splits["train"], np.random.default_rng(0))
    jobs = [partial(_fit_layer, states, layer, kept, seeds) for layer in layers]
    probes = side_by_side(jobs, LABEL)
    articles = np.array([states.parses[index].article for index in held])
    rows = []
    for layer, by_seed in zip(layers, probes, strict=True):
        estimate = _attachment_by_seed(states, by_seed, layer, held).estimate(articles)
        rows.append((layer, *estimate))
    table = pd.DataFrame(rows, columns=LAYER_COLUMNS)
    best = table["validation_uuas"].fillna(0).argmax()
    return probes, table.assign(chosen=table.index == best)


def _fit_layer(
    states: WordStates, layer: int, sentences: Sequence[int], seeds: int
) -> list[StructuralProbe]:
    """Train a probe of each seed on one layer."""
    axes = _principal_axes(states, layer, sentences[:SAMPLE])
    rotated = _rotated(states, layer, sentences, axes)
    return [_fit(rotated, axes, sentences, seed) for seed in range(seeds)]


def _principal_axes(
    states: WordStates, layer: int, sentences: Sequence[int]
) -> Float[Tensor, "width axis"]:
    """Compute orthonormal axes along which the components of a layer's vectors are uncorrelated."""
    products = 0
    for group in states.groups(sentences, BATCH):
        vectors, _ = states.batch(group, layer)
        flat = vectors.flatten(0, 1).double()
        products = products + flat.T @ flat
    return torch.linalg.eigh(products).eigenvectors.float()


def _rotated(
    states: WordStates, layer: int, sentences: Sequence[int], axes: Float[Tensor, "width axis"]
) -> WordStates:
    """Return one layer's vectors along some axes, as the only layer of these sentences."""
    blocks = {}
    for index in sentences:
        vectors, _ = states.batch([index], layer)
        blocks[index] = (vectors @ axes).numpy().astype(np.float16)  # [layer, word, axis]
    return replace(states, states=blocks, scales=np.ones(1))


def _fit(
    rotated: WordStates, axes: Float[Tensor, "width axis"], sentences: Sequence[int], seed: int
) -> StructuralProbe:
    """Train on vectors along some axes; return the probe of the vectors themselves.

    Training starts from a projection of the vectors themselves, which does not depend on the signs
    and the order of the axes.
    """
    order = np.random.default_rng(seed)
    width = len(axes)
    probe = StructuralProbe(width, min(RANK, width), seed)
    probe.projection.data = probe.projection.data @ axes

    def loss(group: list[int]) -> Tensor:
        vectors, distances = rotated.batch(group, 0)
        return distance_loss(probe(vectors), distances)

    train(probe, lambda: rotated.groups(sentences, SCHEDULE.batch_size, order), loss, SCHEDULE)
    probe.projection.data = probe.projection.data @ axes.T
    return probe


def _attachment_by_seed(
    states: WordStates, probes: Sequence[StructuralProbe], layer: int, indices: Sequence[int]
) -> Counts:
    """Count the edges found in each sentence by the probes of several seeds."""
    counts = [undirected_attachment(states, probe, layer, indices) for probe in probes]
    right = np.concatenate([count.right for count in counts])
    return Counts(right, counts[0].total)
