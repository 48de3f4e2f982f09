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
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import (
    SCALE_SENTENCES,
    BlockBuffer,
    Blocks,
    Counts,
    ProbeData,
    Sentences,
    WordPairs,
    count_right,
    stack_seeds,
)
from helpers.probes.training import Schedule, train, validation_slice
from helpers.torch_utils import one_thread, thread_map

RANK = 64
# With 20 epochs the absolute error on held-out sentences differs by less than 0.2%.
SCHEDULE = Schedule(epochs=8, learning_rate=0.001, batch_size=20)
SMOOTH_BELOW = 0.5  # edges: smaller errors of a distance count by their squares
TYPICAL_DISTANCE = 5.0  # edges between two words of a sentence, about: where training starts


class StructuralProbe(nn.Module):
    """The linear map B.

    Parameters
    ----------
    layer
        The layer that the probe reads; 0 is the embeddings.
    width
        Dimensions of a hidden state.
    seed
        Seed of the initial parameters.

    Attributes
    ----------
    projection
        ``[rank, width]``: B, which has at most `RANK` rows.
    """

    def __init__(self, layer: int, width: int, seed: int = 0) -> None:
        super().__init__()
        self.layer = layer
        rank = min(RANK, width)
        # Differences of unit-variance vectors have variance 2 in each of the `width` dimensions.
        deviation = (TYPICAL_DISTANCE / (2 * rank * width)) ** 0.5
        standard = np.random.default_rng(seed).standard_normal((rank, width), np.float32)
        self.projection = nn.Parameter(torch.from_numpy(standard) * deviation)

    def forward(self, data: ProbeData, indices: Sentences) -> Float[Tensor, "sentence word other"]:
        """Compute the squared distance of every pair of words under B."""
        return squared_distances([self], data, indices)[0]


def squared_distances(
    probes: Iterable[StructuralProbe], data: ProbeData, indices: Sentences
) -> Float[Tensor, "layer sentence word other"]:
    """Compute the squared distances of words under probes of several layers."""
    states = data.hidden(indices, [probe.layer for probe in probes])
    projections = torch.stack([probe.projection for probe in probes])
    mapped = (states.flatten(1, 2) @ projections.mT).unflatten(1, states.shape[1:3])
    products = mapped @ mapped.mT
    norms = products.diagonal(dim1=-2, dim2=-1)
    return (norms[..., :, None] + norms[..., None, :] - 2 * products).clamp(min=0)


def fit_layers(data: ProbeData, seeds: int) -> tuple[list[list[StructuralProbe]], pd.DataFrame]:
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
        The probes of every layer; 0 is the embeddings.
    table
        A row for each layer: ``layer``, ``validation_uuas`` in percent on the slice of train that
        is held out (a mean over seeds), its 95% interval ``validation_uuas_low`` and
        ``validation_uuas_high``, and whether it is ``chosen``.  The interval covers the choice of
        articles and the noise of training (`Counts.estimate`).
    """
    _, validation = validation_slice(data.splits["train"])
    fit_group = partial(fit_group_of_layers, data, seeds)
    groups = thread_map(fit_group, data.layer_groups, label="structural probe", unit="group")
    probes = list(chain.from_iterable(groups))
    rows = []
    for layer, by_seed in enumerate(probes):
        counts = stack_seeds([undirected_attachment(data, probe, validation) for probe in by_seed])
        rows.append({"layer": layer, **counts.estimate().columns("validation_uuas")})
    table = pd.DataFrame(rows)
    return probes, table.assign(chosen=table.index == table["validation_uuas"].argmax())


def distance_loss(probes: nn.ModuleList, data: ProbeData, indices: Sentences) -> Float[Tensor, ""]:
    """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

    In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
    less half of `SMOOTH_BELOW`, and the scaled square ``error^2 / (2 SMOOTH_BELOW)`` below it.
    The means of several probes are added.
    """
    distances = squared_distances(probes, data, indices)
    gold = np.stack([data.parses[index].distances for index in indices])
    gold_distances = torch.from_numpy(gold).float().expand_as(distances)
    return len(probes) * F.smooth_l1_loss(distances, gold_distances, beta=SMOOTH_BELOW)


@torch.no_grad()
def undirected_attachment(data: ProbeData, probe: StructuralProbe, indices: Sentences) -> Counts:
    """Count the edges of the dependency trees that the predicted trees have (UUAS).

    The predicted tree is the minimum spanning tree of the distances.  Punctuation is left out of
    both.

    Parameters
    ----------
    data
        The sentences and their hidden states.
    probe
        The probe.
    indices
        Positions of the sentences to score.

    Returns
    -------
    Counts
        Correct edges and all edges of each sentence.
    """
    parses = [data.parses[index] for index in indices]
    is_found = []
    with one_thread():
        distances_of_sentences = [probe(data, [index])[0].numpy() for index in indices]
    for distances, parse in zip(distances_of_sentences, parses, strict=True):
        is_left_out = parse.punctuation | parse.punctuation[:, None]
        tree = spanning_tree(np.where(is_left_out, np.inf, distances))
        is_found.append(tree[parse.edges])
    return count_right(parses, is_found)


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> WordPairs:
    """Mark the pairs of words that the minimum spanning tree joins, in both directions.

    A distance of infinity joins no words.
    """
    # scipy takes a distance of zero for no edge.  Adding 1 to all changes no comparison.
    tree = minimum_spanning_tree(distances.astype(np.float64) + 1).toarray() > 0
    return tree | tree.T


def fit_layer(data: ProbeData, seeds: int, layer: int) -> list[StructuralProbe]:
    """Train a probe of each seed on one layer: `fit_group_of_layers` with a single one."""
    (probes,) = fit_group_of_layers(data, seeds, [layer])
    return probes


def fit_group_of_layers(
    data: ProbeData, seeds: int, layers: Sequence[int]
) -> list[list[StructuralProbe]]:
    """Train a probe of each seed on every layer, on train without the slice that is held out.

    The layers' probes of one seed are trained together (`training.train`), on vectors along
    orthonormal axes in which their components are uncorrelated.  Training starts from a projection
    of the vectors themselves, which does not depend on the signs and the order of the axes.

    Returns
    -------
    list of list of StructuralProbe
        The probes of every layer.
    """
    training, _ = validation_slice(data.splits["train"])
    rotated = BlockBuffer()
    axes = [rotate(data, training, layer, rotated) for layer in layers]
    along_axes = replace(data, states=rotated, scales=np.ones_like(data.scales))
    by_seed = []
    for seed in range(seeds):
        probes = nn.ModuleList()
        for layer, layer_axes in zip(layers, axes, strict=True):
            probe = StructuralProbe(layer, len(layer_axes), seed)
            probe.projection.data = probe.projection.data @ layer_axes
            probes.append(probe)
        train(probes, along_axes, training, distance_loss, seed=seed, schedule=SCHEDULE)
        for probe, layer_axes in zip(probes, axes, strict=True):
            probe.projection.data = probe.projection.data @ layer_axes.T
        by_seed.append(probes)
    return [list(probes) for probes in zip(*by_seed, strict=True)]


def rotate(
    data: ProbeData, sentences: Sentences, layer: int, rotated: Blocks
) -> Float[Tensor, "width axis"]:
    """Write the hidden states along a layer's principal axes to ``rotated``; return the axes."""
    states = [data.hidden([index], [layer])[0, 0] for index in sentences[:SCALE_SENTENCES]]
    words = torch.cat(states).double()
    axes = torch.linalg.eigh(words.T @ words).eigenvectors.float()
    for index in sentences:
        along_axes = data.hidden([index], [layer])[0, 0] @ axes
        rotated[index, layer] = along_axes.numpy().astype(np.float16)
    return axes
