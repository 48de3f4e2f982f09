"""Distances + GloVe (section 5): a small network that sees words and distances, no attention."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import Batch, ProbeData
from helpers.probes.training import HeadProbe, Scores, with_root

HIDDEN = 256  # as in the paper's released notebook


class DistancesWords(HeadProbe):
    """One hidden layer over both words' vectors and their distance.

    The input of the hidden layer is ``v_i + v_j + distance features``, where + concatenates and v
    is zero for ROOT.  Its projection is a sum of three terms, two of which are computed once for
    each word.

    Parameters
    ----------
    data
        The sentences with the vectors of their words.
    """

    learning_rate = 0.02

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.vectors.shape[1]
        self.dependent = nn.Linear(width, HIDDEN)
        self.candidate = nn.Linear(width, HIDDEN, bias=False)
        self.distance = nn.Linear(8, HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, 1)

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        candidates = F.pad(batch.vectors, (0, 0, 1, 0))  # ROOT is the first
        distances = self.distance(distance_features(batch.vectors.shape[1]))
        hidden = distances + self.dependent(batch.vectors)[:, :, None]
        hidden += self.candidate(candidates)[:, None]
        # Logistic units are those of tanh up to scale, and are computed in place.
        scores = self.output(hidden.sigmoid_())[..., 0]
        return with_root(scores[..., 0], scores[..., 1:])


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
    features = torch.zeros(words, words + 1, 8)
    features[:, 1:, :2] = torch.stack([offset, -offset], dim=-1).clamp(min=0) / words
    features[:, 1:, 2:7] = (offset[..., None] == torch.arange(-2, 3)).float()
    features[:, 0, -1] = 1
    return features
