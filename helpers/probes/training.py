"""Training and predictions of the probes (section 5): one loop for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.probes.data import Batch, ProbeData, Sentences
from helpers.probes.scores import ProbeCounts, attachment
from helpers.progress import one_thread, progress

# Chosen with the rates of the probes on a held-out tenth of MiniLM's train, and the same for all
# models and treebanks.
EPOCHS = 5
MIN_UPDATES = 300  # a small treebank has more epochs

Probe = TypeVar("Probe", bound=nn.Module)
Scores = Float[Tensor, "sentence dependent candidate"]  # logits


class HeadProbe(nn.Module):
    """A probe that scores the candidate heads of each word.

    Scores are logits: ``p(i|j)`` is their softmax over the candidates ``i`` of the dependent ``j``,
    and the loss is the mean of ``-log p(head | word)`` over words.
    """

    weight_decay = 0.0

    def loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean of ``-log p(head | word)`` over words, in nats."""
        return F.cross_entropy(self(batch).flatten(0, 1), batch.heads.flatten())

    def score(self, data: ProbeData, sentences: Sentences) -> ProbeCounts:
        """Compute the `attachment` of the heads that the probe predicts for some sentences."""
        parses = [data.parses[index] for index in sentences]
        return attachment(parses, predict_heads(self, data, sentences))


def with_root(
    root: Float[Tensor, "sentence word"], words: Float[Tensor, "sentence word other"]
) -> Scores:
    """Put the score of ROOT before those of the words; a word as its own head gets -infinity."""
    itself = torch.eye(words.shape[-1], dtype=torch.bool)
    return torch.cat([root[..., None], words.masked_fill(itself, -torch.inf)], dim=-1)


def seeded(make: Callable[[], Probe], seed: int) -> Probe:
    """Make a probe whose initial parameters have a seed of their own."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return make()


def train(probes: Sequence[Any], data: ProbeData, sentences: Sentences, *, seed: int = 0) -> None:
    """Train probes with AdamW on the same batches, each with its own rate and decay.

    The losses are added.  AdamW updates every parameter on its own, and each probe therefore gets
    the updates that it would get alone; the batches are read once for all of them.

    Parameters
    ----------
    probes
        The probes; their parameters change in place.
    data, sentences
        The data, and the sentences to train on.
    seed
        Seed of the order of the sentences, which is new in each epoch.
    """
    order = np.random.default_rng(seed)
    groups = []
    for probe in probes:
        options = {"lr": probe.learning_rate, "weight_decay": probe.weight_decay}
        groups.append({"params": list(probe.parameters()), **options})
    optimizer = torch.optim.AdamW(groups, fused=True)
    epochs = max(EPOCHS, math.ceil(MIN_UPDATES / len(list(data.batches(sentences)))))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    with one_thread():
        for _ in progress(range(epochs), type(probes[0]).__name__, unit="epoch"):
            for batch in data.batches(order.permutation(sentences).tolist()):
                optimizer.zero_grad()
                torch.stack([probe.loss(batch) for probe in probes]).sum().backward()
                optimizer.step()
            schedule.step()


@torch.no_grad()
def predict_heads(
    probe: HeadProbe, data: ProbeData, sentences: Sentences
) -> list[Int[np.ndarray, " _word"]]:
    """Predict the syntactic head of each word: the candidate with the highest score.

    Parameters
    ----------
    probe
        The probe.
    data, sentences
        The data, and the sentences to parse.

    Returns
    -------
    list of array
        The heads of each sentence, in the order of ``sentences``; 0 is ROOT, words count from 1.
    """
    heads = {}
    with one_thread():
        for batch in data.batches(sentences):
            heads |= zip(batch.sentences, probe(batch).argmax(-1).numpy(), strict=True)
    return [heads[index] for index in sentences]
