"""The bilinear probe on hidden states (section 5): the question of Attn, asked of word vectors.

The score of a candidate ``j`` for the head of a dependent ``i`` is bilinear in one layer's hidden
states of the two words, ``(U h_i + a) . (V h_j + b)``, and ``(U h_i + a) . r`` for ROOT.  The
sentences, the candidates, the softmax and the loss are those of Attn.  The structural probe reads
the same states, but it is asked for distances in a tree without directions.

U and V have ``rank`` rows.  The layer and the rank are chosen on a slice of train that is held out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.metrics.statistics import Real
from helpers.probes.data import ProbeData, Sentences
from helpers.probes.training import (
    Schedule,
    Scores,
    exclude_itself,
    gold_heads,
    scores_of,
    train,
    validation_slice,
)
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
        return bilinear_scores([self], data, indices)[0]


def bilinear_scores(
    probes: Iterable[Any], data: ProbeData, indices: Sentences
) -> Float[Tensor, "layer sentence dependent candidate"]:
    """Compute the scores of probes of several layers, which are otherwise alike."""
    states = data.hidden(indices, [probe.layer for probe in probes])
    dependents = project(states, torch.stack([probe.dependent for probe in probes]))
    candidates = project(states, torch.stack([probe.candidate for probe in probes]))
    root = torch.stack([probe.root for probe in probes])
    roots = root[:, None, None].expand(-1, len(indices), -1, -1)  # [layer, sentence, one, rank]
    return dependents @ torch.cat([roots, candidates], dim=2).mT


def project(
    states: Float[Tensor, "layer sentence word width"],
    weights: Float[Tensor, "layer rank width+1"],
) -> Float[Tensor, "layer sentence word rank"]:
    """Apply the linear map of each layer, whose last column is the bias, to its hidden states."""
    words = states.flatten(1, 2)
    projected = words @ weights[..., :-1].mT + weights[:, None, :, -1]
    return projected.unflatten(1, states.shape[1:3])


def fit_bilinear(data: ProbeData, seed: int, *, layer: int, rank: int) -> BilinearProbe:
    """Train a bilinear probe on one layer: `fit_bilinear_layers` with a single one."""
    (probe,) = fit_bilinear_layers(data, seed, layers=[layer], rank=rank)
    return probe


def fit_bilinear_layers(
    data: ProbeData, seed: int, *, layers: Sequence[int], rank: int
) -> list[BilinearProbe]:
    """Train bilinear probes on train, without the slice that chooses the layer and the rank.

    Parameters
    ----------
    data
        The sentences and their hidden states.
    seed
        Seed of the initial parameters and of the order of sentences.
    layers
        The layer of each probe.  The probes are trained together (`training.train`).
    rank
        As in `BilinearProbe`.
    """
    training, _ = validation_slice(data.splits["train"])
    width = data.hidden(training[:1], layers[:1]).shape[-1]
    probes = [BilinearProbe(layer, width, rank, seed) for layer in layers]
    train(nn.ModuleList(probes), data, training, penalised_loss, seed=seed, schedule=SCHEDULE)
    return probes


def penalised_loss(probes: nn.ModuleList, data: ProbeData, indices: Sentences) -> Tensor:
    """Compute the mean loss of a word with the penalty `L2`, summed over the probes."""
    scores = exclude_itself(bilinear_scores(probes, data, indices)).double()
    gold = gold_heads(data, indices).repeat(len(probes))
    mean_loss = F.cross_entropy(scores.flatten(0, 2), gold)
    squares = sum(parameter.square().sum() for parameter in probes.parameters())
    return len(probes) * mean_loss + L2 / 2 * squares


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
        Rows of probe_layers.csv: ``layer``, ``rank``, ``validation_uas`` in percent (without
        punctuation), its 95% interval over articles ``validation_uas_low`` and
        ``validation_uas_high``, and whether the row is ``chosen``.
    """
    _, validation = validation_slice(data.splits["train"])

    def validation_rows(layers: Sequence[int], rank: int) -> list[dict[str, Real]]:
        rows = []
        for probe in fit_bilinear_layers(data, 0, layers=layers, rank=rank):
            counts = scores_of(probe, data, validation)[UAS_WITHOUT_PUNCTUATION]
            estimate = counts.estimate().columns("validation_uas")
            rows.append({"layer": probe.layer, "rank": rank, **estimate})
        return rows

    with_first_rank = partial(validation_rows, rank=ranks[0])
    label = "layers of the bilinear probe"
    rows_of_groups = thread_map(with_first_rank, data.layer_groups, label=label, unit="group")
    rows = list(chain.from_iterable(rows_of_groups))
    best_layer = int(max(rows, key=itemgetter("validation_uas"))["layer"])
    with_best_layer = partial(validation_rows, [best_layer])
    rows_of_ranks = thread_map(
        with_best_layer, ranks[1:], label="ranks of the bilinear probe", unit="fit"
    )
    table = pd.DataFrame(chain(rows, *rows_of_ranks))
    return table.assign(chosen=table.index == table["validation_uas"].argmax())
