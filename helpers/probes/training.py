"""The loss and the predictions of every probe (section 5), and training by gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.probes.data import (
    Counts,
    Parse,
    ProbeData,
    Sentences,
    count_right,
    head_matrix,
)
from helpers.settings import quick_profile
from helpers.torch_utils import one_thread

UAS = "UAS"
UNDIRECTED = "UAS, undirected"  # comparable with UUAS
ATTACHMENTS = (UAS, UAS_WITHOUT_PUNCTUATION, UNDIRECTED)
MIN_UPDATES = 600  # of training by gradient steps
QUICK_MIN_UPDATES = 60

HeadsOfSentences = list[Int[np.ndarray, " _word"]]  # 0 is ROOT, words count from 1
Scores = Float[Tensor, "sentence dependent candidate"]
Loss = Callable[[Any, ProbeData, list[int]], Tensor]  # of a batch of sentences


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
        Least number of updates.  None: `MIN_UPDATES`, fewer in the quick profile.
    """

    epochs: int
    learning_rate: float
    batch_size: int
    min_updates: int | None = None


def shuffled(indices: Sentences) -> list[int]:
    """Shuffle sentences, always in the same way."""
    return np.random.default_rng(0).permutation(indices).tolist()


def validation_slice(indices: Sentences) -> tuple[list[int], list[int]]:
    """Split sentences at random, always in the same way, into training and validation parts.

    Both are in shuffled order; the second has a tenth of the sentences, and at least one.
    """
    order = shuffled(indices)
    size = max(1, round(0.1 * len(order)))
    return order[size:], order[:size]


def candidate_scores(model: nn.Module, data: ProbeData, indices: Sentences) -> Scores:
    """Compute the logit of every candidate head of every word.

    Parameters
    ----------
    model
        A probe.
    data, indices
        The data, and the positions of sentences of one length.

    Returns
    -------
    Tensor
        ``[sentence, dependent, candidate]``, where candidate 0 is ROOT; minus infinity for a word
        as its own head.
    """
    return exclude_itself(model(data, indices))


def exclude_itself(
    scores: Float[Tensor, "*layer sentence dependent candidate"],
) -> Float[Tensor, "*layer sentence dependent candidate"]:
    """Set the logit of each word as its own head to minus infinity."""
    itself = F.pad(torch.eye(scores.shape[-2], dtype=torch.bool), (1, 0))
    return scores.masked_fill(itself, -torch.inf)


def loss(
    model: nn.Module, data: ProbeData, indices: Sentences, reduction: str = "mean"
) -> Float[Tensor, ""]:
    """Compute the mean of ``-log p(head | word)`` over words (or "sum"), in nats and float64."""
    scores = candidate_scores(model, data, indices).double()
    return F.cross_entropy(scores.flatten(0, 1), gold_heads(data, indices), reduction=reduction)


def gold_heads(data: ProbeData, indices: Sentences) -> Int[Tensor, " word"]:
    """Join the syntactic heads of the words of some sentences."""
    return torch.from_numpy(np.concatenate([data.parses[index].heads for index in indices]))


@torch.no_grad()
def predicted_heads(model: nn.Module, data: ProbeData, indices: Sentences) -> HeadsOfSentences:
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
    with one_thread():
        scores = [candidate_scores(model, data, [index])[0] for index in indices]
    return [sentence_scores.argmax(-1).numpy() for sentence_scores in scores]


def scores_of(model: nn.Module, data: ProbeData, indices: Sentences) -> dict[str, Counts]:
    """Compute the `attachment` of the heads that a probe predicts for some sentences."""
    parses = [data.parses[index] for index in indices]
    return attachment(parses, predicted_heads(model, data, indices))


def attachment(parses: Sequence[Parse], heads: HeadsOfSentences) -> dict[str, Counts]:
    """Count the correct attachments of each sentence.

    Parameters
    ----------
    parses
        The sentences' parses.
    heads
        The predicted heads of each sentence; 0 is ROOT, words count from 1.

    Returns
    -------
    dict of Counts
        Correct heads with and without punctuation, and edges without punctuation: an edge between
        two words is found if either is the predicted head of the other, as UUAS counts it.
    """
    by_metric = {metric: [] for metric in ATTACHMENTS}
    for predicted, parse in zip(heads, parses, strict=True):
        is_right = predicted == parse.heads
        is_link = head_matrix(predicted)
        by_metric[UAS].append(is_right)
        by_metric[UAS_WITHOUT_PUNCTUATION].append(is_right[~parse.punctuation])
        by_metric[UNDIRECTED].append((is_link | is_link.T)[parse.edges])
    return {metric: count_right(parses, is_right) for metric, is_right in by_metric.items()}


def train(
    model: nn.Module,
    data: ProbeData,
    sentences: Sentences,
    loss: Loss,
    *,
    seed: int,
    schedule: Schedule,
) -> None:
    """Train a probe with Adam, or several probes together.

    Adam updates every parameter on its own.  If the loss is the sum of the probes' losses, each
    probe therefore gets the updates that it would get alone, to within rounding errors.  Probes
    that differ in their layer share the batches, and their products are computed together.

    Parameters
    ----------
    model
        The probe, or a list of probes; the parameters change in place.
    data, sentences
        The data, and the positions of the sentences to train on.
    loss
        Function of the probe, the data and the positions of a batch: the loss to minimise.
    seed
        Seed of the order of the sentences, which is new in each epoch.
    schedule
        Length and speed of training.
    """
    order = np.random.default_rng(seed)
    n_batches = len(data.groups(sentences, schedule.batch_size))
    min_updates = schedule.min_updates
    if min_updates is None:
        min_updates = QUICK_MIN_UPDATES if quick_profile() else MIN_UPDATES
    epochs = max(schedule.epochs, math.ceil(min_updates / n_batches))
    optimizer = torch.optim.Adam(model.parameters(), lr=schedule.learning_rate, fused=True)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        batches = data.groups(order.permutation(sentences).tolist(), schedule.batch_size)
        order.shuffle(batches)
        for batch in batches:
            optimizer.zero_grad()
            loss(model, data, batch).backward()
            optimizer.step()
        decay.step()
