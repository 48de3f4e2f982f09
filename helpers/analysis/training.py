"""What every probe is asked (section 5), and how those that are small networks learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.analysis.probe_data import Batch, ProbeData
from helpers.work import in_order, progress

Result = TypeVar("Result")
Scores = Float[Tensor, "sentence dependent candidate"]


class Schedule(NamedTuple):
    """How long and how fast to train: the rate falls to zero along a half cosine over ``epochs``.

    There are more of them where they would be under ``min_updates`` steps.
    """

    epochs: int = 12
    learning_rate: float = 0.01
    batch_size: int = 32
    min_updates: int = 600


def validation_slice(
    indices: Sequence[int], order: np.random.Generator, share: float = 0.1
) -> tuple[list[int], list[int]]:
    """Split ``indices`` at random, to train on and to choose by; a single sentence is both."""
    shuffled = order.permutation(indices).tolist()
    if len(shuffled) < 2:
        return shuffled, shuffled
    held = max(1, round(share * len(shuffled)))
    return shuffled[held:], shuffled[:held]


def candidate_scores(model: nn.Module, data: ProbeData, batch: Batch) -> Scores:
    """Return the logits, minus infinity for a word as its own head."""
    itself = F.pad(torch.eye(batch.heads.shape[1], dtype=torch.bool), (1, 0))
    return model(data, batch).masked_fill(itself, -torch.inf)


def loss(
    model: nn.Module, data: ProbeData, batch: Batch, *, control_task: bool = False
) -> Float[Tensor, ""]:
    """Return ``-log p(head | word)`` in nats, summed over the words (in float64)."""
    scores = candidate_scores(model, data, batch).double()
    heads = batch.control if control_task else batch.heads
    return F.cross_entropy(scores.flatten(0, 1), heads.flatten(), reduction="sum")


@torch.no_grad()
def predicted_heads(
    model: nn.Module, data: ProbeData, indices: Sequence[int]
) -> list[Int[np.ndarray, " word"]]:
    """Return each word's likeliest candidate, a sentence an array, in the order of ``indices``."""
    found = {}
    with one_thread():
        for batch in data.batches(indices):
            best = candidate_scores(model, data, batch).argmax(-1).numpy()
            found |= zip(batch.indices, best, strict=True)
    return [found[index] for index in indices]


@contextmanager
def one_thread() -> Iterator[int]:
    """Run torch on one thread, and tell how many there were.

    It is faster for small products, and the result is the same whatever their number elsewhere.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def side_by_side(jobs: Sequence[Callable[[], Result]], label: str) -> list[Result]:
    """Return what the jobs return, in order: as many at a time as torch has threads, one each."""
    results = in_order(jobs, threads=torch.get_num_threads(), ahead=len(jobs))
    return list(progress(results, label, unit="fit", total=len(jobs)))


def train(
    model: nn.Module,
    groups: Callable[[], list[list[int]]],
    loss: Callable[[list[int]], Tensor],
    schedule: Schedule,
) -> None:
    """Minimise the ``loss`` of each group of sentences; ``groups`` are drawn anew each epoch."""
    drawn = groups()
    epochs = max(schedule.epochs, math.ceil(schedule.min_updates / len(drawn)))
    optimizer = torch.optim.Adam(model.parameters(), lr=schedule.learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for group in drawn:
            optimizer.zero_grad()
            loss(group).backward()
            optimizer.step()
        decay.step()
        drawn = groups()
