"""The bilinear probe on hidden states (section 5): the question of Attn, asked of word vectors.

The score of a candidate ``j`` for the head of a dependent ``i`` is bilinear in one layer's hidden
states of the two words, ``(U h_i + a) . (V h_j + b)``, and ``(U h_i + a) . r`` for ROOT.  The
sentences, the candidates, the softmax and the loss are those of Attn.  The structural probe reads
the same states, but it is asked for distances in a tree without directions.

U and V have ``rank`` rows.  The layer and the rank are chosen on a slice of train that is held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.metrics.statistics import Real
from helpers.probes.data import ProbeData, Sentences
from helpers.probes.training import Schedule, Scores, loss, scores_of, train, validation_slice
from helpers.torch_utils import thread_map

RANKS = (16, 32, 64)  # the layer is chosen with the first
L2 = 0.03  # of: mean loss + L2 / 2 * sum(parameters ** 2)
SCHEDULE = Schedule(epochs=8, learning_rate=0.003, batch_size=20)


class BilinearProbe(nn.Module):
    """The bilinear score of every candidate head of every word.

    Parameters
    ----------
    layer
        The layer that the probe reads; 0 is the embeddings.
    width
        Dimensions of a hidden state.
    rank
        Dimensions in which the two words are compared.
    seed
        Seed of the initial parameters.

    Attributes
    ----------
    dependent, candidate
        ``[rank, width + 1]``: U and V, with their biases a and b last.
    root
        ``[rank]``: the vector r of ROOT.
    """

    dependent: nn.Parameter
    candidate: nn.Parameter

    def __init__(self, layer: int, width: int, rank: int, seed: int) -> None:
        super().__init__()
        self.layer = layer
        generator = np.random.default_rng(seed)
        deviation = (width * rank**0.5) ** -0.5  # of scores with about unit variance
        for name in ("dependent", "candidate"):
            initial = deviation * generator.standard_normal((rank, width + 1), np.float32)
            initial[:, -1] = 0
            self.register_parameter(name, nn.Parameter(torch.from_numpy(initial)))
        initial = rank**-0.25 * generator.standard_normal(rank, np.float32)
        self.root = nn.Parameter(torch.from_numpy(initial))

    def forward(self, data: ProbeData, indices: Sentences) -> Scores:
        """Compute the score of every candidate head of every word."""
        states = F.pad(data.hidden(indices, self.layer), (0, 1), value=1.0)
        dependents = states @ self.dependent.T  # [sentence, dependent, rank]
        candidates = states @ self.candidate.T
        root = self.root.expand(len(states), 1, -1)
        return dependents @ torch.cat([root, candidates], dim=1).transpose(1, 2)


def fit_bilinear(data: ProbeData, seed: int, *, layer: int, rank: int) -> BilinearProbe:
    """Train a bilinear probe on train, without the slice that chooses the layer and the rank.

    Parameters
    ----------
    data
        The sentences and their hidden states.
    seed
        Seed of the initial parameters and of the order of sentences.
    layer, rank
        As in `BilinearProbe`.
    """
    training, _ = validation_slice(data.splits["train"])
    width = data.hidden(training[:1], layer).shape[-1]
    probe = BilinearProbe(layer, width, rank, seed)
    train(probe, data, training, penalised_loss, seed=seed, schedule=SCHEDULE)
    return probe


def penalised_loss(probe: BilinearProbe, data: ProbeData, indices: Sentences) -> Tensor:
    """Compute the mean loss of a word with the penalty `L2`."""
    squares = sum(parameter.square().sum() for parameter in probe.parameters())
    return loss(probe, data, indices) + L2 / 2 * squares


def choose_layer_and_rank(data: ProbeData, ranks: Sequence[int] = RANKS) -> pd.DataFrame:
    """Choose the layer with the first rank, and then the rank, on a held-out slice of train.

    Parameters
    ----------
    data
        The sentences and their hidden states.
    ranks
        The candidates.

    Returns
    -------
    DataFrame
        The table bilinear_layers.csv: ``layer``, ``rank``, ``validation_uas`` in percent (without
        punctuation), its 95% interval over articles ``validation_uas_low`` and
        ``validation_uas_high``, and whether the row is ``chosen``.
    """
    _, validation = validation_slice(data.splits["train"])

    def validation_row(layer: int, rank: int) -> dict[str, Real]:
        probe = fit_bilinear(data, 0, layer=layer, rank=rank)
        counts = scores_of(probe, data, validation)[UAS_WITHOUT_PUNCTUATION]
        return {"layer": layer, "rank": rank, **counts.estimate().columns("validation_uas")}

    with_first_rank = partial(validation_row, rank=ranks[0])
    layers = range(data.layers + 1)
    rows = thread_map(with_first_rank, layers, label="layers of the bilinear probe", unit="fit")
    best_layer = int(max(rows, key=itemgetter("validation_uas"))["layer"])
    with_best_layer = partial(validation_row, best_layer)
    rows += thread_map(with_best_layer, ranks[1:], label="ranks of the bilinear probe", unit="fit")
    table = pd.DataFrame(rows)
    return table.assign(chosen=table.index == table["validation_uas"].argmax())
