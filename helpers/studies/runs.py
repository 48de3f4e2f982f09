"""The fine-tuning runs that notebooks 07 and 08 share: the first to ask for one trains it.

``fine_tuned(study)`` and ``fine_tuned_controls(study)`` return runs by the name of their task.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.paths import given_path
from helpers.studies.fine_tune import FineTuned, Recipe, run_of, train_missing
from helpers.studies.tasks import Task, read_task, wikipedia_tasks
from helpers.study import Study

# Chosen for 2,000 examples and two CPU cores; a text of a task is cut to these tokens.
RECIPE = Recipe(epochs=2, max_tokens=32, batch_size=16, learning_rate=1e-4)
CHECKPOINTS = 10  # of the runs from the model's own weights
EVERYTHING = 10**9


def tasks(study: Study) -> dict[str, Task]:
    """Return the tasks of a study, by name: the user's one, or three made of the text.

    Raises:
        InputError: ``task`` does not name two files, or one of them is no task.
    """
    train = study.task_examples or EVERYTHING
    test = max(2, train // 4)
    if not study.task:
        return _wikipedia_tasks(study.text, max(2, train), test, study.seed)
    paths = [given_path(part.strip()) for part in study.task.split(",")]
    if len(paths) != 2:
        raise InputError(f"--task {study.task}: expected TRAIN.tsv,TEST.tsv")
    task = read_task(*paths).sample(train=train, test=test, seed=study.seed)
    return {task.name: task}


def fine_tuned(study: Study) -> dict[str, FineTuned]:
    """Fine-tune the study's model on each task, with checkpoints, or find the runs."""
    return _by_task(train_missing(_own_runs(study)))


def fine_tuned_controls(study: Study) -> dict[str, FineTuned]:
    """Fine-tune the model with random weights (its embeddings kept) on each task, likewise.

    What is missing of the model's own runs is trained as well: side by side, both take less.
    """
    own = _own_runs(study)
    encoder = control_encoder(study)
    controls = [run_of(encoder, run.task, recipe(study)) for run in own]
    return _by_task(train_missing([*own, *controls])[len(own) :])


def control_encoder(study: Study) -> Encoder:
    """Return the model with all weights but the embeddings drawn anew, with the study's seed."""
    return study.load(study.seed if study.random_init is None else study.random_init + 1)


def recipe(study: Study, *, checkpoints: int = 0) -> Recipe:
    """Return how a study's models are fine-tuned."""
    longest = min(RECIPE.max_tokens, study.max_tokens)
    return replace(RECIPE, seed=study.seed, max_tokens=longest, checkpoints=checkpoints)


def _own_runs(study: Study) -> list[FineTuned]:
    settings = recipe(study, checkpoints=CHECKPOINTS)
    return [run_of(study.encoder, task, settings) for task in tasks(study).values()]


def _by_task(runs: list[FineTuned]) -> dict[str, FineTuned]:
    return {run.task.name: run for run in runs}


@cache
def _wikipedia_tasks(text: str, train: int, test: int, seed: int) -> dict[str, Task]:
    return wikipedia_tasks(given_path(text) if text else None, train=train, test=test, seed=seed)
