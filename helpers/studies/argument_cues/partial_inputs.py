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
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import ratio
from helpers.cache import cached
from helpers.data.glove import Embeddings
from helpers.model.encoder import Encoder
from helpers.settings import small_profile
from helpers.store.extract import encoder_facts
from helpers.studies.argument_cues import choosers
from helpers.studies.argument_cues.arguments import INPUTS, SPLITS, Argument, Arguments
from helpers.studies.argument_cues.choosers import BAG, BILSTM, ENCODER
from helpers.studies.argument_cues.cues import HALVES, halves_of
from helpers.studies.fine_tune import Recipe, stacked
from helpers.studies.jobs import StepDone, run_jobs

CONTROL = "random-init encoder"
MODELS = (BAG, BILSTM, ENCODER)
WARRANTS, EVERYTHING = "warrants", "all"
STATISTICS = ("mean", "median", "max")
# What a model was trained and validated on: originals; these and the same with their warrants
# swapped, validated on both halves as in the paper; originals and counterparts (claims negated).
TRAINING = ORIGINAL, SWAPPED, MIRRORED = "original", "swapped", "mirrored"
RECIPES = {
    BAG: Recipe(epochs=20, learning_rate=3e-3, batch_size=16),
    BILSTM: Recipe(epochs=10, learning_rate=1e-2, batch_size=16),
    ENCODER: Recipe(epochs=3, learning_rate=1e-4, batch_size=8),
}
RECIPES[CONTROL] = RECIPES[ENCODER]
SMALL_MODEL_SEEDS = 10  # at least

Splits = dict[str, list[Argument]]


class Run(NamedTuple):
    """What trains on what: a part of the arguments of one of the `TRAINING` sets."""

    model: str
    train: str
    inputs: str


def runs(sets: dict[str, Splits]) -> Iterator[Run]:
    """Yield what is trained, in the order of the tables.

    The encoder learns from swapped warrants too, as in the paper's Table 4.  `MIRRORED` is shown
    whole: of what does not show the claim, half is right by construction.
    """
    for model in MODELS:
        yield from (Run(model, ORIGINAL, inputs) for inputs in INPUTS)
        if model == ENCODER and SWAPPED in sets:
            yield from (Run(model, SWAPPED, inputs) for inputs in INPUTS)
        if MIRRORED in sets:
            yield Run(model, MIRRORED, EVERYTHING)
    yield from (Run(CONTROL, ORIGINAL, inputs) for inputs in (WARRANTS, EVERYTHING))


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
    """Train every model on every part of the arguments, once; what they choose is kept.

    ``control`` takes a seed and returns the model with random weights; ``vectors`` are for the
    small models, of which `SMALL_MODEL_SEEDS` are trained, and ``seeds`` of the encoder.

    ``partial_inputs`` and ``partial_input_seeds`` are `score_tables` after model, train and
    inputs; the first begins with corpus (its name), and has `with_paper` unless the cue is planted.
    """
    small_seeds = 1 if small_profile() else max(SMALL_MODEL_SEEDS, seeds)
    sets = training_sets(corpus, examples)
    controls = {own: control(own) for own in range(seed, seed + seeds)}
    jobs = {
        (run, own): partial(
            chosen, run, sets[run.train], recipe_of(run, own, max_tokens),
            controls[own] if run.model == CONTROL else encoder, vectors,
        )
        for run in runs(sets)
        for own in range(seed, seed + (small_seeds if run.model in (BAG, BILSTM) else seeds))
    }  # fmt: skip
    found = run_jobs(
        [*jobs.values()], encoder.device, label="choosing warrants", unit="training",
        total=len(jobs),
    )  # fmt: skip
    made, test = dict(zip(jobs, found, strict=True)), sets[ORIGINAL]["test"]
    choices = {run: np.stack([made[job] for job in jobs if job[0] == run]) for run in runs(sets)}
    scores = {run: score_tables(own, test, seed=seed) for run, own in choices.items()}
    table, by_seed = (
        stacked({run: both[part] for run, both in scores.items()}, *Run._fields) for part in (0, 1)
    )
    table = table if corpus.planted else with_paper(table)
    table.insert(0, "corpus", corpus.name)
    return {"partial_inputs": table, "partial_input_seeds": by_seed}


def recipe_of(run: Run, seed: int, max_tokens: int) -> Recipe:
    """Return how a model is trained."""
    recipe = RECIPES[run.model]
    epochs = 1 if small_profile() and run.model in (ENCODER, CONTROL) else recipe.epochs
    if run.train != ORIGINAL:  # of twice as many arguments half the epochs are as many steps
        epochs = -(-epochs // 2)
    tokens = min(recipe.max_tokens, max_tokens)
    return replace(recipe, seed=seed, epochs=epochs, max_tokens=tokens)


def training_sets(corpus: Arguments, examples: int = 0) -> dict[str, Splits]:
    """Return what to train and validate on, and all that there is to test on.

    `ORIGINAL` has the arguments as written, at most ``examples`` of them to train on (0: all).
    `SWAPPED` has each a second time with its warrants swapped: to a model that scores each warrant
    by itself, the first again.  `MIRRORED` has the counterparts.  Either is there where the corpus
    can give it.
    """
    train, dev = corpus.part("train")[: examples or None], corpus.part("dev")
    test = corpus.part("test") + corpus.part("test", adversarial=True)
    sets = {ORIGINAL: (train, dev)}
    if counterparts := corpus.part("dev", adversarial=True):
        sets[SWAPPED] = train + [one.swapped() for one in train], dev + counterparts
    if all(argument.negated_claim for argument in train + dev):
        sets[MIRRORED] = tuple(own + [one.counterpart() for one in own] for own in (train, dev))
    return {name: dict(zip(SPLITS, (*both, test), strict=True)) for name, both in sets.items()}


def chosen(
    run: Run,
    splits: Splits,
    recipe: Recipe,
    encoder: Encoder,
    vectors: Embeddings,
    done: StepDone,
) -> Int[np.ndarray, " argument"]:
    """Train, or find what was chosen before: hours of training may be interrupted."""
    facts = {"run": run, "arguments": splits, "recipe": asdict(recipe)}
    if run.model in (BAG, BILSTM):
        make = partial(choosers.WordChooser, run.model, run.inputs, vectors.vectors)
        facts |= {"vectors": vectors.fingerprint}
    else:
        make = partial(choosers.EncoderChooser, encoder, run.inputs, recipe.max_tokens)
        facts |= encoder_facts(encoder)

    def choices() -> dict[str, np.ndarray]:
        chooser = make(seed=recipe.seed)
        return {"choices": choosers.train_chooser(chooser, splits, recipe, ", ".join(run))}

    found = cached("warrant-choices", choices, depends_on=facts)["choices"]
    done()
    return found


def score_tables(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument], *, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the accuracy (percent) of several training runs on each half that there is.

    ``choices`` says which warrant each run chooses, 0 or 1.  Columns: test (one of `HALVES`),
    arguments, seeds, mean, median, max and std over runs (std NaN for one run), and the bootstrap
    interval of the mean over arguments, with their counterparts where there are both (ci_low,
    ci_high).  Beside it, the accuracy of each run: test, seed, accuracy.
    """
    right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    place = {argument.id: index for index, argument in enumerate(arguments)}
    rows, of_runs = [], {}
    for half, clusters in halves_of(arguments).items():
        if clusters:
            own = right[:, [[place[one.id] for one in cluster] for cluster in clusters]]
            sizes = np.full(own.shape[1], own.shape[2])
            bounds = ratio(own.mean(axis=0).sum(axis=1), sizes, seed=seed)[1:]
            of_runs[half] = pd.Series(100 * own.mean(axis=(1, 2)))
            statistics = of_runs[half].agg([*STATISTICS, "std"])
            rows.append((half, sizes.sum(), len(own), *statistics, *(100 * b for b in bounds)))
    columns = ["test", "arguments", "seeds", *STATISTICS, "std", "ci_low", "ci_high"]
    by_seed = pd.concat(of_runs, names=["test", "seed"]).rename("accuracy").reset_index()
    return pd.DataFrame(rows, columns=columns), by_seed


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    The paper's encoder is BERT Large; its figures on both halves (Table 4) are those of `SWAPPED`.
    The authors have since corrected what they concluded from them: trained on negated claims,
    `MIRRORED` here, models do better than chance.
    """
    comparable = (table["test"] == HALVES[0]) & (table["train"] == ORIGINAL)
    comparable |= (table["test"] == HALVES[2]) & (table["train"] == SWAPPED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"] + ", "
    for statistic in STATISTICS:
        published = (names + statistic).map(values_of("Niven"))
        table[f"paper_{statistic}"] = published.where(comparable).astype(float)
    return table
