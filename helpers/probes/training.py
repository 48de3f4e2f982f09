"""The loss and the predictions of every probe (section 5), and training by gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import Batch, ProbeData
from helpers.torch_utils import one_thread

Scores = Float[Tensor, "sentence dependent candidate"]


class Schedule(NamedTuple):
    """Length and speed of training.

    Parameters
    ----------
    epochs
        Passes over the data; more if they would give fewer than ``min_updates`` updates.
    learning_rate
        Of Adam, at first; it falls to zero along half a cosine.
    batch_size
        Largest number of sentences of an update.
    min_updates
        Least number of updates.
    """

    epochs: int = 12
    learning_rate: float = 0.01
    batch_size: int = 32
    min_updates: int = 600


def validation_slice(indices: Sequence[int]) -> tuple[list[int], list[int]]:
    """Split sentences at random, always in the same way, into training and validation parts.

    Parameters
    ----------
    indices
        The sentences; a single one is in both parts.

    Returns
    -------
    training, validation
        Both in shuffled order; the second has a tenth of the sentences, and at least one.
    """
    shuffled = np.random.default_rng(0).permutation(indices).tolist()
    if len(shuffled) < 2:
        return shuffled, shuffled
    size = max(1, round(0.1 * len(shuffled)))
    return shuffled[size:], shuffled[:size]


def candidate_scores(model: nn.Module, data: ProbeData, batch: Batch) -> Scores:
    """Compute the logit of every candidate head of every word.

    Parameters
    ----------
    model
        A probe.
    data, batch
        Sentences and their maps.

    Returns
    -------
    Tensor
        ``[sentence, dependent, candidate]``, where candidate 0 is ROOT; minus infinity for a word
        as its own head.
    """
    itself = F.pad(torch.eye(batch.heads.shape[1], dtype=torch.bool), (1, 0))
    return model(data, batch).masked_fill(itself, -torch.inf)


def loss(
    model: nn.Module, data: ProbeData, batch: Batch, *, control_task: bool = False
) -> Float[Tensor, ""]:
    """Sum ``-log p(head | word)`` over the words of a batch, in nats and float64.

    With ``control_task`` the heads are those of the control task.
    """
    scores = candidate_scores(model, data, batch).double()
    heads = batch.control if control_task else batch.heads
    return F.cross_entropy(scores.flatten(0, 1), heads.flatten(), reduction="sum")


@torch.no_grad()
def predicted_heads(
    model: nn.Module, data: ProbeData, indices: Sequence[int]
) -> list[Int[np.ndarray, " word"]]:
    """Predict the syntactic head of each word: the candidate with the largest score.

    Parameters
    ----------
    model
        A probe.
    data
        The sentences and their maps.
    indices
        Positions of the sentences to parse.

    Returns
    -------
    list of array
        The heads of each sentence, in the order of ``indices``; 0 is ROOT, words count from 1.
    """
    heads = {}
    with one_thread():
        for batch in data.batches(indices):
            best = candidate_scores(model, data, batch).argmax(-1).numpy()
            heads.update(zip(batch.indices, best, strict=True))
    return [heads[index] for index in indices]


def train(
    model: nn.Module,
    groups: Callable[[], list[list[int]]],
    loss: Callable[[list[int]], Tensor],
    schedule: Schedule,
) -> None:
    """Train a probe with Adam.

    Parameters
    ----------
    model
        The probe; its parameters change in place.
    groups
        Function that returns the batches of an epoch, newly shuffled.
    loss
        Function of a batch that returns the loss to minimise.
    schedule
        Length and speed of training.
    """
    batches = groups()
    epochs = max(schedule.epochs, math.ceil(schedule.min_updates / len(batches)))
    optimizer = torch.optim.Adam(model.parameters(), lr=schedule.learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in batches:
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()
        decay.step()
        batches = groups()
