"""How every model of these notebooks is trained.

Plain PyTorch: AdamW, a step for each batch, gradients clipped to norm 1, a learning rate that
follows a schedule, no random numbers but the seed's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from helpers.errors import ModelError

WARMUP = 0.1  # of all steps
BUCKET = 16  # batches that are sorted by length together
LARGEST_NORM = 1.0  # of a step's gradient

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class TrainingRecipe:
    """How to train."""

    seed: int = 0
    epochs: int = 2
    batch_size: int = 16
    learning_rate: float = 1e-4

    def steps(self, examples: int) -> int:
        """Return the number of steps, a batch each, over so many examples."""
        return self.epochs * -(-examples // self.batch_size)


def gradient_steps(
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    optimizer: Optimizer,
    rates: LRScheduler,
    *,
    what: str,
) -> Iterator[int]:
    """Take a step of ``optimizer`` and of ``rates`` for each batch, and yield its number, from 1.

    Raises:
        ModelError: the loss of ``what`` is not a number.
    """
    parameters = list(trained(model).values())
    for step, batch in enumerate(batches, 1):
        value = loss(batch)
        if not value.isfinite():
            raise ModelError(
                f"{what}: the loss of step {step} is {value.item()}; train with a smaller "
                "learning rate"
            )
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
        optimizer.step()
        rates.step()
        yield step


def shuffled_epochs(recipe: TrainingRecipe, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the members of each batch, epoch by epoch: random, but of similar length."""
    lengths = np.asarray(lengths)
    for epoch in range(recipe.epochs):
        generator = np.random.default_rng([recipe.seed, epoch])
        order = generator.permutation(len(lengths))
        size = BUCKET * recipe.batch_size
        buckets = np.split(order, range(size, len(order), size))
        ordered = np.concatenate([b[np.argsort(lengths[b], kind="stable")] for b in buckets])
        for start in generator.permutation(range(0, len(ordered), recipe.batch_size)):
            yield ordered[start : start + recipe.batch_size].tolist()


def warmup_and_decay(optimizer: Optimizer, steps: int) -> LambdaLR:
    """Let the learning rate rise over the first tenth of the steps and fall to zero after it."""
    rising = max(1, round(WARMUP * steps))
    return LambdaLR(
        optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are trained, by name."""
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}
