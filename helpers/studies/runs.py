"""The fine-tuning runs that notebooks 07 and 08 share: the first to ask for one trains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.paths import given_path
from helpers.settings import small_profile
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.grammar_tasks import NUMBER, SHIFT
from helpers.studies.tasks import Task, read_task
from helpers.studies.wikipedia_tasks import NEXT, wikipedia_tasks

# Chosen for 2,000 examples and two CPU cores; a text of a task is cut to these tokens.
RECIPE = Recipe(epochs=2, max_tokens=64, batch_size=16, learning_rate=1e-4)
CHECKPOINTS = 10  # of the runs from the model's own weights
EVERYTHING = 10**9
PRETRAINED, RANDOM = "pretrained", "random"  # what a run started from
SEEDS = 5  # of a fine-tuning
# Where seeds are compared: the task that needs its heads most, and the one that asks for subjects.
SEEDED = (SHIFT, NUMBER)
# The small profile has a task of two texts and one of one, and these tokens of each example.
SMALL_TASKS, SMALL_TOKENS = (NEXT, NUMBER), 32


@cache
def tasks(task: str, text: str, *, examples: int, seed: int) -> tuple[Task, ...]:
    """Return the user's task (``TRAIN.tsv,TEST.tsv``), or those made of ``text``.

    At most ``examples`` of a task (0: all) are to train on, and as many to test: with 2,000 the
    95% interval of an accuracy from 71% on is at most two points to either side.

    Raises:
        InputError: ``task`` does not name two files, or one of them is no task.
    """
    train = test = max(2, examples or EVERYTHING)
    if not task:
        path = given_path(text) if text else None
        found = wikipedia_tasks(path, train=train, test=test, seed=seed)
        return tuple(found[name] for name in found if name in SMALL_TASKS or not small_profile())
    paths = [given_path(part.strip()) for part in task.split(",")]
    if len(paths) != 2:
        raise InputError(f"--task {task}: expected TRAIN.tsv,TEST.tsv")
    return (read_task(*paths).sample(train=train, test=test, seed=seed),)


def fine_tuned(
    encoder: Encoder, tasks: Iterable[Task], *, seed: int, max_tokens: int
) -> list[FineTuned]:
    """Fine-tune an encoder on each task, with checkpoints, or find the runs."""
    return fine_tune(_planned(encoder, tasks, seed, max_tokens, CHECKPOINTS))


def over_seeds(
    encoder: Encoder, tasks: Sequence[Task], seeds: Sequence[int], *, max_tokens: int
) -> dict[int, list[FineTuned]]:
    """Fine-tune an encoder with several seeds, which order the examples and draw the classifier.

    On the tasks of `SEEDED`, or the first where there is none of them; returns the runs by seed,
    the first of which are those of `fine_tuned`.
    """
    chosen = [task for task in tasks if task.name in SEEDED] or tasks[:1]
    found = {
        seed: _planned(encoder, chosen, seed, max_tokens, 0 if number else CHECKPOINTS)
        for number, seed in enumerate(seeds)
    }
    fine_tune([run for runs in found.values() for run in runs])
    return found


def from_both_starts(
    encoder: Encoder, control: Encoder, tasks: Iterable[Task], *, seed: int, max_tokens: int
) -> dict[str, list[FineTuned]]:
    """Fine-tune an encoder and its ``control`` (with random weights) on each task, side by side.

    Returns the runs by what they started from, `PRETRAINED` or `RANDOM`.
    """
    own = _planned(encoder, tasks, seed, max_tokens, CHECKPOINTS)
    controls = _planned(control, [run.task for run in own], seed, max_tokens, 0)
    found = fine_tune([*own, *controls])
    return {PRETRAINED: found[: len(own)], RANDOM: found[len(own) :]}


def _planned(
    encoder: Encoder, tasks: Iterable[Task], seed: int, max_tokens: int, checkpoints: int
) -> list[FineTuned]:
    longest = min(RECIPE.max_tokens, max_tokens, SMALL_TOKENS if small_profile() else max_tokens)
    recipe = replace(RECIPE, seed=seed, max_tokens=longest, checkpoints=checkpoints)
    return [FineTuned(encoder, task, recipe) for task in tasks]
