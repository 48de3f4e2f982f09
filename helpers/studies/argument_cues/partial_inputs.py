"""How models do that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is no argument, so whatever a model gets right of
warrants alone it gets from cues.  An adversarial counterpart has the same warrants and the other
label: on an argument and its counterpart together, a model that is not shown the claim is right
once and wrong once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.cache import cached_tables
from helpers.data.glove import Embeddings
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.studies.argument_cues.arguments import (
    INPUTS,
    Argument,
    Arguments,
    adversarial,
    swapped,
)
from helpers.studies.argument_cues.scores import (
    MIRRORED,
    ORIGINAL,
    SWAPPED,
    TRAINING,
    score_table,
    seed_table,
    with_paper,
)
from helpers.studies.argument_cues.warrant_models import ENCODERS, epochs_of, prepare, train_chooser
from helpers.studies.argument_cues.warrants import WarrantRecipe, choose_warrants

ENCODER, CONTROL = "encoder", "random-init encoder"
CONTROL_INPUTS = ("warrants", "all")
EVERYTHING = "all"
RECIPE = WarrantRecipe(epochs=3, learning_rate=1e-4, batch_size=8, max_tokens=64)
SMALL_MODEL_SEEDS = 10  # at least

Splits = dict[str, list[Argument]]
Choices = Int[np.ndarray, "*seed argument"]


@dataclass(frozen=True)
class _Run:
    """What trains on what: a part of the arguments of one of the `TRAINING` sets."""

    model: str
    train: str
    inputs: str


@dataclass(frozen=True)
class _Job:
    """A training of one run, with one seed or several; ``steps`` is how often it reports."""

    run: _Run
    steps: int
    train: Callable[[StepDone], Choices]

    @property
    def cost(self) -> int:
        """A rough measure of its time: texts are longer the more parts they have."""
        weight = 1 if self.run.model in ENCODERS else 10
        return self.steps * len(INPUTS[self.run.inputs]) * weight


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

    Args:
        corpus: the arguments, of which ``examples`` (0: all) are to train on.
        encoder: the model.
        control: takes a seed and returns the model with random weights, its embeddings kept.
        vectors: the words of the bag of vectors and the BiLSTM.
        examples, max_tokens, seed: see `Settings`.
        seeds: training runs of the encoder; the small models have `SMALL_MODEL_SEEDS`.

    Returns:
        partial_inputs: corpus (its name), model, train, inputs, and the columns of `score_table`
        and, unless the cue is planted, of `with_paper`; partial_input_seeds: model, train,
        inputs, and the columns of `seed_table`.
    """
    small_profile = os.environ.get("ATTENTION_PROFILE") == "small"
    epochs = 1 if small_profile else RECIPE.epochs
    recipe = replace(RECIPE, epochs=epochs, max_tokens=min(RECIPE.max_tokens, max_tokens))
    own = range(seed, seed + seeds)
    small = range(seed, seed + (1 if small_profile else max(SMALL_MODEL_SEEDS, seeds)))
    facts = {
        "arguments": corpus.fingerprint,
        "model": encoder.identity,
        "tokenizer": encoder.tokenizer_sha256,
        "dtype": encoder.dtype,
        "vectors": vectors.fingerprint,
        "train": examples,
        "seeds": (seed, seeds, len(small)),
        "recipe": asdict(recipe),
    }

    def compute() -> dict[str, pd.DataFrame]:
        splits = training_sets(corpus, examples)
        jobs = [
            *_encoder_jobs(encoder, control, splits, own, recipe),
            *_small_model_jobs(vectors, splits, small),
        ]
        return _tables(_choices(jobs, encoder), corpus, seed)

    return cached_tables(
        "argument-cues",
        compute,
        depends_on=facts,
        code="studies.argument_cues.partial_inputs.choice_tables",
    )


def training_sets(corpus: Arguments, examples: int = 0) -> dict[str, Splits]:
    """Return what to train and validate on, and all that there is to test on.

    `ORIGINAL` has the arguments as written, at most ``examples`` of them to train on (0: all).
    `SWAPPED` has each a second time with its warrants swapped, and is validated on both halves;
    to a model that scores each warrant by itself the second is the first again.  `MIRRORED` has
    the counterparts, their claims negated.  Either is there where the corpus can give it.
    """
    train, dev = corpus.part("train")[: examples or None], corpus.part("dev")
    test = _test(corpus)
    found = {ORIGINAL: {"train": train, "dev": dev, "test": test}}
    if counterparts := corpus.part("dev", adversarial=True):
        more = {"train": train + swapped(train), "dev": dev + counterparts}
        found[SWAPPED] = {**more, "test": test}
    if corpus.can_mirror:
        more = {"train": train + adversarial(train), "dev": dev + adversarial(dev)}
        found[MIRRORED] = {**more, "test": test}
    return found


def _test(corpus: Arguments) -> list[Argument]:
    return corpus.part("test") + corpus.part("test", adversarial=True)


def _encoder_jobs(
    encoder: Encoder,
    control: Callable[[int], Encoder],
    splits: dict[str, Splits],
    seeds: Sequence[int],
    recipe: WarrantRecipe,
) -> list[_Job]:
    """Return a job for each run of the encoder and of the control, and each seed."""
    runs = [_Run(ENCODER, train, i) for train in (ORIGINAL, SWAPPED) for i in INPUTS]
    runs += [_Run(ENCODER, MIRRORED, EVERYTHING)]
    runs = [run for run in runs if run.train in splits]
    runs += [_Run(CONTROL, ORIGINAL, inputs) for inputs in CONTROL_INPUTS]
    jobs = []
    for seed in seeds:
        encoders = {ENCODER: encoder, CONTROL: control(seed)}
        for run in runs:
            own = splits[run.train]
            # Of twice as many arguments half the epochs are as many steps.
            epochs = recipe.epochs if run.train == ORIGINAL else -(-recipe.epochs // 2)
            how = replace(recipe, epochs=epochs)
            train = partial(choose_warrants, encoders[run.model], own, run.inputs, seed, how)
            jobs.append(_Job(run, how.steps(len(own["train"])), train))
    return jobs


def _small_model_jobs(
    vectors: Embeddings, splits: dict[str, Splits], seeds: Sequence[int]
) -> list[_Job]:
    """Return a job for each bag of vectors and BiLSTM, all seeds in one."""
    jobs = []
    for train in (ORIGINAL, MIRRORED):
        if train not in splits:
            continue
        own = splits[train]
        texts = prepare(own, vectors.vectors)
        for kind in ENCODERS:
            for inputs in INPUTS if train == ORIGINAL else [EVERYTHING]:
                epochs = epochs_of(kind, len(own["train"]))
                job = partial(train_chooser, kind, inputs, texts, seeds)
                jobs.append(_Job(_Run(kind, train, inputs), epochs, job))
    return jobs


def _choices(jobs: Sequence[_Job], encoder: Encoder) -> dict[_Run, Choices]:
    """Do the jobs and return the choices of each run, of all its seeds."""
    # The longest first, so that no thread is left with one at the end.
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i].cost)
    found = run_jobs(
        [jobs[i].train for i in order],
        encoder.device,
        label="choosing warrants",
        unit="step",
        total=sum(job.steps for job in jobs),
    )
    results = dict(zip(order, found, strict=True))
    choices: dict[_Run, list[Choices]] = {}
    for index, job in enumerate(jobs):
        choices.setdefault(job.run, []).append(np.atleast_2d(results[index]))
    return {run: np.concatenate(rows) for run, rows in choices.items()}


def _tables(choices: dict[_Run, Choices], corpus: Arguments, seed: int) -> dict[str, pd.DataFrame]:
    test, ordered = _test(corpus), sorted(choices, key=_place)
    scores = [_named(run, score_table(choices[run], test, seed=seed)) for run in ordered]
    seeds = [_named(run, seed_table(choices[run], test)) for run in ordered]
    table = pd.concat(scores, ignore_index=True)
    table = table if corpus.planted else with_paper(table)
    table.insert(0, "corpus", corpus.name)
    return {
        "partial_inputs": table,
        "partial_input_seeds": pd.concat(seeds, ignore_index=True),
    }


def _place(run: _Run) -> tuple[int, int, int]:
    """Return where a run comes in the tables."""
    models = (*ENCODERS, ENCODER, CONTROL)
    return models.index(run.model), TRAINING.index(run.train), list(INPUTS).index(run.inputs)


def _named(run: _Run, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**asdict(run))[["model", "train", "inputs", *table.columns]]
