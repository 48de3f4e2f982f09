"""A fine-tuning run: what determines it, its folder in the cache, and what is in there.

The folder is named by a hash of all that determines the run, and holds ``final.safetensors`` (the
weights that were trained, the head included), ``checkpoint-01-of-10.safetensors`` and so on (if
wanted), ``history.csv`` and ``run.json``.  Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from helpers.attention.classify import BATCH_SIZE, Classifier, new_classifier
from helpers.attention.extract import model_facts
from helpers.attention.models import Encoder
from helpers.data.tasks import Task
from helpers.errors import StoreError
from helpers.paths import cache_root

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
        return replace(self.encoder, model=self.classifier.encoder, identity=identity)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return json.loads((self.folder / FACTS).read_text(encoding="utf-8"))

    def _start(self) -> Classifier:
        return new_classifier(self.encoder, len(self.task.labels), seed=self.recipe.seed)

    def _read(self, name: str) -> Classifier:
        classifier, path = self._start(), self.folder / name
        try:
            saved = load_file(path)
        except (SafetensorError, OSError) as error:
            raise StoreError(f"{path}: {error}; {_way_out(self.folder)}") from error
        own = trained(classifier)
        if saved.keys() != own.keys() or any(saved[k].shape != own[k].shape for k in own):
            raise StoreError(f"{path}: not the weights of this model; {_way_out(self.folder)}")
        with torch.no_grad():
            for key, parameter in own.items():
                parameter.copy_(saved[key])
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


def _way_out(folder: Path) -> str:
    return f"remove the folder {folder.name} and run again: it is trained anew"
