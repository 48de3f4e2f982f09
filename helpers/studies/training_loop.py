"""How every model of these notebooks is trained, and how its weights are kept.

Plain PyTorch: AdamW, a step for each batch, gradients clipped to norm 1, a learning rate that
follows a schedule, no random numbers but the seed's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from helpers.errors import ModelError, StoreError
from helpers.paths import seal_broken

WARMUP = 0.1  # of all steps
BUCKET = 16  # batches that are sorted by length together
LARGEST_NORM = 1.0  # of a step's gradient

Batch = TypeVar("Batch")


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


def steps_of(examples: int, *, epochs: int, batch_size: int) -> int:
    """Return the number of batches of all epochs."""
    return epochs * -(-examples // batch_size)


def shuffled_batches(
    lengths: Sequence[int], *, epochs: int, batch_size: int, seed: int
) -> Iterator[list[int]]:
    """Yield the members of each batch, epoch by epoch: random, but of similar length."""
    lengths = np.asarray(lengths)
    for epoch in range(epochs):
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        size = BUCKET * batch_size
        buckets = np.split(order, range(size, len(order), size))
        ordered = np.concatenate([b[np.argsort(lengths[b], kind="stable")] for b in buckets])
        for start in generator.permutation(range(0, len(ordered), batch_size)):
            yield ordered[start : start + batch_size].tolist()


def warmup_and_decay(optimizer: Optimizer, steps: int) -> LambdaLR:
    """Let the learning rate rise over the first tenth of the steps and fall to zero after it."""
    rising = max(1, round(WARMUP * steps))
    return LambdaLR(
        optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are trained, by name."""
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}


def save_weights(model: nn.Module, path: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write the weights that are trained."""
    found = {k: p.detach().to("cpu", dtype).contiguous() for k, p in trained(model).items()}
    save_file(found, path)


def read_weights(parameters: Mapping[str, Tensor], path: Path) -> None:
    """Copy what a training run of this project has saved in its folder into ``parameters``.

    Raises:
        StoreError: the file is damaged, or holds other names or sizes.
    """
    way_out = f"remove the folder {path.parent.name} and run again: it is trained anew"
    try:
        saved = load_file(path)
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path}: {error}; {way_out}") from error
    if seal_broken(path):
        raise StoreError(f"{path}: changed since it was written; {way_out}")
    if {key: tensor.shape for key, tensor in saved.items()} != {
        key: tensor.shape for key, tensor in parameters.items()
    }:
        raise StoreError(f"{path}: not the weights of this model; {way_out}")
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(saved[key])
