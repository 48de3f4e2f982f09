"""How models are trained, and the encoders that notebooks 07 and 08 fine-tune.

Each fine-tuning is done once and stored in the cache.  Every training is plain PyTorch: AdamW, one
step per batch, gradients clipped to norm 1 and a learning rate schedule.  All random numbers come
from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from beyond.papers.common import CODE
from beyond.papers.common.classifier import Classifier, outputs, task_inputs
from beyond.papers.common.tasks import Task, read_task
from beyond.papers.common.threads import thread_map
from beyond.papers.common.wikipedia_tasks import NEXT, NUMBER, wikipedia_tasks
from helpers.cache import Code, cached, code_digest
from helpers.data.wikipedia import SAMPLE
from helpers.errors import InputError, ModelError
from helpers.files import (
    build_folder,
    cache_root,
    json_digest,
    resolve_user_path,
    slugify,
)
from helpers.model.forward import padded
from helpers.model.loading import Model
from helpers.progress import batch_threads
from helpers.settings import MAX_NUMBER, NO_LIMIT, capped

# The trained parameters, those of the linear head included, and the predicted test labels.
RESULTS_FILE = "final.safetensors"
WARMUP = 0.1  # share of all steps
WEIGHT_DECAY = 0.01  # for matrices, in fine-tuning
BUCKET_BATCHES = 16  # so many batches are sorted by length together
LARGEST_NORM = 1.0  # of the gradient of a step
SEEDS = 3  # of `fine_tune_seeds`
QUICK_EXAMPLES = 6  # in a quick run, to train and to test
QUICK_TASKS = (NEXT, NUMBER)  # in a quick run: one of text pairs and one of single texts


@dataclass(frozen=True)
class Recipe:
    """Settings of a training; the defaults suit 2,000 examples and two CPU cores."""

    seed: int = 0
    epochs: int = 2
    batch_size: int = 16
    learning_rate: float = 1e-4
    max_tokens: int = 64


@dataclass(frozen=True)
class FineTuningRun:
    """A fine-tuning run; its results can be read once `fine_tune` has trained it."""

    encoder: Model = field(repr=False)
    task: Task = field(repr=False)
    recipe: Recipe

    @cached_property
    def folder(self) -> Path:
        """The folder of the run in the cache; it exists once the run is trained."""
        task = slugify(self.task.name.lower()) or "task"
        inputs = dict(self.encoder.key) | {
            "code": code_digest(CODE),
            "objective": self.encoder.objective,
            "task": asdict(self.task),
            "recipe": asdict(self.recipe),
        }
        digest = json_digest(inputs)
        return cache_root() / "fine-tuned" / f"{self.encoder.slug}--{task}--{digest[:10]}"

    @cached_property
    def classifier(self) -> Classifier:
        """The trained classifier."""
        classifier = self.start()
        results = load_file(self.folder / RESULTS_FILE)
        classifier.load_state_dict(results, strict=False)  # the other parameters are frozen
        return classifier.requires_grad_(False)

    @cached_property
    def predictions(self) -> Int[np.ndarray, " example"]:
        """The predicted labels of the test examples."""
        return load_file(self.folder / RESULTS_FILE)["predictions"].numpy()

    @cached_property
    def labels(self) -> Int[np.ndarray, " example"]:
        """The correct labels of the test examples."""
        return np.array([pair.label for pair in self.task.test])

    def fine_tuned_encoder(self) -> Model:
        """Make an encoder with the fine-tuned weights, for example to compute its maps."""
        key = {**self.encoder.key, "fine_tuned": self.folder.name}
        return replace(self.encoder, model=self.classifier.encoder, key=key)

    def start(self) -> Classifier:
        """Make the classifier as it is before training."""
        return Classifier(self.encoder, len(self.task.labels), seed=self.recipe.seed)


def fine_tune(runs: Sequence[FineTuningRun]) -> Sequence[FineTuningRun]:
    """Train the runs that are not in the cache, and return all of them.

    Several train at a time, each on one thread.

    Raises
    ------
    ModelError
        If ``max_tokens`` is more than the model takes, or a loss is not finite.
    StoreError
        If the disk is full.
    """

    def train(run: FineTuningRun) -> None:
        build_folder(run.folder, partial(_train, run))

    missing = [run for run in runs if not run.folder.is_dir()]
    for run in missing:  # models are loaded here, because only trainings may run side by side
        _ = run.encoder.model
    threads = batch_threads(runs[0].encoder.model.device)
    thread_map(train, missing, label="fine-tuning", unit="run", threads=threads)
    return runs


def table_by_task(
    runs: Sequence[FineTuningRun],
    name: str,
    compute: Callable[[FineTuningRun], pd.DataFrame],
    *,
    code: Code,
    **depends_on: Any,
) -> pd.DataFrame:
    """Compute a table for each run and concatenate them, with the task in the first column.

    Each run's table is cached by ``name``, the run, ``depends_on`` and the ``code``.
    """
    tables = []
    for run in runs:
        inputs = {**depends_on, "run": run.folder.name}
        table = cached(name, partial(compute, run), inputs=inputs, code=code)
        table.insert(0, "task", run.task.name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def concat_with_keys(tables: Mapping[Any, pd.DataFrame], *names: str) -> pd.DataFrame:
    """Concatenate tables; their keys become the first columns, called ``names``."""
    table = pd.concat(tables, names=[*names, None])
    return table.reset_index(names).reset_index(drop=True)


def load_tasks(task: str, text: str, *, examples: int | str, seed: int, quick: bool) -> list[Task]:
    """Read the user's task, or make tasks from a text.

    Parameters
    ----------
    task
        The parameter ``task``: two files, ``TRAIN.tsv,TEST.tsv``; empty to make tasks.
    text
        The setting ``--text``: a dump or text file; empty for the bundled sample.
    examples
        The parameter ``task_examples``: the largest number of training examples of a task, and of
        test examples, or "all".
    seed
        Seed of the samples.
    quick
        Whether there are few examples and only two made tasks.

    Returns
    -------
    list of Task

    Raises
    ------
    InputError
        If ``task`` does not name two files, a file does not exist, or ``examples`` is no number.
    CorpusError
        If a file cannot be read as a task, or the text is too short.
    """
    count = None if examples == NO_LIMIT else examples
    if count is not None and not (isinstance(count, int) and 2 <= count <= MAX_NUMBER):
        raise InputError(
            f"task_examples {examples}: expected a whole number from 2 to {MAX_NUMBER:,}, or "
            f"{NO_LIMIT}"
        )
    if quick:
        count = capped(count, QUICK_EXAMPLES)
    if not task:
        path = resolve_user_path(text) if text else SAMPLE
        tasks = wikipedia_tasks(path, count=count, seed=seed)
        if quick:
            tasks = [task for task in tasks if task.name in QUICK_TASKS]
        return tasks
    paths = [resolve_user_path(part.strip()) for part in task.split(",")]
    if len(paths) != 2:
        raise InputError(f"task {task}: expected two files; write TRAIN.tsv,TEST.tsv")
    train, test = paths
    return [read_task(train, test).sample(count, seed=seed)]


def fine_tune_tasks(
    encoder: Model, tasks: Sequence[Task], *, max_tokens: int, seed: int
) -> Sequence[FineTuningRun]:
    """Fine-tune an encoder on each task, once.

    Parameters
    ----------
    encoder
        The model to start from: a pretrained one, or one with random weights.
    tasks
        What to fine-tune on.
    max_tokens
        The longest input; `Recipe.max_tokens` at most.
    seed
        It orders the training examples and initialises the linear head.

    Returns
    -------
    sequence of FineTuningRun
        One trained run per task.
    """
    recipe = Recipe(seed=seed, max_tokens=min(Recipe.max_tokens, max_tokens))
    return fine_tune([FineTuningRun(encoder, task, recipe) for task in tasks])


def fine_tune_seeds(run: FineTuningRun) -> Sequence[FineTuningRun]:
    """Fine-tune on the task of a run with `SEEDS` seeds, that of the run included."""
    seeds = range(run.recipe.seed, run.recipe.seed + SEEDS)
    return fine_tune([replace(run, recipe=replace(run.recipe, seed=seed)) for seed in seeds])


def gradient_steps(
    model: nn.Module,
    parameters: Iterable[Any],
    recipe: Recipe,
    lengths: Sequence[int],
    loss: Callable[[list[int]], Tensor],
    description: str,
) -> None:
    """Train the parameters of a model with a recipe, one step per batch.

    Parameters
    ----------
    model
        The model.
    parameters
        The parameters to train, or groups of them, as AdamW takes them.
    recipe
        The settings.
    lengths
        The length of each example.
    loss
        Function of the indices of a batch of examples.
    description
        It names the training in messages.

    Raises
    ------
    ModelError
        If a loss is not finite.
    """
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, fused=True)
    batches_per_epoch = math.ceil(len(lengths) / recipe.batch_size)
    rates = warmup_and_decay(optimizer, recipe.epochs * batches_per_epoch)
    for step, batch in enumerate(shuffled_epochs(recipe, lengths), 1):
        value = loss(batch)
        if not value.isfinite():
            raise ModelError(
                f"{description}: the loss of step {step} is {value.item()}; train with a smaller "
                "learning rate"
            )
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        rates.step()


def shuffled_epochs(recipe: Recipe, lengths: Sequence[int] | np.ndarray) -> Iterator[list[int]]:
    """Yield the indices of the examples of each batch, epoch by epoch.

    Batches are random, but their examples have similar ``lengths``, which saves padding.
    """
    lengths = np.asarray(lengths)
    bucket_size = BUCKET_BATCHES * recipe.batch_size
    for epoch in range(recipe.epochs):
        generator = np.random.default_rng([recipe.seed, epoch])
        order = generator.permutation(len(lengths))
        bucket = np.arange(len(order)) // bucket_size
        ordered = order[np.lexsort([lengths[order], bucket])]
        starts = generator.permutation(range(0, len(ordered), recipe.batch_size))
        for start in starts:
            yield ordered[start : start + recipe.batch_size].tolist()


def warmup_and_decay(optimizer: Optimizer, steps: int) -> LambdaLR:
    """Make a schedule: the learning rate rises over the first tenth of the steps, then falls to 0.

    Both parts are linear.
    """
    warmup_steps = max(1, round(WARMUP * steps))
    decay_steps = max(1, steps - warmup_steps)

    def factor(step: int) -> float:
        return min((step + 1) / warmup_steps, (steps - step) / decay_steps)

    return LambdaLR(optimizer, factor)


def _train(run: FineTuningRun, folder: Path) -> None:
    """Train a classifier and write its weights and its predictions to a folder."""
    recipe = run.recipe
    classifier = run.start()
    inputs = task_inputs(run.encoder, run.task.train, recipe.max_tokens)
    labels = torch.tensor([pair.label for pair in run.task.train], device=run.encoder.model.device)

    def loss(chosen: Sequence[int]) -> Tensor:
        batch = padded(run.encoder, [inputs[index] for index in chosen])
        return F.cross_entropy(classifier(**batch), labels[chosen])

    lengths = [len(example["input_ids"]) for example in inputs]
    groups = []
    for weight in classifier.parameters():
        if weight.requires_grad:
            decay = WEIGHT_DECAY if weight.ndim > 1 else 0.0
            groups.append({"params": weight, "weight_decay": decay})
    label = f"model {run.encoder.name!r}, task {run.task.name!r}"
    gradient_steps(classifier, groups, recipe, lengths, loss, label)
    logits = outputs(classifier, run.encoder, run.task.test, max_tokens=recipe.max_tokens)
    results = {}
    for name, weight in classifier.named_parameters():
        if weight.requires_grad:
            results[name] = weight.detach().cpu().contiguous()
    results["predictions"] = torch.from_numpy(logits).argmax(dim=1)
    save_file(results, folder / RESULTS_FILE)
