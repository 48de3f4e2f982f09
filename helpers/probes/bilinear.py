"""The bilinear probe on hidden states (section 5): the question of Attn, asked of word vectors."""

from __future__ import annotations

import torch
from torch import nn

from helpers.probes.data import Batch, ProbeData
from helpers.probes.training import HeadProbe, Scores, with_root


class BilinearProbe(HeadProbe):
    """A score that is bilinear in one layer's hidden states of the two words.

    The score of a candidate ``j`` for the head of a dependent ``i`` is
    ``(U h_i + a) . (V h_j + b)``, and ``(U h_i + a) . r`` for ROOT.  The sentences, the candidates,
    the softmax and the loss are those of Attn.  The structural probe reads the same states, but it
    is asked for distances in a tree without directions.

    Parameters
    ----------
    data
        The sentences, with the hidden states of the layer that the probe reads.
    """

    rank = 32  # rows of U and V
    learning_rate = 0.002
    weight_decay = 1.0

    def __init__(self, data: ProbeData) -> None:
        super().__init__()
        width = data.states[0].shape[1]
        self.dependent = nn.Linear(width, self.rank)
        self.candidate = nn.Linear(width, self.rank)
        self.root = nn.Parameter(torch.randn(self.rank) * self.rank**-0.25)

    def forward(self, batch: Batch) -> Scores:
        """Score ROOT and every word as the head of each word."""
        states = batch.states
        dependents = self.dependent(states)
        return with_root(dependents @ self.root, dependents @ self.candidate(states).mT)
