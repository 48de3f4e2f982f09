"""A fine-tuning run: what determines it, its folder in the cache, and what is in there.

The folder is named by a hash of all that determines the run, and holds ``final.safetensors`` (the
weights that were trained, the head included), ``checkpoint-01-of-10.safetensors`` and so on (if
wanted), ``history.csv`` and ``run.json``.  Nothing is pickled.

What every training run here shares: the order of its batches, its learning rate, its folder.

Fine-tuning an encoder on a task, once: what it gives is kept in the cache and found again.

Plain PyTorch: AdamW, a learning rate that rises over the first tenth of the steps and falls to
zero over the others, gradients clipped to norm 1.  A run computes on one thread and needs no
random numbers but its seed's, so several runs go side by side and each gives what it gives
alone, on any number of threads.

A run's folder is named by a hash of all that determines it.  It is written under another name
and renamed when whole: an interrupted run leaves nothing and starts anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from helpers.errors import ModelError
from helpers.files import only_one, share, write_errors
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.model.weights import read_weights
from helpers.paths import cache_root
from helpers.store.extract import model_facts
from helpers.studies.classifier import (
    BATCH_SIZE,
    Classifier,
    new_classifier,
    padded_batch,
    predict,
    task_inputs,
)
from helpers.studies.tasks import Task

FORMAT = 1  # raise it whenever the same settings would give other weights
FINAL, FACTS, HISTORY = "final.safetensors", "run.json", "history.csv"


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune.

    ``checkpoints`` is how many states of the training are kept, evenly spaced, the last one
    being its end; those before the end are kept in half precision.
    """

    seed: int = 0
    epochs: int = 2
    max_tokens: int = 32
    batch_size: int = BATCH_SIZE
    learning_rate: float = 1e-4
    checkpoints: int = 0


@dataclass(frozen=True)
class FineTuned:
    """A finished run, read from its folder when asked for."""

    encoder: Encoder = field(repr=False)
    task: Task = field(repr=False)
    recipe: Recipe
    folder: Path

    @cached_property
    def classifier(self) -> Classifier:
        """The trained classifier."""
        return self._read(FINAL)

    @cached_property
    def history(self) -> pd.DataFrame:
        """The course of the training: step (the last of each tenth), loss and accuracy.

        Both are means over the training examples of the steps since the row before, as they
        were met.
        """
        return pd.read_csv(self.folder / HISTORY)

    @cached_property
    def predictions(self) -> Int[np.ndarray, " example"]:
        """The labels that the classifier gives to the test examples."""
        return np.array(self._facts["predictions"])

    @property
    def accuracy(self) -> float:
        """The share of the test examples that it gets right."""
        return float((self.predictions == [pair.label for pair in self.task.test]).mean())

    @property
    def steps(self) -> int:
        """The number of steps of the training."""
        return self._facts["steps"]

    def checkpoint(self, number: int) -> Classifier:
        """Return the classifier after ``number`` of the recipe's ``checkpoints`` parts.

        0 is the start, ``checkpoints`` the end.
        """
        if not 0 <= number <= self.recipe.checkpoints:
            raise IndexError(f"checkpoint {number} of {self.recipe.checkpoints}")
        if number == 0:
            return self._start()
        return self._read(checkpoint_name(number, self.recipe.checkpoints))

    def fine_tuned_encoder(self) -> Encoder:
        """Return the encoder with its fine-tuned weights, for whatever computes its maps."""
        identity = {**self.encoder.identity, "fine_tuned": self.folder.name}
        loaded = replace(self.encoder.read(), model=self.classifier.encoder)
        return replace(self.encoder, identity=identity, read=lambda: loaded)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return json.loads((self.folder / FACTS).read_text(encoding="utf-8"))

    def _start(self) -> Classifier:
        return new_classifier(self.encoder, len(self.task.labels), seed=self.recipe.seed)

    def _read(self, name: str) -> Classifier:
        classifier, path = self._start(), self.folder / name
        read_weights(trained(classifier), path)
        return classifier.requires_grad_(False)


def run_of(encoder: Encoder, task: Task, recipe: Recipe, root: Path | None = None) -> FineTuned:
    """Return a run, finished or not, in its folder under ``root`` or the cache."""
    return FineTuned(encoder, task, recipe, run_folder(encoder, task, recipe, root))


def run_folder(encoder: Encoder, task: Task, recipe: Recipe, root: Path | None) -> Path:
    """Return the folder of a run, under ``root`` or the cache."""
    facts = settings(encoder, task, recipe)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    name = re.sub(r"[^a-z0-9]+", "-", task.name.lower()).strip("-") or "task"
    return (root or cache_root()) / "fine-tuned" / f"{encoder.slug}--{name}--{digest[:10]}"


def settings(encoder: Encoder, task: Task, recipe: Recipe) -> dict[str, Any]:
    """Return everything that determines what a run gives."""
    return {
        "format": FORMAT,
        "model": model_facts(encoder),
        "tokenizer_sha256": encoder.tokenizer_sha256,
        "objective": encoder.objective,
        "task": {"name": task.name, "fingerprint": task.fingerprint},
        "recipe": asdict(recipe),
    }


def save_weights(classifier: Classifier, path: Path, *, half: bool = False) -> None:
    """Write the weights that are trained, those of the head included."""
    dtype = torch.float16 if half else torch.float32
    save_file(
        {k: p.detach().to("cpu", dtype).contiguous() for k, p in trained(classifier).items()}, path
    )


def checkpoint_name(number: int, count: int) -> str:
    """Return the file of a checkpoint (from 1)."""
    return FINAL if number == count else f"checkpoint-{number:02d}-of-{count}.safetensors"


def trained(classifier: Classifier) -> dict[str, Tensor]:
    """Return the weights that are trained, by name."""
    return {name: p for name, p in classifier.named_parameters() if p.requires_grad}


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
