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

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Float16, Int
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import SCALE_SENTENCES, Counts, ProbeData
from helpers.probes.training import Schedule, train, validation_slice
from helpers.torch_utils import thread_map

RANK = 64
# With 20 epochs the absolute error on held-out sentences differs by less than 0.2%.
SCHEDULE = Schedule(epochs=8, learning_rate=0.001, batch_size=20)
SMOOTH_BELOW = 0.5  # edges: smaller errors of a distance count by their squares
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


def fit_layers(data: ProbeData, seeds: int = 1) -> tuple[list[list[StructuralProbe]], pd.DataFrame]:
    """Train probes of several seeds on every layer, and choose the layer on train.

    Parameters
    ----------
    data
        The sentences and their hidden states.
    seeds
        Number of probes for each layer, which differ in their start and in the order of sentences.

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
    training, validation = validation_slice(data.splits["train"])
    layers = range(len(data.states))
    distances = {index: tree_distances(data.parses[index].heads) for index in training}
    fit_layer = partial(_fit_layer, data, distances, seeds)
    probes = thread_map(fit_layer, layers, label="structural probe", unit="fit")
    articles = data.articles(validation)
    rows = []
    for layer, by_seed in enumerate(probes):
        estimate = undirected_attachment(data, by_seed, layer, validation).estimate(articles)
        rows.append({"layer": layer, **estimate.columns("validation_uuas")})
    table = pd.DataFrame(rows)
    return probes, table.assign(chosen=table.index == table["validation_uuas"].argmax())


def distance_loss(
    predicted: Float[Tensor, "sentence word other"], gold: Float[Tensor, "sentence word other"]
) -> Tensor:
    """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

    In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
    less half of `SMOOTH_BELOW`, and the scaled square ``error^2 / (2 SMOOTH_BELOW)`` below it.
    """
    return F.smooth_l1_loss(predicted, gold, beta=SMOOTH_BELOW)


def undirected_attachment(
    data: ProbeData, probes: Sequence[StructuralProbe], layer: int, indices: Sequence[int]
) -> Counts:
    """Count the edges of the dependency trees that the predicted trees have (UUAS).

    The predicted tree is the minimum spanning tree of the distances.  Punctuation is left out of
    both.

    Parameters
    ----------
    data
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
    right = np.zeros((len(probes), len(data.parses)), int)
    total = np.zeros(len(data.parses), int)
    for group in data.groups(indices):
        vectors = data.hidden(group, layer)
        with torch.no_grad():
            by_seed = [probe(vectors).numpy() for probe in probes]
        for row, index in enumerate(group):
            parse = data.parses[index]
            is_left_out = parse.punctuation | parse.punctuation[:, None]
            edges = parse.edges()
            total[index] = len(edges[0])
            for seed, distances in enumerate(by_seed):
                tree = spanning_tree(np.where(is_left_out, np.inf, distances[row]))
                right[seed, index] = tree[edges].sum()
    return Counts(right[:, indices], total[indices])


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> Bool[np.ndarray, "word other"]:
    """Mark the pairs of words that the minimum spanning tree joins, in both directions.

    A distance of infinity joins no words.
    """
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
    edges = np.zeros((n + 1, n + 1))
    edges[heads, np.arange(1, n + 1)] = 1
    distances = shortest_path(edges, directed=False, unweighted=True)
    return distances[1:, 1:].astype(np.int16)


def _fit_layer(
    data: ProbeData,
    distances: Mapping[int, Int[np.ndarray, "word other"]],
    seeds: int,
    layer: int,
) -> list[StructuralProbe]:
    """Train a probe of each seed on one layer, on the sentences whose distances are given.

    The probes are trained on vectors along orthonormal axes in which their components are
    uncorrelated.
    """
    products = 0
    for group in data.groups(list(distances)[:SCALE_SENTENCES]):
        flat = data.hidden(group, layer).flatten(0, 1).double()
        products = products + flat.T @ flat
    axes = torch.linalg.eigh(products).eigenvectors.float()
    rotated = {}
    for index in distances:
        states = data.hidden([index], layer) @ axes  # [1, word, axis]
        rotated[index] = states[0].numpy().astype(np.float16)
    return [_fit(data, rotated, distances, axes, seed) for seed in range(seeds)]


def _fit(
    data: ProbeData,
    rotated: Mapping[int, Float16[np.ndarray, "word axis"]],
    distances: Mapping[int, Int[np.ndarray, "word other"]],
    axes: Float[Tensor, "width axis"],
    seed: int,
) -> StructuralProbe:
    """Train on vectors along some axes; return the probe of the vectors themselves.

    Training starts from a projection of the vectors themselves, which does not depend on the signs
    and the order of the axes.
    """
    width = len(axes)
    probe = StructuralProbe(width, min(RANK, width), seed)
    probe.projection.data = probe.projection.data @ axes

    def loss(group: list[int]) -> Tensor:
        vectors = torch.from_numpy(np.stack([rotated[index] for index in group])).float()
        gold = torch.from_numpy(np.stack([distances[index] for index in group])).float()
        return distance_loss(probe(vectors), gold)

    train(probe, data, list(rotated), loss, seed=seed, schedule=SCHEDULE)
    probe.projection.data = probe.projection.data @ axes.T
    return probe
