"""The structural probe of Hewitt and Manning (2019), the first row of Table 3 (section 5)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UUAS
from helpers.probes.data import Batch, Parse, ProbeData, Sentences, WordPairs
from helpers.probes.scores import ProbeCounts, count_right
from helpers.progress import one_thread


class StructuralProbe(nn.Module):
    """A linear map B of one layer's hidden states under which squared distances are a tree's.

    ``d_B(h_i, h_j)^2 = |B (h_i - h_j)|^2`` should be the words' distance in the dependency tree.
    The minimum spanning tree of the predicted distances is the parse, without directions.

    Parameters
    ----------
    data
        The sentences, with the hidden states of the layer that the probe reads.

    Attributes
    ----------
    projection
        B.
    """

    rank = 64  # rows of B
    learning_rate = 0.001
    weight_decay = 0.0

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.states[0].shape[1]
        self.projection = nn.Linear(width, self.rank, bias=False)
        # Differences of unit-variance vectors have variance 2 in each dimension.  Training starts
        # from distances of about five edges.
        nn.init.normal_(self.projection.weight, std=(5 / (2 * self.rank * width)) ** 0.5)

    def forward(self, batch: Batch) -> Float[Tensor, "sentence word other"]:
        """Compute the squared distance of every pair of words under B."""
        return self.squared_distances(batch.states)

    def squared_distances(
        self, states: Float[Tensor, "sentence word width"]
    ) -> Float[Tensor, "sentence word other"]:
        """Compute the squared distances of words with these hidden states."""
        mapped = self.projection(states)
        return torch.cdist(mapped, mapped).square()

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the sentences' mean of ``sum_ij loss(d_T(i, j) - d_B(i, j)^2) / n^2``.

        In section 2.2 of Hewitt and Manning the loss is the absolute error.  Here it is that error
        less 1/4, and below an error of 1/2 it is the square of the error.
        """
        return F.smooth_l1_loss(self(batch), batch.distances, beta=0.5)

    @torch.no_grad()
    def score(self, data: ProbeData, sentences: Sentences) -> ProbeCounts:
        """Count the edges of the dependency trees that the predicted trees have (UUAS)."""
        parses = []
        is_found = []
        with one_thread():
            for batch in data.batches(sentences):
                parses += batch.parses
                is_found += map(found_edges, self(batch).numpy(), batch.parses)
        return {UUAS: count_right(parses, is_found)}


def found_edges(
    distances: Float[np.ndarray, "word other"], parse: Parse
) -> Bool[np.ndarray, " edge"]:
    """Find the edges of a dependency tree that the predicted tree has.

    The predicted tree is the minimum spanning tree of the distances.  Punctuation is left out of
    both.
    """
    is_left_out = parse.punctuation | parse.punctuation[:, None]
    return spanning_tree(np.where(is_left_out, np.inf, distances))[parse.edges]


def spanning_tree(distances: Float[np.ndarray, "word other"]) -> WordPairs:
    """Mark the pairs of words that the minimum spanning tree joins, in both directions.

    A distance of infinity joins no words.
    """
    # SciPy takes a distance of zero for no edge.  Adding 1 to all changes no comparison.
    tree = minimum_spanning_tree(distances.astype(np.float64) + 1).toarray() > 0
    return tree | tree.T
