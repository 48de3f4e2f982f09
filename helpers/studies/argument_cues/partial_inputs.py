"""How models do that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is no argument, so whatever a model gets right of
warrants alone it gets from cues.  An adversarial counterpart has the same warrants and the other
label: on an argument and its counterpart together, a model that is not shown the claim is right
once and wrong once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_interval
from helpers.cache import cached_arrays, cached_tables
from helpers.data.glove import Embeddings
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.settings import small_profile
from helpers.studies.argument_cues.arguments import (
    INPUTS,
    MARK,
    SPLITS,
    Argument,
    Arguments,
    adversarial,
    swapped,
)
from helpers.studies.argument_cues.choosers import (
    BAG,
    BILSTM,
    ENCODER,
    EncoderChooser,
    WarrantRecipe,
    WordChooser,
    train_chooser,
)
from helpers.studies.argument_cues.cues import HALVES
from helpers.studies.fine_tune import stacked

CONTROL = "random-init encoder"
CONTROL_INPUTS = ("warrants", "all")
EVERYTHING = "all"
STATISTICS = ("mean", "median", "max")
# What a model was trained and validated on: originals; these and the same with their warrants
# swapped, validated on both halves as in the paper; originals and counterparts (claims negated).
TRAINING = ORIGINAL, SWAPPED, MIRRORED = "original", "swapped", "mirrored"
RECIPES = {
    BAG: WarrantRecipe(epochs=20, learning_rate=3e-3, batch_size=16),
    BILSTM: WarrantRecipe(epochs=10, learning_rate=1e-2, batch_size=16),
    ENCODER: WarrantRecipe(epochs=3, learning_rate=1e-4, batch_size=8),
    CONTROL: WarrantRecipe(epochs=3, learning_rate=1e-4, batch_size=8),
}
SMALL_MODEL_SEEDS = 10  # at least

Splits = dict[str, list[Argument]]


class Run(NamedTuple):
    """What trains on what: a part of the arguments of one of the `TRAINING` sets."""

    model: str
    train: str
    inputs: str


def runs(sets: dict[str, Splits]) -> Iterator[Run]:
    """Yield what is trained, in the order of the tables."""
    for model in (BAG, BILSTM, ENCODER):
        yield from (Run(model, ORIGINAL, inputs) for inputs in INPUTS)
        if model == ENCODER and SWAPPED in sets:
            yield from (Run(model, SWAPPED, inputs) for inputs in INPUTS)
        if MIRRORED in sets:
            yield Run(model, MIRRORED, EVERYTHING)
    yield from (Run(CONTROL, ORIGINAL, inputs) for inputs in CONTROL_INPUTS)


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
    small_seeds = 1 if small_profile() else max(SMALL_MODEL_SEEDS, seeds)
    numbers = {BAG: small_seeds, BILSTM: small_seeds, ENCODER: seeds, CONTROL: seeds}
    facts = {
        "arguments": corpus.fingerprint,
        "vectors": vectors.fingerprint,
        "train": examples,
        "seeds": (seed, numbers),
        "recipes": {name: asdict(_recipe(name, max_tokens)) for name in RECIPES},
    }

    def compute() -> dict[str, pd.DataFrame]:
        sets = training_sets(corpus, examples)
        controls = {own: control(own) for own in range(seed, seed + seeds)}
        trained = [
            (run, own) for run in runs(sets) for own in range(seed, seed + numbers[run.model])
        ]
        jobs = [
            partial(
                chosen, run, sets[run.train], own, _recipe(run.model, max_tokens),
                controls[own] if run.model == CONTROL else encoder, vectors,
            )
            for run, own in trained
        ]  # fmt: skip
        label = {"label": "choosing warrants", "unit": "training"}
        found = run_jobs(jobs, encoder.device, total=len(jobs), **label)
        choices: dict[Run, list[np.ndarray]] = {}
        for (run, _), one in zip(trained, found, strict=True):
            choices.setdefault(run, []).append(one)
        return _tables(choices, corpus, sets[ORIGINAL]["test"], seed)

    return cached_tables("argument-cues", compute, depends_on=facts | _facts(encoder))


def _recipe(model: str, max_tokens: int) -> WarrantRecipe:
    recipe = RECIPES[model]
    epochs = 1 if small_profile() and model in (ENCODER, CONTROL) else recipe.epochs
    return replace(recipe, epochs=epochs, max_tokens=min(recipe.max_tokens, max_tokens))


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


def chosen(
    run: Run,
    splits: Splits,
    seed: int,
    recipe: WarrantRecipe,
    encoder: Encoder,
    vectors: Embeddings,
    done: StepDone,
) -> Int[np.ndarray, " argument"]:
    """Train, or find what was chosen before: hours of training may be interrupted."""
    # Of twice as many arguments half the epochs are as many steps.
    epochs = recipe.epochs if run.train == ORIGINAL else -(-recipe.epochs // 2)
    recipe = replace(recipe, epochs=epochs)
    facts = {"run": run, "arguments": splits, "seed": seed, "recipe": asdict(recipe)}
    if run.model in (BAG, BILSTM):
        make = partial(WordChooser, run.model, run.inputs, vectors.vectors, seed=seed)
        facts |= {"vectors": vectors.fingerprint}
    else:
        make = partial(EncoderChooser, encoder, run.inputs, recipe.max_tokens, seed=seed)
        facts |= _facts(encoder)

    def choices() -> dict[str, np.ndarray]:
        return {"choices": train_chooser(make(), splits, recipe, seed, ", ".join(run))}

    code = "studies.argument_cues.partial_inputs.chosen"
    found = cached_arrays("warrant-choices", choices, code=code, depends_on=facts)["choices"]
    done()
    return found


def _facts(encoder: Encoder) -> dict[str, Any]:
    """Return what of a model decides how it learns."""
    tokenizer = encoder.tokenizer_sha256
    return {"model": encoder.identity, "tokenizer": tokenizer, "dtype": encoder.dtype}


def _tables(
    choices: dict[Run, list[np.ndarray]], corpus: Arguments, test: Sequence[Argument], seed: int
) -> dict[str, pd.DataFrame]:
    def by_run(table_of: Callable[..., pd.DataFrame]) -> pd.DataFrame:
        return stacked(
            {run: table_of(np.stack(own), test) for run, own in choices.items()}, *Run._fields
        )

    table = by_run(partial(score_table, seed=seed))
    table = table if corpus.planted else with_paper(table)
    table.insert(0, "corpus", corpus.name)
    return {"partial_inputs": table, "partial_input_seeds": by_run(seed_table)}


def score_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument], *, seed: int = 0
) -> pd.DataFrame:
    """Return the accuracy of several training runs on each half of ``arguments`` that there is.

    ``choices`` says which warrant each run chooses, 0 or 1.  Columns: test ("original",
    "adversarial", or "both": the originals that have a counterpart, with it), arguments, seeds,
    mean, median, max and std over runs (std NaN for one run), and the bootstrap interval of the
    mean over arguments, with their counterparts where there are both (ci_low, ci_high); all
    accuracies in percent.
    """
    rows = []
    for half, right in _by_half(choices, arguments).items():
        accuracies = pd.Series(100 * right.mean(axis=(1, 2)))
        sizes = np.full(right.shape[1], right.shape[2])
        low, high = bootstrap_interval(right.mean(axis=0).sum(axis=1), sizes, seed=seed)
        rows.append(
            {
                "test": half, "arguments": sizes.sum(), "seeds": len(right),
                **accuracies.agg(["mean", "median", "max", "std"]),
                "ci_low": 100 * low, "ci_high": 100 * high,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def seed_table(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> pd.DataFrame:
    """Return the accuracy (percent) of each training run: test, seed, accuracy."""
    rows = [
        (half, seed, 100 * accuracy)
        for half, right in _by_half(choices, arguments).items()
        for seed, accuracy in enumerate(right.mean(axis=(1, 2)))
    ]
    return pd.DataFrame(rows, columns=["test", "seed", "accuracy"])


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    ``table`` has model, train, inputs and test.  The paper's encoder is BERT Large; its figures
    on both halves (Table 4) are those of training with the warrants swapped and validating on
    both.  The authors have since corrected what they concluded from them: trained on negated
    claims, `MIRRORED` here, models do better than chance.
    """
    paper = values_of("Niven")
    comparable = (table["test"] == HALVES[0]) & (table["train"] == ORIGINAL)
    comparable |= (table["test"] == HALVES[2]) & (table["train"] == SWAPPED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"]
    for statistic in STATISTICS:
        values = (names + f", {statistic}").map(paper).where(comparable)
        table = table.assign(**{f"paper_{statistic}": values.astype(float)})
    return table


def _by_half(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument]
) -> dict[str, Bool[np.ndarray, "seed cluster argument"]]:
    """Return which choices are right in each half, an argument with its counterpart a cluster."""
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    place = {argument.id: index for index, argument in enumerate(arguments)}
    halves = (
        [[place[a.id]] for a in arguments if not a.adversarial],
        [[place[a.id]] for a in arguments if a.adversarial],
        [[place[a.id], place[a.id + MARK]] for a in arguments if a.id + MARK in place],
    )
    return {half: right[:, own] for half, own in zip(HALVES, halves, strict=True) if own}
