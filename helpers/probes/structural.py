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

from helpers.errors import InputError
from helpers.probes.data import (
    MAX_BATCH,
    SCALE_SENTENCES,
    BlockBuffer,
    Counts,
    Parse,
    Sentences,
)
from helpers.probes.training import Schedule, train, validation_slice
from helpers.store.store import Example
from helpers.torch_utils import thread_map

RANK = 64
# With 20 epochs the absolute error on held-out sentences differs by less than 0.2%.
SCHEDULE = Schedule(epochs=8, learning_rate=0.001, batch_size=20)
SMOOTH_BELOW = 0.5  # edges: smaller errors of a distance count by their squares
LABEL = "structural probe"
LAYER_COLUMNS = ["layer", "validation_uuas", "validation_uuas_low", "validation_uuas_high"]
TYPICAL_DISTANCE = 5.0  # edges between two words of a sentence, about: where training starts


class StructuralProbe(nn.Module):
    """The linear map B.

    Parameters
    ----------
    width
        Dimensions of a vector.
    rank
        Rows of B, whose parameter is ``projection[rank, width]``.
    seed
        Seed of the initial parameters.
    """

    def __init__(self, width: int, rank: int, seed: int = 0) -> None:
        super().__init__()
        # Differences of unit-variance vectors have variance 2 in each of the `width` dimensions.
        deviation = (TYPICAL_DISTANCE / (2 * rank * width)) ** 0.5
        standard = np.random.default_rng(seed).standard_normal((rank, width), np.float32)
        self.projection = nn.Parameter(torch.from_numpy(standard) * deviation)

    def forward(
        self, vectors: Float[Tensor, "sentence word width"]
    ) -> Float[Tensor, "sentence word other"]:
        """Compute the squared distance of every pair of words under B."""
        mapped = vectors @ self.projection.T
        products = mapped @ mapped.transpose(1, 2)
        norms = products.diagonal(dim1=1, dim2=2)
        return (norms[:, :, None] + norms[:, None, :] - 2 * products).clamp(min=0)


@dataclass
class WordStates(Sentences):
    """Parsed sentences and the hidden states of their words; layer 0 is the embeddings.

    Parameters
    ----------
    distances
        Tree distances of the words of each sentence, in edges.
    states
        Hidden states ``[layer, word, width]`` of each sentence, minus the mean of the sentence, on
        which no difference of two words depends.
    scales
        Standard deviation of each layer on train.  Vectors are divided by it, so that one learning
        rate suits the layers of any model.
    """

    distances: list[Int[np.ndarray, "word other"]] = field(default_factory=list)
    states: BlockBuffer | dict[int, np.ndarray] = field(default_factory=BlockBuffer)
    scales: Float[np.ndarray, " layer"] = field(default_factory=lambda: np.zeros(0))

    def batch(
        self, indices: Sequence[int], layer: int
    ) -> tuple[Float[Tensor, "sentence word width"], Float[Tensor, "sentence word other"]]:
        """Read one layer's vectors of sentences of one length, and their tree distances."""
        vectors = torch.from_numpy(np.stack([self.states[index][layer] for index in indices]))
        distances = torch.from_numpy(np.stack([self.distances[index] for index in indices]))
        return vectors.float() / self.scales[layer], distances.float()


def prepare_states(examples: Iterable[Example]) -> WordStates:
    """Read the hidden states of word-level examples once.

    Parameters
    ----------
    examples
        Examples of a treebank, with train and dev sentences and with hidden states.  These take
        ``2 * (layers + 1) * width`` bytes for each word, and are kept in a temporary file.

    Returns
    -------
    WordStates
        The sentences in the order of the examples.

    Raises
    ------
    InputError
        As in `Sentences.read`, or if an example has no hidden states.
    """
    sentences = WordStates()
    squares = 0
    values = 0
    for example, parse in sentences.read(examples, "states for the structural probe"):
        if example.hidden is None:
            raise InputError(
                f"example {example.index}: no hidden states, which the structural probe reads; "
                "extract this store again with hidden states"
            )
        sentences.distances.append(tree_distances(parse.heads))
        states = example.hidden[:, example.word_positions].astype(np.float32)
        states -= states.mean(1, keepdims=True)
        sentences.states.append(states.astype(np.float16))
        if example.record["split"] == "train":
            squares = squares + np.square(states, dtype=np.float64).sum((1, 2))
            values += states[0].size
    scales = np.sqrt(squares / values)
    sentences.scales = np.where(scales > 0, scales, 1.0)
    return sentences


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
    probes, table = fit_layers(states, seeds)
    best = int(table["chosen"].argmax())
    dev = states.splits["dev"]
    chosen = undirected_attachment(states, probes[best], best, dev)
    embeddings = undirected_attachment(states, probes[0], 0, dev)
    return chosen, embeddings, table


def fit_layers(
    states: WordStates, seeds: int = 1
) -> tuple[list[list[StructuralProbe]], pd.DataFrame]:
    """Train probes of several seeds on every layer, and choose the layer on train.

    Returns
    -------
    probes
        The probes of every layer.
    table
        A row for each layer: ``layer``, ``validation_uuas`` in percent on the slice of train that
        is held out (a mean over seeds), its 95% interval ``validation_uuas_low`` and
        ``validation_uuas_high``, and whether it is ``chosen``.  The interval covers the choice of
        articles and the noise of training (`Counts.estimate`).
    """
    layers = range(len(states.scales))
    training, validation = validation_slice(states.splits["train"])
    fit_layer = partial(_fit_layer, states, sentences=training, seeds=seeds)
    probes = thread_map(fit_layer, layers, label=LABEL, unit="fit")
    articles = np.array([states.parses[index].article for index in validation])
    rows = []
    for layer, by_seed in zip(layers, probes, strict=True):
        counts = undirected_attachment(states, by_seed, layer, validation)
        estimate = counts.estimate(articles)
        rows.append((layer, estimate.value, estimate.low, estimate.high))
    table = pd.DataFrame(rows, columns=LAYER_COLUMNS)
    best = table["validation_uuas"].fillna(0).argmax()
    return probes, table.assign(chosen=table.index == best)


def distance_loss(
    predicted: Float[Tensor, "sentence word other"], gold: Float[Tensor, "sentence word other"]
) -> Tensor:
    """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

    In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
    less half of `SMOOTH_BELOW`, and the scaled square ``error^2 / (2 SMOOTH_BELOW)`` below it.
    """
    return F.smooth_l1_loss(predicted, gold, beta=SMOOTH_BELOW)


def undirected_attachment(
    states: WordStates, probes: Sequence[StructuralProbe], layer: int, indices: Sequence[int]
) -> Counts:
    """Count the edges of the dependency trees that the predicted trees have (UUAS).

    The predicted tree is the minimum spanning tree of the distances.  Punctuation is left out of
    both.

    Parameters
    ----------
    states
        The sentences and their hidden states.
    probes, layer
        The probes of several seeds, and the layer whose vectors they map.
    indices
        Positions of the sentences to score.

    Returns
    -------
    Counts
        Correct edges of each seed, and all edges, of each sentence.
    """
    right = {}
    for group in states.groups(indices, MAX_BATCH):
        vectors, _ = states.batch(group, layer)
        with torch.no_grad():
            by_seed = np.stack([probe(vectors).numpy() for probe in probes], axis=1)
        for index, distances in zip(group, by_seed, strict=True):
            parse = states.parses[index]
            edges = parse.edges()
            trees = [_tree_without_punctuation(of_seed, parse) for of_seed in distances]
            right[index] = [tree[edges].sum() for tree in trees]
    right_counts = np.array([right[index] for index in indices]).T  # [seed, sentence]
    total = np.array([len(states.parses[index].edges()[0]) for index in indices])
    return Counts(right_counts, total)


def _tree_without_punctuation(
    distances: Float[np.ndarray, "word other"], parse: Parse
) -> Bool[np.ndarray, "word other"]:
    """Mark the pairs of words that the spanning tree of the words proper joins."""
    words = np.flatnonzero(~parse.punctuation)
    pairs = np.ix_(words, words)
    tree = np.zeros(distances.shape, bool)
    tree[pairs] = spanning_tree(distances[pairs])
    return tree


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> Bool[np.ndarray, "word other"]:
    """Mark the pairs of words that the minimum spanning tree joins, in both directions."""
    # scipy takes a distance of zero for no edge.  Adding 1 to all changes no comparison.
    tree = minimum_spanning_tree(distances.astype(np.float64) + 1).toarray() > 0
    return tree | tree.T


def tree_distances(heads: Int[np.ndarray, " word"]) -> Int[np.ndarray, "word other"]:
    """Count the edges between every two words of a dependency tree.

    Parameters
    ----------
    heads
        Head of each word, from 1; 0 is ROOT, which joins several roots.
    """
    n = len(heads)
    edges = csr_array((np.ones(n), (heads, np.arange(1, n + 1))), shape=(n + 1, n + 1))
    distances = shortest_path(edges, directed=False, unweighted=True)
    return distances[1:, 1:].astype(np.int16)


def _fit_layer(
    states: WordStates, layer: int, sentences: Sequence[int], seeds: int
) -> list[StructuralProbe]:
    """Train a probe of each seed on one layer."""
    axes = _principal_axes(states, layer, sentences[:SCALE_SENTENCES])
    rotated = _rotated(states, layer, sentences, axes)
    return [_fit(rotated, axes, sentences, seed) for seed in range(seeds)]


def _principal_axes(
    states: WordStates, layer: int, sentences: Sequence[int]
) -> Float[Tensor, "width axis"]:
    """Compute orthonormal axes along which the components of a layer's vectors are uncorrelated."""
    products = 0
    for group in states.groups(sentences, MAX_BATCH):
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
