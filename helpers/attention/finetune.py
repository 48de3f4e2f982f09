"""Fine-tuning an encoder on a task, once: what it gives is kept in the cache and found again.

Plain PyTorch: AdamW, a learning rate that rises over the first tenth of the steps and falls to
zero over the others, gradients clipped to norm 1.  A run computes on one thread and needs no
random numbers but its seed's, so several runs go side by side and each gives what it gives
alone, on any number of threads.

A run's folder is named by a hash of all that determines it.  It is written under another name
and renamed when whole: an interrupted run leaves nothing and starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.attention.classify import (
    BATCH_SIZE,
    Classifier,
    batches,
    new_classifier,
    padded_batch,
    predict,
    task_inputs,
)
from helpers.attention.finetuned import (
    FACTS,
    FINAL,
    HISTORY,
    FineTuned,
    Recipe,
    checkpoint_name,
    run_of,
    save_weights,
    settings,
    trained,
)
from helpers.attention.jobs import StepDone, run_jobs
from helpers.attention.models import Encoder
from helpers.attention.training_run import (
    shuffled_batches,
    steps_of,
    warmup_and_decay,
    write_once,
)
from helpers.data.tasks import Task
from helpers.errors import ModelError

__all__ = [
    "Classifier", "FineTuned", "Recipe", "batches", "fine_tune", "fine_tune_all", "predict",
]  # fmt: skip

RECORDS = 10  # rows of the history
WEIGHT_DECAY = 0.01  # of matrices
LARGEST_NORM = 1.0  # of a step's gradient


def fine_tune(
    encoder: Encoder,
    task: Task,
    *,
    seed: int = 0,
    epochs: int = 2,
    max_tokens: int = 32,
    checkpoints: int = 0,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = Recipe.learning_rate,
    root: Path | None = None,
) -> FineTuned:
    """Fine-tune an encoder on a task, or find the run in the cache (or in ``root``).

    Raises:
        ModelError: texts of ``max_tokens`` are too long for the model, or the loss is no number.
        StoreError: the disk is full.
    """
    recipe = Recipe(seed, epochs, max_tokens, batch_size, learning_rate, checkpoints)
    return fine_tune_all([(encoder, task)], recipe, root=root)[0]


def fine_tune_all(
    runs: Sequence[tuple[Encoder, Task]], recipe: Recipe, *, root: Path | None = None
) -> list[FineTuned]:
    """Fine-tune several encoders, each on its task, side by side; see `fine_tune`."""
    return train_missing([run_of(encoder, task, recipe, root) for encoder, task in runs])


def train_missing(runs: Sequence[FineTuned]) -> list[FineTuned]:
    """Train the runs that are not in the cache, side by side, and return all.

    Raises:
        ModelError, StoreError: see `fine_tune`.
    """
    missing = [run for run in runs if not run.folder.is_dir()]
    if missing:
        run_jobs(
            [partial(_make, run) for run in sorted(missing, key=_steps, reverse=True)],
            missing[0].encoder.device,
            label="fine-tuning",
            unit="step",
            total=sum(_steps(run) for run in missing),
        )
    return list(runs)


def _make(run: FineTuned, step_done: StepDone) -> None:
    """Train a run and write its folder, unless another process has."""
    write_once(run.folder, lambda folder: _train(run, folder, step_done))


def _train(run: FineTuned, folder: Path, step_done: StepDone) -> None:
    """Train a classifier and write everything about it to ``folder``."""
    recipe, encoder, task = run.recipe, run.encoder, run.task
    classifier = new_classifier(encoder, len(task.labels), seed=recipe.seed)
    parameters = list(trained(classifier).values())
    optimizer = torch.optim.AdamW(_groups(parameters), lr=recipe.learning_rate)
    steps = _steps(run)
    schedule = warmup_and_decay(optimizer, steps)
    course = _Course(steps)
    kept = range(1, recipe.checkpoints)  # the last one is the end
    ends = {part: max(1, round(part * steps / recipe.checkpoints)) for part in kept}
    for step, (batch, labels, _) in enumerate(_shuffled(run), 1):
        logits = classifier(**batch)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
        optimizer.step()
        schedule.step()
        if not loss.isfinite():
            raise ModelError(
                f"model {encoder.name!r}, task {task.name!r}: the loss of step {step} is "
                f"{loss.item()}; fine-tune with a smaller learning rate"
            )
        course.add(step, loss.item(), (logits.argmax(dim=-1) == labels).tolist())
        for part in (part for part in kept if ends[part] == step):
            save_weights(classifier, folder / checkpoint_name(part, recipe.checkpoints), half=True)
        step_done()
    save_weights(classifier, folder / FINAL)
    course.table().to_csv(folder / HISTORY, index=False)
    facts = {
        "settings": settings(encoder, task, recipe),
        "steps": steps,
        "predictions": predict(
            classifier, encoder, task.test, max_tokens=recipe.max_tokens
        ).tolist(),
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


class _Course:
    """Sums up the examples met since the last record, and makes a record every tenth."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._rows: list[tuple[int, float, float]] = []
        self._losses: list[float] = []
        self._right: list[bool] = []

    def add(self, step: int, loss: float, right: list[bool]) -> None:
        self._losses += [loss] * len(right)
        self._right += right
        if step * RECORDS // self._steps > (step - 1) * RECORDS // self._steps:
            self._rows.append((step, float(np.mean(self._losses)), float(np.mean(self._right))))
            self._losses, self._right = [], []

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self._rows, columns=["step", "loss", "accuracy"])


def _shuffled(run: FineTuned) -> Iterator[tuple[dict[str, Tensor], Tensor, np.ndarray]]:
    """Yield the batches of all epochs."""
    recipe, pairs = run.recipe, run.task.train
    inputs = task_inputs(run.encoder, pairs, recipe.max_tokens)
    labels = [pair.label for pair in pairs]
    lengths = [len(item["input_ids"]) for item in inputs]
    for chosen in shuffled_batches(
        lengths, epochs=recipe.epochs, batch_size=recipe.batch_size, seed=recipe.seed
    ):
        yield padded_batch(run.encoder, inputs, labels, chosen)


def _steps(run: FineTuned) -> int:
    recipe = run.recipe
    return steps_of(len(run.task.train), epochs=recipe.epochs, batch_size=recipe.batch_size)


def _groups(parameters: Sequence[Tensor]) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
