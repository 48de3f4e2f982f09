"""Notebook 09: the cues in warrants, and models that are shown a part of an argument.

corpus = argument_cues.arguments(study)
tables = argument_cues.choice_tables(study)  # partial_inputs, partial_input_seeds

How models do that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

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
from jaxtyping import Bool, Float, Int

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_interval
from helpers.cache import cached_tables
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.studies.argument_cues import arguments as data
from helpers.studies.argument_cues import warrant_models
from helpers.studies.argument_cues.arguments import (
    INPUTS,
    MARK,
    Argument,
    Arguments,
    argument_corpus,
)
from helpers.studies.argument_cues.cues import HALVES
from helpers.studies.argument_cues.warrant_models import ENCODERS, epochs_of, prepare, train_chooser
from helpers.studies.argument_cues.warrants import WarrantRecipe, choose_warrants
from helpers.study import Study

ENCODER, CONTROL = "encoder", "random-init encoder"
CONTROL_INPUTS = ("warrants", "all")
EVERYTHING = "all"
RECIPE = WarrantRecipe(epochs=3, learning_rate=1e-4, batch_size=8, max_tokens=64)
SMALL_MODEL_SEEDS = 10  # at least; the encoder has the study's

Splits = dict[str, list[Argument]]


@dataclass(frozen=True)
class _Run:
    """What trains on what: the part of an argument, and originals alone or mirrored."""

    model: str
    train: str
    inputs: str


def arguments(study: Study) -> Arguments:
    """Return the study's arguments.

    Raises:
        InputError: ``arct`` is neither a name nor a folder of arguments.
        CorpusError: a file of them is damaged.
    """
    return argument_corpus(study.arct)


def choice_tables(study: Study) -> dict[str, pd.DataFrame]:
    """Train every model on every part of the arguments, once; the tables are kept.

    The bag of vectors, the BiLSTM and the encoder are trained on the originals, on each of
    `INPUTS`; on originals and counterparts too where the corpus has these for training, but on
    whole arguments only (of what does not show the claim, half is right by construction).  The
    control is the encoder with random weights, its embeddings kept.

    Returns:
        partial_inputs: model, train, inputs, and the columns of `score_table` and `with_paper`;
        partial_input_seeds: model, train, inputs, and the columns of `seed_table`.
    """
    corpus = arguments(study)
    small = 1 if _small_profile() else max(SMALL_MODEL_SEEDS, study.seeds)
    recipe = _recipe(study)
    facts = {
        "arguments": corpus.fingerprint,
        "model": study.encoder.identity,
        "tokenizer": study.encoder.tokenizer_sha256,
        "dtype": study.dtype,
        "vectors": study.embeddings.fingerprint,
        "train": study.task_examples,
        "seeds": (study.seed, study.seeds, small),
        "recipe": asdict(recipe),
    }
    return cached_tables(
        "argument-cues",
        lambda: _tables(study, corpus, small, recipe),
        depends_on=facts,
        code="studies.argument_cues.partial_inputs._tables",
    )


def _tables(
    study: Study, corpus: Arguments, small: int, recipe: WarrantRecipe
) -> dict[str, pd.DataFrame]:
    splits = {ORIGINAL: _splits(study, corpus, mirrored=False)}
    if corpus.can_mirror:
        splits[MIRRORED] = _splits(study, corpus, mirrored=True)
    work = [
        *_encoder_work(study, splits, recipe),
        *_small_model_work(study, splits, range(study.seed, study.seed + small)),
    ]
    # The longest first, so that no thread is left with one at the end.
    order = sorted(range(len(work)), key=lambda i: -_cost(*work[i][:2]))
    found = run_jobs(
        [work[i][2] for i in order],
        study.encoder.device,
        label="choosing warrants",
        unit="step",
        total=sum(steps for _, steps, _ in work),
    )
    choices: dict[_Run, list[Int[np.ndarray, "seed argument"]]] = {run: [] for run, _, _ in work}
    for index, result in sorted(zip(order, found, strict=True), key=lambda pair: pair[0]):
        choices[work[index][0]].append(np.atleast_2d(result))
    test = splits[ORIGINAL]["test"]
    whole = {run: np.concatenate(choices[run]) for run in sorted(choices, key=_place)}
    scores = [_named(run, score_table(rows, test, seed=study.seed)) for run, rows in whole.items()]
    seeds = [_named(run, seed_table(rows, test)) for run, rows in whole.items()]
    return {
        "partial_inputs": with_paper(pd.concat(scores, ignore_index=True)),
        "partial_input_seeds": pd.concat(seeds, ignore_index=True),
    }


Work = tuple[_Run, int, Callable[[StepDone], Int[np.ndarray, "..."]]]


def _encoder_work(study: Study, splits: dict[str, Splits], recipe: WarrantRecipe) -> list[Work]:
    """Return a job for each run of the encoder and of the control, with its number of steps."""
    runs = [_Run(ENCODER, ORIGINAL, inputs) for inputs in INPUTS]
    runs += [_Run(ENCODER, MIRRORED, EVERYTHING)] if MIRRORED in splits else []
    runs += [_Run(CONTROL, ORIGINAL, inputs) for inputs in CONTROL_INPUTS]
    work: list[Work] = []
    for seed in range(study.seed, study.seed + study.seeds):
        encoders = {ENCODER: study.encoder, CONTROL: _control(study, seed)}
        for run in runs:
            own = splits[run.train]
            # Of twice as many arguments half the epochs are as many steps.
            epochs = recipe.epochs if run.train == ORIGINAL else -(-recipe.epochs // 2)
            how = replace(recipe, epochs=epochs)
            steps = how.steps(len(own["train"]))
            job = partial(_choose, encoders[run.model], own, run.inputs, seed, how)
            work.append((run, steps, job))
    return work


def _recipe(study: Study) -> WarrantRecipe:
    """Return how a study's encoder is fine-tuned; in a small profile, for one epoch."""
    epochs = 1 if _small_profile() else RECIPE.epochs
    return replace(RECIPE, epochs=epochs, max_tokens=min(RECIPE.max_tokens, study.max_tokens))


def _small_profile() -> bool:
    return os.environ.get("ATTENTION_PROFILE") == "small"


def _choose(
    encoder: Encoder,
    splits: Splits,
    inputs: str,
    seed: int,
    recipe: WarrantRecipe,
    step_done: StepDone,
) -> Int[np.ndarray, " argument"]:
    return choose_warrants(
        encoder, splits, inputs=inputs, seed=seed, recipe=recipe, step_done=step_done
    )


def _small_model_work(study: Study, splits: dict[str, Splits], seeds: Sequence[int]) -> list[Work]:
    """Return a job for each bag of vectors and BiLSTM, all seeds in one."""
    work: list[Work] = []
    for train, own in splits.items():
        texts = prepare(own, study.embeddings.vectors)
        for kind in ENCODERS:
            for inputs in INPUTS if train == ORIGINAL else [EVERYTHING]:
                epochs = epochs_of(kind, len(own["train"]))
                work.append(
                    (
                        _Run(kind, train, inputs),
                        epochs,
                        partial(_train_small, kind, inputs, texts, seeds),
                    )
                )
    return work


def _train_small(
    kind: str,
    inputs: str,
    texts: dict[str, warrant_models.Texts],
    seeds: Sequence[int],
    epoch_done: StepDone,
) -> Int[np.ndarray, "seed argument"]:
    return train_chooser(kind, inputs, texts, seeds=seeds, epoch_done=epoch_done)


def _cost(run: _Run, steps: int) -> int:
    """Return a rough measure of a run's time: its texts are longer the more parts they have."""
    return steps * len(INPUTS[run.inputs]) * (1 if run.model in ENCODERS else 10)


def _splits(study: Study, corpus: Arguments, *, mirrored: bool) -> Splits:
    """Return what to train and validate on, and all that there is to test on."""
    train = corpus.part("train")[: study.task_examples or None]
    dev = corpus.part("dev")
    if mirrored:
        train, dev = train + data.adversarial(train), dev + data.adversarial(dev)
    return {
        "train": train,
        "dev": dev,
        "test": corpus.part("test") + corpus.part("test", adversarial=True),
    }


def _control(study: Study, seed: int) -> Encoder:
    """Return the model with other random weights for each seed."""
    return study.load(seed if study.random_init is None else study.random_init + 1 + seed)


def _place(run: _Run) -> tuple[int, bool, int]:
    """Return where a run comes in the tables."""
    models_in_order = (*ENCODERS, ENCODER, CONTROL)
    return models_in_order.index(run.model), run.train != ORIGINAL, list(INPUTS).index(run.inputs)


def _named(run: _Run, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(model=run.model, train=run.train, inputs=run.inputs)[
        ["model", "train", "inputs", *table.columns]
    ]


STATISTICS = ("mean", "median", "max")
# What a model was trained and validated on: originals, or them and their counterparts.
ORIGINAL, MIRRORED = "original", "mirrored"


def score_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument], *, seed: int = 0
) -> pd.DataFrame:
    """Return the accuracy of several training runs on each half of ``arguments``.

    Args:
        choices: which warrant each run chooses, 0 or 1.
        arguments: originals, and the counterparts of some or all of them.
        seed: decides the bootstrap.

    Returns:
        test ("original", "adversarial", or "both": the originals that have a counterpart, with
        it), arguments, seeds, mean, median, max and std over runs (std NaN for one run), and the
        bootstrap interval of the mean over arguments, with their counterparts where there are
        both (ci_low, ci_high); all accuracies in percent.  A half without arguments has no row.
    """
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    rows = [
        {"test": half, **_scores(right[:, columns], sizes, seed)}
        for half, columns, sizes in _halves(arguments)
        if len(columns)
    ]
    return pd.DataFrame(rows)


def seed_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> pd.DataFrame:
    """Return the accuracy (percent) of each training run: test, seed, accuracy."""
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    rows = [
        (half, seed, 100 * accuracy)
        for half, columns, _ in _halves(arguments)
        if len(columns)
        for seed, accuracy in enumerate(right[:, columns].mean(axis=1))
    ]
    return pd.DataFrame(rows, columns=["test", "seed", "accuracy"])


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    ``table`` has model, train, inputs and test.  The paper's encoder is BERT Large; its figures
    on both halves are those of training with the warrants swapped and validating on both.
    """
    paper = values_of("Niven")
    comparable = (table["test"] == HALVES[0]) & (table["train"] == ORIGINAL)
    comparable |= (table["test"] == HALVES[2]) & (table["train"] == MIRRORED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"]
    for statistic in STATISTICS:
        values = (names + f", {statistic}").map(paper).where(comparable)
        table = table.assign(**{f"paper_{statistic}": values.astype(float)})
    return table


def _scores(
    right: Bool[np.ndarray, "seed argument"], sizes: Int[np.ndarray, " cluster"], seed: int
) -> dict[str, float]:
    accuracies = 100 * right.mean(axis=1)
    mean: Float[np.ndarray, " argument"] = right.mean(axis=0)
    # "both" lists all originals and then, in the same order, all counterparts.
    low, high = bootstrap_interval(mean.reshape(-1, len(sizes)).sum(axis=0), sizes, seed=seed)
    return {
        "arguments": right.shape[1],
        "seeds": len(right),
        "mean": accuracies.mean(),
        "median": float(np.median(accuracies)),
        "max": accuracies.max(),
        "std": accuracies.std(ddof=1) if len(right) > 1 else np.nan,
        "ci_low": 100 * low,
        "ci_high": 100 * high,
    }


def _halves(
    arguments: Sequence[Argument],
) -> list[tuple[str, list[int], Int[np.ndarray, " cluster"]]]:
    """Return each half's arguments, and how many of them each cluster has."""
    place = {argument.id: index for index, argument in enumerate(arguments)}
    original = [i for i, argument in enumerate(arguments) if not argument.adversarial]
    counterparts = [i for i, argument in enumerate(arguments) if argument.adversarial]
    paired = [i for i in original if arguments[i].id + MARK in place]
    both = paired + [place[arguments[i].id + MARK] for i in paired]
    return [
        (HALVES[0], original, np.ones(len(original), int)),
        (HALVES[1], counterparts, np.ones(len(counterparts), int)),
        (HALVES[2], both, np.full(len(paired), 2)),
    ]
