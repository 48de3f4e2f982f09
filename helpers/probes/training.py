"""Training, predictions and scores of the probes (section 5): one loop for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION
from helpers.metrics.statistics import Clusters, Estimate, ratio, weighted_ratios, with_seed_noise
from helpers.probes.data import Batch, Parse, ProbeData, Sentences, head_matrix
from helpers.progress import one_thread, progress

UAS = "UAS"
UNDIRECTED = "UAS, undirected"  # comparable with UUAS
CONTROL_TASK = "control task"
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
        return F.cross_entropy(self(batch).flatten(0, 1), batch.stacked("heads").flatten())

    def score(self, data: ProbeData, sentences: Sentences) -> ProbeCounts:
        """Compute the `attachment` of the heads that the probe predicts for some sentences."""
        return attachment(data.parses_of(sentences), predict_heads(self, data, sentences))


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


@dataclass(frozen=True)
class Counts:
    """Correct attachments in each sentence.

    Parameters
    ----------
    right
        Number of correct attachments of the probe of each seed.
    total
        Number of attachments.
    articles
        The article of each sentence.
    """

    right: Int[np.ndarray, "seed sentence"]
    total: Int[np.ndarray, " sentence"]
    articles: Shaped[np.ndarray, " sentence"]

    @property
    def by_seed(self) -> Float[np.ndarray, " seed"]:
        """The score of each seed in percent; NaN where there is nothing to attach."""
        return 100 * self.right.sum(1) / (self.total.sum() or np.nan)

    @property
    def by_article(self) -> tuple[Clusters, Clusters]:
        """Numbers of correct attachments (a mean over seeds) and of attachments, by article."""
        owner = np.unique(self.articles, return_inverse=True)[1]
        return np.bincount(owner, self.right.mean(0)), np.bincount(owner, self.total)

    def estimate(self) -> Estimate:
        """Estimate the percentage that is right, a mean over seeds, with its 95% interval.

        The interval covers the choice of articles, by a bootstrap over them, and the noise of
        training: see `with_seed_noise`.
        """
        right, total = self.by_article
        return with_seed_noise(ratio(100 * right, total), self.by_seed)

    def minus(self, subtrahend: Counts) -> Estimate:
        """Estimate the difference from another probe's percentage, with its 95% interval.

        The bootstrap gives both probes the same articles.  The noise of training is that of both.
        """
        right, total = np.stack([self.by_article, subtrahend.by_article], axis=-1)
        over_articles = weighted_ratios(100 * right, total, [1, -1])
        return with_seed_noise(over_articles, self.by_seed, subtrahend.by_seed)


ProbeCounts = dict[str, Counts]  # by metric


def count_right(parses: Sequence[Parse], is_right: Sequence[Bool[np.ndarray, " _case"]]) -> Counts:
    """Count the cases of each sentence, for example its words, and those that are right."""
    right = np.array([*map(np.sum, is_right)])
    total = np.array([*map(len, is_right)])
    return Counts(right[None], total, np.array([parse.article for parse in parses]))


def stack_seeds(results: Sequence[ProbeCounts]) -> ProbeCounts:
    """Stack the results of probes of several seeds on the same sentences."""
    return {
        metric: replace(counts, right=np.concatenate([result[metric].right for result in results]))
        for metric, counts in results[0].items()
    }


def with_selectivity(result: ProbeCounts, control_task: Counts) -> ProbeCounts:
    """Add the control task, and selectivity: UAS minus its accuracy, both without punctuation.

    In the control task, too, words are counted without punctuation (Hewitt and Liang 2019, section
    2.2).
    """
    attached = result[UAS_WITHOUT_PUNCTUATION]
    selectivity = replace(attached, right=attached.right - control_task.right)
    return {**result, CONTROL_TASK: control_task, "selectivity": selectivity}


def attachment(parses: Sequence[Parse], heads: Sequence[Int[np.ndarray, " _word"]]) -> ProbeCounts:
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
    by_metric = {UAS: [], UAS_WITHOUT_PUNCTUATION: [], UNDIRECTED: []}
    for predicted, parse in zip(heads, parses, strict=True):
        is_right = predicted == parse.heads
        is_link = head_matrix(predicted)
        by_metric[UAS].append(is_right)
        by_metric[UAS_WITHOUT_PUNCTUATION].append(is_right[~parse.punctuation])
        by_metric[UNDIRECTED].append((is_link | is_link.T)[parse.edges])
    return {metric: count_right(parses, is_right) for metric, is_right in by_metric.items()}
