"""The training loop that the probes share: Adam, a validation slice, the best epoch kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from helpers.model.parallel import run_jobs

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    The learning rate falls from ``learning_rate`` to zero along a half cosine over ``epochs``
    (more of them where the data is so small that they would be under ``min_updates`` steps).
    Training stops once ``patience`` epochs in a row have not lowered the validation loss.
    """

    epochs: int = 12
    learning_rate: float = 0.01
    batch_size: int = 32
    patience: int = 3
    min_updates: int = 300
    validation_share: float = 0.1

    def epochs_for(self, sentences: int) -> int:
        """Return the number of epochs over so many training sentences."""
        updates = math.ceil(sentences / self.batch_size)
        return max(self.epochs, math.ceil(self.min_updates / updates))


@dataclass(frozen=True)
class Setting:
    """What a member of a model changes about a schedule, to be chosen on a slice of train.

    ``rate`` multiplies the learning rate.  ``decay`` is the decoupled weight decay of AdamW: a
    step takes away so much of each parameter, times the learning rate.
    """

    rate: float = 1.0
    decay: float = 0.0


def validation_slice(
    indices: Sequence[int], share: float, order: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Split ``indices`` at random into a part to train on and a part to stop by.

    A single sentence is both.
    """
    shuffled = order.permutation(indices).tolist()
    if len(shuffled) < 2:
        return shuffled, shuffled
    held = max(1, round(share * len(shuffled)))
    return shuffled[held:], shuffled[:held]


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, for products so small that threads mostly wait for each other.

    A second thread gains little on an idle machine and costs several times the work on a busy
    one.  One thread also makes the result the same whatever their number elsewhere.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def side_by_side(jobs: Sequence[Callable[[], Result]], label: str) -> list[Result]:
    """Return what the jobs return, in order; as many run at a time as torch has threads.

    Each computes on one thread, so that their number changes no result.
    """

    def with_step(job: Callable[[], Result], step_done: Callable[[], None]) -> Result:
        result = job()
        step_done()
        return result

    counted = [partial(with_step, job) for job in jobs]
    return run_jobs(counted, torch.device("cpu"), label=label, unit="fit", total=len(jobs))


def train(
    model: nn.Module,
    *,
    batches: Callable[[], Iterable[Item]],
    loss: Callable[[Item], Float[Tensor, " member"]],
    validate: Callable[[], Float[Tensor, " member"]],
    epochs: int,
    schedule: Schedule,
    settings: Sequence[Setting] = (),
) -> Float[Tensor, " member"]:
    """Minimise ``loss`` over ``batches()``, called once an epoch, and keep the best epoch.

    A model is one or more *members*, along the first axis of every parameter and loss, that
    learn nothing from each other.  ``validate`` returns each member's loss on held-out data; it
    is left with the parameters of the epoch where that was lowest.  Returns these losses.
    ``settings``, if any, has one for each member.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=schedule.learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best = [parameter.detach().clone() for parameter in model.parameters()]
    lowest = torch.full((len(best[0]),), torch.inf)
    waited = torch.zeros(len(lowest), dtype=torch.long)
    for _ in range(epochs):
        for batch in batches():
            optimizer.zero_grad()
            loss(batch).sum().backward()
            _step(optimizer, settings)
        decay.step()
        with torch.no_grad():
            losses = validate()
        better = (losses <= lowest) & (waited < schedule.patience)
        lowest = torch.where(better, losses, lowest)
        waited = torch.where(better, 0, waited + 1)
        for kept, parameter in zip(best, model.parameters(), strict=True):
            kept[better] = parameter.detach()[better]
        if (waited >= schedule.patience).all():
            break
    for kept, parameter in zip(best, model.parameters(), strict=True):
        parameter.data = kept
    return lowest


@torch.no_grad()
def _step(optimizer: torch.optim.Adam, settings: Sequence[Setting]) -> None:
    """Take a step, at each member's own rate and with its own weight decay."""
    (group,) = optimizer.param_groups
    before = [parameter.clone() for parameter in group["params"]] if settings else []
    optimizer.step()
    rates = torch.tensor([setting.rate for setting in settings])
    decays = torch.tensor([setting.decay for setting in settings]) * group["lr"]
    for parameter, old in zip(group["params"], before, strict=bool(settings)):
        by_member = (-1, *[1] * (parameter.dim() - 1))
        change = parameter - old - decays.view(by_member) * old
        parameter.copy_(old + rates.view(by_member) * change)
