"""How every model of these notebooks is trained, once, and how its weights are kept.

Plain PyTorch: AdamW, a step for each batch, gradients clipped to norm 1, a learning rate that
follows a schedule, no random numbers but the seed's.  A training computes on one thread, so that
several go side by side and each gives what it gives alone.  What it gives is kept in the cache,
in a folder named by a hash of all that determines it, and found again.  Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from helpers.errors import ModelError
from helpers.model.parallel import StepDone, run_jobs
from helpers.paths import broken_seals, cache_root, write_once

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


class Training(NamedTuple):
    """What is trained once: the folder that keeps it, its number of steps, and what fills that.

    ``write(folder, step_done)`` trains, calls ``step_done`` after each step, and writes all that
    is wanted of it later.
    """

    folder: Path
    steps: int
    write: Callable[[Path, StepDone], None]


def kept_folder(kind: str, name: str, facts: Mapping[str, Any]) -> Path:
    """Return the folder of a training in the cache, there or not.

    ``facts`` is everything that determines what it gives.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return cache_root() / kind / f"{name}--{digest[:10]}"


def train_once(trainings: Iterable[Training], device: torch.device, *, label: str) -> None:
    """Train what is not there whole, side by side, the one with the most steps first.

    Raises:
        StoreError: the disk is full.
    """
    missing = [training for training in trainings if broken_seals(training.folder)]
    run_jobs(
        [partial(_train, one) for one in sorted(missing, key=lambda one: -one.steps)],
        device,
        label=label,
        unit="step",
        total=sum(training.steps for training in missing),
    )


def _train(training: Training, step_done: StepDone) -> None:
    """Train and write the folder, unless another process has."""
    write_once(training.folder, lambda folder: training.write(folder, step_done))


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


class Best:
    """The trained weights of a model where it was best, for training that may get worse again."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = list(trained(model).values())
        self._quality: Any = None
        self._kept: list[Tensor] = []

    def keep(self, quality: Any) -> None:
        """Keep the weights as they are, if ``quality`` is above all before."""
        if self._quality is None or quality > self._quality:
            self._quality = quality
            self._kept = [weights.detach().clone() for weights in self._weights]

    @torch.no_grad()
    def restore(self) -> None:
        """Give the model the kept weights back."""
        for weights, kept in zip(self._weights, self._kept, strict=True):
            weights.copy_(kept)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are trained, by name."""
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights that are trained."""
    save_file({name: p.detach().cpu().contiguous() for name, p in trained(model).items()}, path)


def read_weights(model: nn.Module, path: Path) -> nn.Module:
    """Give a model the weights that were trained, and return it, not to be trained any more."""
    model.load_state_dict(load_file(path), strict=False)  # the others are not in the file
    return model.requires_grad_(False)
