"""Fine-tuning an encoder on a task, once: what it gives is kept in the cache and found again.

A run computes on one thread and needs no random numbers but its seed's, so several runs go side
by side and each gives what it gives alone, on any number of threads.

The folder of a run is named by a hash of all that determines it, and holds ``final.safetensors``
(the weights that were trained, the head included), ``checkpoint-01-of-10.safetensors`` and so on
(if wanted) and ``run.json``.  Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from helpers.cache import cached_table, code_of
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.paths import cache_root, write_once
from helpers.store.extract import model_facts
from helpers.studies.classifier import (
    BATCH_SIZE,
    Classifier,
    Labelled,
    new_classifier,
    padded_batch,
    predict,
    task_inputs,
)
from helpers.studies.tables import stacked
from helpers.studies.tasks import Task
from helpers.studies.training_loop import (
    gradient_steps,
    read_weights,
    save_weights,
    shuffled_batches,
    steps_of,
    trained,
    warmup_and_decay,
)

FORMAT = 1  # raise it whenever the same settings would give other weights
FINAL, FACTS = "final.safetensors", "run.json"
WEIGHT_DECAY = 0.01  # of matrices


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

    def steps(self, examples: int) -> int:
        """Return the number of steps over so many training examples."""
        return steps_of(examples, epochs=self.epochs, batch_size=self.batch_size)


@dataclass(frozen=True)
class FineTuned:
    """A run in its folder under ``root`` or the cache; once it is there, what it gave."""

    encoder: Encoder = field(repr=False)
    task: Task = field(repr=False)
    recipe: Recipe
    root: Path | None = None

    @cached_property
    def folder(self) -> Path:
        """The folder of the run, there or not."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        name = re.sub(r"[^a-z0-9]+", "-", self.task.name.lower()).strip("-") or "task"
        folder = (self.root or cache_root()) / "fine-tuned"
        return folder / f"{self.encoder.slug}--{name}--{digest[:10]}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines what the run gives."""
        return {
            "format": FORMAT,
            "model": model_facts(self.encoder),
            "tokenizer_sha256": self.encoder.tokenizer_sha256,
            "objective": self.encoder.objective,
            "task": {"name": self.task.name, "fingerprint": self.task.fingerprint},
            "recipe": asdict(self.recipe),
        }

    @cached_property
    def classifier(self) -> Classifier:
        """The trained classifier."""
        return self._read(FINAL)

    @cached_property
    def predictions(self) -> Int[np.ndarray, " example"]:
        """The labels that the classifier gives to the test examples."""
        facts = json.loads((self.folder / FACTS).read_text(encoding="utf-8"))
        return np.array(facts["predictions"])

    @cached_property
    def labels(self) -> Int[np.ndarray, " example"]:
        """The right labels of the test examples."""
        return np.array([pair.label for pair in self.task.test])

    @property
    def accuracy(self) -> float:
        """The share of the test examples that it gets right."""
        return float((self.predictions == self.labels).mean())

    @property
    def steps(self) -> int:
        """The number of steps of the training."""
        return self.recipe.steps(len(self.task.train))

    def checkpoint(self, number: int) -> Classifier:
        """Return the classifier after ``number`` of the recipe's ``checkpoints`` parts.

        0 is the start, ``checkpoints`` the end.
        """
        if not 0 <= number <= self.recipe.checkpoints:
            raise IndexError(f"checkpoint {number} of {self.recipe.checkpoints}")
        if number == 0:
            return self.start()
        return self._read(_checkpoint_name(number, self.recipe.checkpoints))

    def fine_tuned_encoder(self) -> Encoder:
        """Return the encoder with its fine-tuned weights, for whatever computes its maps."""
        identity = {**self.encoder.identity, "fine_tuned": self.folder.name}
        loaded = replace(self.encoder.read(), model=self.classifier.encoder)
        return replace(self.encoder, identity=identity, read=lambda: loaded)

    def start(self) -> Classifier:
        """Return the classifier before any training."""
        return new_classifier(self.encoder, len(self.task.labels), seed=self.recipe.seed)

    def _read(self, name: str) -> Classifier:
        classifier = self.start()
        read_weights(trained(classifier), self.folder / name)
        return classifier.requires_grad_(False)


def fine_tune(runs: Sequence[FineTuned]) -> list[FineTuned]:
    """Train the runs whose folders are not there, side by side, and return all.

    Raises:
        ModelError: texts are too long for the model, or the loss is no number.
        StoreError: the disk is full.
    """
    missing = [run for run in runs if not run.folder.is_dir()]
    if missing:
        run_jobs(
            [partial(_make, run) for run in sorted(missing, key=lambda run: -run.steps)],
            missing[0].encoder.device,
            label="fine-tuning",
            unit="step",
            total=sum(run.steps for run in missing),
        )
    return list(runs)


def each_run(
    runs: Sequence[FineTuned], name: str, of_run: Callable[[FineTuned], pd.DataFrame], **facts: Any
) -> pd.DataFrame:
    """Return a table of all runs, the task in its first column; each run's part is kept.

    ``facts`` is what else ``of_run`` goes by.
    """
    frames = {
        run.task.name: cached_table(
            name,
            lambda run=run: of_run(run),
            depends_on=facts | {"run": run.folder.name},
            code=code_of(of_run),
        )
        for run in runs
    }
    return stacked(frames, "task")


def _make(run: FineTuned, step_done: StepDone) -> None:
    """Train a run and write its folder, unless another process has."""
    write_once(run.folder, lambda folder: _train(run, folder, step_done))


def _train(run: FineTuned, folder: Path, step_done: StepDone) -> None:
    """Train a classifier and write everything about it to ``folder``."""
    recipe, classifier = run.recipe, run.start()

    def loss(batch: Labelled) -> Tensor:
        inputs, labels, _ = batch
        return F.cross_entropy(classifier(**inputs), labels)

    optimizer = torch.optim.AdamW(_groups(classifier), lr=recipe.learning_rate)
    rates = warmup_and_decay(optimizer, run.steps)
    what = f"model {run.encoder.name!r}, task {run.task.name!r}"
    kept = range(1, recipe.checkpoints)  # the last one is the end
    ends = {part: max(1, round(part * run.steps / recipe.checkpoints)) for part in kept}
    steps = gradient_steps(classifier, _shuffled(run), loss, optimizer, rates, what=what)
    for step in steps:
        for part in (part for part in kept if ends[part] == step):
            name = _checkpoint_name(part, recipe.checkpoints)
            save_weights(classifier, folder / name, torch.float16)
        step_done()
    save_weights(classifier, folder / FINAL)
    found = predict(classifier, run.encoder, run.task.test, max_tokens=recipe.max_tokens)
    facts = {"settings": run.settings, "steps": run.steps, "predictions": found.tolist()}
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _shuffled(run: FineTuned) -> Iterator[Labelled]:
    """Yield the batches of all epochs."""
    recipe, pairs = run.recipe, run.task.train
    inputs = task_inputs(run.encoder, pairs, recipe.max_tokens)
    labels = [pair.label for pair in pairs]
    lengths = [len(item["input_ids"]) for item in inputs]
    for chosen in shuffled_batches(
        lengths, epochs=recipe.epochs, batch_size=recipe.batch_size, seed=recipe.seed
    ):
        yield padded_batch(run.encoder, inputs, labels, chosen)


def _groups(classifier: Classifier) -> list[dict[str, Any]]:
    weights = trained(classifier).values()
    return [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _checkpoint_name(number: int, count: int) -> str:
    """Return the file of a checkpoint (from 1)."""
    return FINAL if number == count else f"checkpoint-{number:02d}-of-{count}.safetensors"
