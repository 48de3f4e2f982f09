"""Distances + GloVe (section 5): a small network that sees words and distances, no attention."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import ProbeData, Sentences
from helpers.probes.training import Schedule, Scores, loss, train

DISTANCE_FEATURES = 8
HIDDEN = 256  # as in the paper's released notebook
SCHEDULE = Schedule(epochs=5, learning_rate=0.006, batch_size=8)


class DistancesWordsProbe(nn.Module):
    """One hidden layer over both words' vectors and their distance.

    The input of the hidden layer is ``v_i + v_j + distance features``, where + concatenates and v
    is zero for ROOT.  Its projection is a sum of three terms, two of which are computed once for
    each word.

    Parameters
    ----------
    width
        Dimensions of a word's vector.
    seed
        Seed of the initial parameters.
    """

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def uniform(bound: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        self.dependent = uniform(width**-0.5, width + 1, HIDDEN)  # the last row: a bias
        self.candidate = uniform(width**-0.5, width, HIDDEN)
        glorot = (6 / (DISTANCE_FEATURES + HIDDEN)) ** 0.5  # Glorot and Bengio's
        self.distance = uniform(glorot, DISTANCE_FEATURES, HIDDEN)
        self.output = uniform(HIDDEN**-0.5, HIDDEN)

    def forward(self, data: ProbeData, indices: Sentences) -> Scores:
        """Compute the score of every candidate head of every word."""
        vectors = data.vectors[data.word_numbers(indices)]
        with_root = F.pad(vectors, (0, 0, 1, 0))
        # tanh(x) is 2 sigmoid(2 x) - 1, which torch computes several times as fast on a CPU.  The
        # sums are in place, because allocating arrays of this size takes as long as filling them.
        doubled = distance_features(vectors.shape[1]) @ (2 * self.distance)
        doubled = doubled + (F.pad(vectors, (0, 1), value=1.0) @ (2 * self.dependent))[:, :, None]
        doubled += (with_root @ (2 * self.candidate))[:, None]
        return 2 * (doubled.sigmoid_() @ self.output) - self.output.sum()


@cache
def distance_features(words: int) -> Float[Tensor, "dependent candidate feature"]:
    """Compute the eight distance features of the paper (footnote 4 and its released notebook).

    Parameters
    ----------
    words
        Length of the sentence.

    Returns
    -------
    Tensor
        ``[dependent, candidate, feature]``, where candidate 0 is ROOT.  The first two features are
        how far ahead and how far behind the candidate is, as fractions of the sentence's length.
        The next five mark candidates that are 2 or 1 words behind, the word itself, and 1 or 2
        words ahead.  The last marks ROOT.
    """
    positions = torch.arange(words)
    offset = positions[None, :] - positions[:, None]  # [dependent, candidate]
    features = torch.zeros(words, words + 1, DISTANCE_FEATURES)
    features[:, 1:, :2] = torch.stack([offset, -offset], dim=-1).clamp(min=0) / words
    features[:, 1:, 2:7] = (offset[..., None] == torch.arange(-2, 3)).float()
    features[:, 0, -1] = 1
    return features


def fit_distances(data: ProbeData, seed: int) -> DistancesWordsProbe:
    """Train Distances + GloVe on train; the seed is of its first parameters and of the order."""
    model = DistancesWordsProbe(data.vectors.shape[1], seed)
    train(model, data, data.splits["train"], loss, seed=seed, schedule=SCHEDULE)
    return model
