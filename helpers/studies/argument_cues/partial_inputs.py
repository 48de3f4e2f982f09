"""How models do that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is no argument, so whatever a model gets right of
warrants alone it gets from cues.  An adversarial counterpart has the same warrants and the other
label: on an argument and its counterpart together, a model that is not shown the claim is right
once and wrong once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.cache import cached_arrays, cached_tables, code_of
from helpers.data.glove import Embeddings
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.settings import small_profile
from helpers.studies.argument_cues.arguments import (
    INPUTS,
    SPLITS,
    Argument,
    Arguments,
    adversarial,
    swapped,
)
from helpers.studies.argument_cues.scores import (
    MIRRORED,
    ORIGINAL,
    SWAPPED,
    score_table,
    seed_table,
    with_paper,
)
from helpers.studies.argument_cues.warrant_models import ENCODERS, SCHEDULES, prepare, train_chooser
from helpers.studies.argument_cues.warrants import WarrantRecipe, choose_warrants
from helpers.studies.fine_tune import stacked

ENCODER, CONTROL = "encoder", "random-init encoder"
CONTROL_INPUTS = ("warrants", "all")
EVERYTHING = "all"
RECIPE = WarrantRecipe(epochs=3, learning_rate=1e-4, batch_size=8, max_tokens=64)
SMALL_MODEL_SEEDS = 10  # at least

Splits = dict[str, list[Argument]]
Choices = Int[np.ndarray, "*seed argument"]


class Run(NamedTuple):
    """What trains on what: a part of the arguments of one of the `TRAINING` sets."""

    model: str
    train: str
    inputs: str

    @property
    def wanted(self) -> bool:
        """Whether there is such a run: see `choice_tables`."""
        if self.train == SWAPPED:
            return self.model == ENCODER
        if self.train == MIRRORED:
            return self.model != CONTROL and self.inputs == EVERYTHING
        return self.model != CONTROL or self.inputs in CONTROL_INPUTS


class Job(NamedTuple):
    """A training of one run, with one seed or several; ``steps`` is how often it reports."""

    run: Run
    steps: int
    train: Callable[[StepDone], Choices]
    depends_on: dict[str, Any]

    @property
    def cost(self) -> int:
        """A rough measure of its time: texts are longer the more parts they have."""
        return self.steps * len(INPUTS[self.run.inputs]) * (1 if self.run.model in ENCODERS else 10)

    def choices(self, step_done: StepDone) -> Choices:
        """Train, or find what was chosen before: hours of training may be interrupted."""
        left = iter(range(self.steps))

        def step() -> None:
            next(left)
            step_done()

        found = cached_arrays(
            "warrant-choices",
            lambda: {"choices": self.train(step)},
            code=code_of(self.train),
            depends_on=self.depends_on | {"run": self.run},
        )
        for _ in left:
            step_done()
        return found["choices"]


def choice_tables(
    corpus: Arguments,
    encoder: Encoder,
    control: Callable[[int], Encoder],
    vectors: Embeddings,
    *,
    examples: int,
    max_tokens: int,
    seeds: int,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Train every model on every part of the arguments, once; the tables are kept.

    The bag of vectors, the BiLSTM and the encoder are trained on the originals, on each of
    `INPUTS`, and the encoder on swapped warrants too, as in the paper's Table 4.  All train on
    originals and counterparts as well where the corpus has these for training, but on whole
    arguments only (of what does not show the claim, half is right by construction).

    ``control`` takes a seed and returns the model with random weights; ``vectors`` are for the
    small models, of which `SMALL_MODEL_SEEDS` are trained, and ``seeds`` of the encoder.

    ``partial_inputs`` has corpus (its name), model, train, inputs, and the columns of
    `score_table` and, unless the cue is planted, of `with_paper`; ``partial_input_seeds`` has
    model, train, inputs, and the columns of `seed_table`.
    """
    epochs = 1 if small_profile() else RECIPE.epochs
    recipe = replace(RECIPE, epochs=epochs, max_tokens=min(RECIPE.max_tokens, max_tokens))
    own = range(seed, seed + seeds)
    small = range(seed, seed + (1 if small_profile() else max(SMALL_MODEL_SEEDS, seeds)))
    facts = {
        "arguments": corpus.fingerprint,
        "vectors": vectors.fingerprint,
        "train": examples,
        "seeds": (seed, seeds, len(small)),
        "recipe": asdict(recipe),
    }
    facts |= _facts(encoder)

    def compute() -> dict[str, pd.DataFrame]:
        splits = training_sets(corpus, examples)
        jobs = _jobs(splits, encoder, control, vectors, recipe, own, small)
        return _tables(_choices(jobs, encoder), corpus, splits[ORIGINAL]["test"], seed)

    return cached_tables("argument-cues", compute, depends_on=facts)


def training_sets(corpus: Arguments, examples: int = 0) -> dict[str, Splits]:
    """Return what to train and validate on, and all that there is to test on.

    `ORIGINAL` has the arguments as written, at most ``examples`` of them to train on (0: all).
    `SWAPPED` has each a second time with its warrants swapped, and is validated on both halves;
    to a model that scores each warrant by itself the second is the first again.  `MIRRORED` has
    the counterparts, their claims negated.  Either is there where the corpus can give it.
    """
    train, dev = corpus.part("train")[: examples or None], corpus.part("dev")
    test = corpus.part("test") + corpus.part("test", adversarial=True)
    sets = {ORIGINAL: (train, dev)}
    if counterparts := corpus.part("dev", adversarial=True):
        sets[SWAPPED] = train + swapped(train), dev + counterparts
    if corpus.can_mirror:
        sets[MIRRORED] = train + adversarial(train), dev + adversarial(dev)
    return {name: dict(zip(SPLITS, (*both, test), strict=True)) for name, both in sets.items()}


def _jobs(
    splits: dict[str, Splits],
    encoder: Encoder,
    control: Callable[[int], Encoder],
    vectors: Embeddings,
    recipe: WarrantRecipe,
    seeds: Sequence[int],
    small_seeds: Sequence[int],
) -> list[Job]:
    """Return what there is to train, in the order of the tables; small models train all seeds."""
    texts = {name: prepare(own, vectors.vectors) for name, own in splits.items() if name != SWAPPED}
    encoders = {seed: {ENCODER: encoder, CONTROL: control(seed)} for seed in seeds}
    jobs = []
    for run in map(Run._make, product((*ENCODERS, ENCODER, CONTROL), splits, INPUTS)):
        own = splits[run.train]
        if run.wanted and run.model in ENCODERS:
            train = partial(train_chooser, run.model, run.inputs, texts[run.train], small_seeds)
            facts = {"arguments": own, "vectors": vectors.fingerprint, "seeds": list(small_seeds)}
            jobs.append(Job(run, SCHEDULES[run.model].epochs_for(len(own["train"])), train, facts))
        elif run.wanted:
            # Of twice as many arguments half the epochs are as many steps.
            epochs = recipe.epochs if run.train == ORIGINAL else -(-recipe.epochs // 2)
            how = replace(recipe, epochs=epochs)
            for seed in seeds:
                started = encoders[seed][run.model]
                train = partial(choose_warrants, started, own, run.inputs, seed, how)
                facts = {"arguments": own, "seed": seed, "recipe": asdict(how)}
                facts |= _facts(started)
                jobs.append(Job(run, how.steps(len(own["train"])), train, facts))
    return jobs


def _facts(encoder: Encoder) -> dict[str, Any]:
    """Return what of a model decides how it learns."""
    tokenizer = encoder.tokenizer_sha256
    return {"model": encoder.identity, "tokenizer": tokenizer, "dtype": encoder.dtype}


def _choices(jobs: Sequence[Job], encoder: Encoder) -> dict[Run, Choices]:
    """Do the jobs and return the choices of each run, of all its seeds."""
    # The longest first, so that no thread is left with one at the end.
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i].cost)
    found = run_jobs(
        [jobs[i].choices for i in order],
        encoder.device,
        label="choosing warrants",
        unit="step",
        total=sum(job.steps for job in jobs),
    )
    choices: dict[Run, list[Choices]] = {}
    for index, one in sorted(zip(order, found, strict=True), key=lambda pair: pair[0]):
        choices.setdefault(jobs[index].run, []).append(np.atleast_2d(one))
    return {run: np.concatenate(rows) for run, rows in choices.items()}


def _tables(
    choices: dict[Run, Choices], corpus: Arguments, test: Sequence[Argument], seed: int
) -> dict[str, pd.DataFrame]:
    def by_run(table_of: Callable[..., pd.DataFrame]) -> pd.DataFrame:
        return stacked({run: table_of(own, test) for run, own in choices.items()}, *Run._fields)

    table = by_run(partial(score_table, seed=seed))
    table = table if corpus.planted else with_paper(table)
    table.insert(0, "corpus", corpus.name)
    return {"partial_inputs": table, "partial_input_seeds": by_run(seed_table)}
