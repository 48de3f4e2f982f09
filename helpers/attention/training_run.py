"""What every training run here shares: the order of its batches, its learning rate, its folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from helpers.attention.extract import only_one
from helpers.attention.files import share, write_errors

WARMUP = 0.1  # of all steps
BUCKET = 16  # batches that are sorted by length together


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


def write_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a folder that is there whole or not at all, unless another process has.

    Raises:
        StoreError: the disk is full.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.tmp")
    with only_one(folder):
        if folder.is_dir():
            return
        shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
        temporary.mkdir()
        try:
            with write_errors(temporary):
                write(temporary)
                for file in temporary.iterdir():
                    share(file)
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
