"""How models are trained, and the encoders that notebooks 07 and 08 fine-tune, each once.

Every training is plain PyTorch: AdamW, a step for each batch, gradients clipped to norm 1, a
learning rate that follows a schedule, no random numbers but the seed's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from helpers.cache import cached, code_digest
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder
from helpers.model.forward import padded
from helpers.paths import broken_seals, cache_root, given_path, readable, write_once
from helpers.settings import small_profile
from helpers.store.extract import encoder_facts
from helpers.studies.classifier import Classifier, outputs, task_inputs
from helpers.studies.jobs import StepDone, run_jobs
from helpers.studies.tasks import Task, read_task
from helpers.studies.wikipedia_tasks import NEXT, NUMBER, SHIFT, wikipedia_tasks

WEIGHTS, PREDICTIONS = "final.safetensors", "predictions.json"  # what was trained, the head too
WARMUP = 0.1  # of all steps
WEIGHT_DECAY = 0.01  # of matrices, in fine-tuning
BUCKET = 16  # batches that are sorted by length together
LARGEST_NORM = 1.0  # of a step's gradient
# Of a fine-tuning: five where the verdict on pruning needs them, one where an example costs most.
SEEDS, OTHER_SEEDS, SMALL_SEEDS = {NEXT: 1, SHIFT: 5}, 3, 2
# The small profile has a task of two texts and one of one, and these tokens of each example.
SMALL_TASKS, SMALL_TOKENS = (NEXT, NUMBER), 32

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Recipe:
    """How to train, on texts of ``max_tokens``: chosen for 2,000 examples and two CPU cores."""

    seed: int = 0
    epochs: int = 2
    batch_size: int = 16
    learning_rate: float = 1e-4
    max_tokens: int = 64

    def steps(self, examples: int) -> int:
        """Return the number of steps, a batch each, over so many examples."""
        return self.epochs * -(-examples // self.batch_size)


@dataclass(frozen=True)
class FineTuned:
    """A run, and what it gave once it was done (`fine_tune`)."""

    encoder: Encoder = field(repr=False)
    task: Task = field(repr=False)
    recipe: Recipe

    @cached_property
    def folder(self) -> Path:
        """The folder of the run in the cache, there or not."""
        task = readable(self.task.name.lower()) or "task"
        facts = encoder_facts(self.encoder) | {
            "code": code_digest(__name__),
            "objective": self.encoder.objective,
            "task": self.task,
            "recipe": self.recipe,
        }
        content = json.dumps(facts, sort_keys=True, default=vars)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return cache_root() / "fine-tuned" / f"{self.encoder.slug}--{task}--{digest[:10]}"

    @cached_property
    def classifier(self) -> Classifier:
        """The trained classifier."""
        classifier = self.start()
        weights = load_file(self.folder / WEIGHTS)  # of those that were trained
        classifier.load_state_dict(weights, strict=False)
        return classifier.requires_grad_(False)

    @cached_property
    def predictions(self) -> Int[np.ndarray, " example"]:
        """The labels that the classifier gives to the test examples."""
        return np.array(json.loads((self.folder / PREDICTIONS).read_bytes()))

    @cached_property
    def labels(self) -> Int[np.ndarray, " example"]:
        """The right labels of the test examples."""
        return np.array([pair.label for pair in self.task.test])

    @property
    def accuracy(self) -> float:
        """The share of the test examples that it gets right."""
        return float((self.predictions == self.labels).mean())

    def fine_tuned_encoder(self) -> Encoder:
        """Return the encoder with its fine-tuned weights, for whatever computes its maps."""
        identity = {**self.encoder.identity, "fine_tuned": self.folder.name}
        loaded = replace(self.encoder.read(), model=self.classifier.encoder)
        return replace(self.encoder, identity=identity, read=lambda: loaded)

    @property
    def steps(self) -> int:
        """The number of steps of the training."""
        return self.recipe.steps(len(self.task.train))

    def start(self) -> Classifier:
        """Return the classifier before any training."""
        return Classifier(self.encoder, len(self.task.labels), seed=self.recipe.seed)


class Runs(NamedTuple):
    """The runs of all tasks: with several seeds each, and from random weights."""

    seeds: list[list[FineTuned]]
    random: list[FineTuned]

    @property
    def median(self) -> list[FineTuned]:
        """Of each task the run of median test accuracy: of an even number the lower one."""
        ordered = [sorted(runs, key=lambda run: run.accuracy) for runs in self.seeds]
        return [runs[(len(runs) - 1) // 2] for runs in ordered]


def fine_tune(runs: Sequence[FineTuned]) -> Sequence[FineTuned]:
    """Train what is not there whole, side by side, each on one thread, and return the runs.

    ModelError where texts are too long for the model, or the loss is no number; StoreError where
    the disk is full.
    """
    missing = [run for run in runs if broken_seals(run.folder)]
    jobs = [
        lambda step_done, run=run: write_once(run.folder, partial(_train, run, step_done))
        for run in sorted(missing, key=lambda run: -run.steps)
    ]
    if jobs:
        total = sum(run.steps for run in missing)
        run_jobs(jobs, runs[0].encoder.device, label="fine-tuning", unit="step", total=total)
    return runs


def each_run(
    runs: Sequence[FineTuned], name: str, of_run: Callable[[FineTuned], pd.DataFrame], **facts: Any
) -> pd.DataFrame:
    """Return a table of all runs by task; each run's part is kept, by ``facts`` too."""

    def of_task(run: FineTuned) -> pd.DataFrame:
        own = cached(name, partial(of_run, run), inputs={"run": run.folder.name, **facts})
        own.insert(0, "task", run.task.name)
        return own

    return pd.concat(map(of_task, runs), ignore_index=True)


def stacked(tables: Mapping[Any, pd.DataFrame], *names: str) -> pd.DataFrame:
    """Return tables as one, what their keys say in its first columns."""
    whole = pd.concat(tables, names=[*names, None])
    return whole.reset_index(names).reset_index(drop=True)


def tasks_of(task: str, text: str, *, examples: int | None, seed: int) -> list[Task]:
    """Return the user's task (``TRAIN.tsv,TEST.tsv``), or those made of ``text``.

    At most ``examples`` of a task (None: all) are to train on, and as many to test.  InputError
    where ``task`` does not name two files, or one of them is no task.
    """
    if not task:
        found = wikipedia_tasks(given_path(text) if text else None, count=examples, seed=seed)
        return [task for task in found if task.name in SMALL_TASKS or not small_profile()]
    paths = [given_path(part.strip()) for part in task.split(",")]
    if len(paths) != 2:
        raise InputError(f"--task {task}: expected TRAIN.tsv,TEST.tsv")
    return [read_task(*paths).sample(examples, seed=seed)]


def fine_tuned(
    encoder: Encoder, control: Encoder, tasks: Sequence[Task], *, max_tokens: int, seed: int
) -> Runs:
    """Fine-tune an encoder on each task, with `SEEDS` from ``seed`` on, and its control once.

    A seed orders the examples and draws the classifier.
    """
    small = small_profile()
    most = min(SMALL_TOKENS if small else Recipe.max_tokens, max_tokens)

    def runs(start: Encoder, task: Task, count: int) -> list[FineTuned]:
        seeds = range(seed, seed + (min(count, SMALL_SEEDS) if small else count))
        return [FineTuned(start, task, Recipe(seed=own, max_tokens=most)) for own in seeds]

    own = [runs(encoder, task, SEEDS.get(task.name, OTHER_SEEDS)) for task in tasks]
    random = [runs(control, task, 1) for task in tasks]
    fine_tune([run for pair in zip(own, random, strict=True) for some in pair for run in some])
    return Runs(own, [run for (run,) in random])


def gradient_steps(
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    optimizer: Optimizer,
    rates: LRScheduler,
    *,
    what: str,
    step_done: StepDone = lambda: None,
) -> None:
    """Take a step of ``optimizer`` and of ``rates`` for each batch.

    ModelError where the loss of ``what`` is not a number.
    """
    parameters = list(trained(model).values())
    for step, batch in enumerate(batches, 1):
        value = loss(batch)
        if not value.isfinite():
            problem = f"the loss of step {step} is {value.item()}"
            raise ModelError(f"{what}: {problem}; train with a smaller learning rate")
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
        optimizer.step()
        rates.step()
        step_done()


def shuffled_epochs(recipe: Recipe, lengths: Sequence[int]) -> Iterator[list[int]]:
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


def _train(run: FineTuned, step_done: StepDone, folder: Path) -> None:
    """Train, and write the weights and the predictions."""
    recipe, classifier, device = run.recipe, run.start(), run.encoder.device
    inputs = task_inputs(run.encoder, run.task.train, recipe.max_tokens)
    labels = torch.tensor([pair.label for pair in run.task.train], device=device)

    def loss(chosen: Sequence[int]) -> Tensor:
        batch = padded(run.encoder, [inputs[index] for index in chosen])
        return F.cross_entropy(classifier(**batch), labels[chosen])

    batches = shuffled_epochs(recipe, [len(item["input_ids"]) for item in inputs])
    weights = trained(classifier)
    groups = [
        {"params": [p for p in weights.values() if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in weights.values() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)
    rates = warmup_and_decay(optimizer, run.steps)
    what = f"model {run.encoder.name!r}, task {run.task.name!r}"
    gradient_steps(classifier, batches, loss, optimizer, rates, what=what, step_done=step_done)
    saved = {name: part.detach().cpu().contiguous() for name, part in weights.items()}
    save_file(saved, folder / WEIGHTS)
    found = outputs(classifier, run.encoder, run.task.test, max_tokens=recipe.max_tokens)
    predictions = json.dumps(found.argmax(axis=1).tolist())
    (folder / PREDICTIONS).write_text(predictions, encoding="utf-8")
