"""The accuracy of models that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is incomplete.  A model that is right with only the
warrants therefore uses cues.  An adversarial counterpart has the same warrants and the other label:
on an argument and its counterpart together, a model that is not shown the claim is right once and
wrong once.

The paper also trains on each argument a second time with its warrants swapped.  A model that scores
each warrant by itself sees the same two inputs again, so that we leave this out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from beyond.papers.argument_cues import CODE, choosers
from beyond.papers.argument_cues.arguments import Argument, Arguments
from beyond.papers.argument_cues.choosers import BAG, BILSTM, ENCODER, EncoderChooser, WordChooser
from beyond.papers.argument_cues.cues import BOTH, argument_sets, published_values
from beyond.papers.common.fine_tune import Recipe, concat_with_keys
from beyond.papers.common.threads import thread_map
from helpers.cache import cached
from helpers.data.glove import Embeddings
from helpers.files import PROJECT_ROOT
from helpers.metrics import by_model
from helpers.metrics.statistics import ratio
from helpers.model.loading import Model
from helpers.progress import batch_threads

SMALL_MODELS = (BAG, BILSTM)
MODELS = (*SMALL_MODELS, ENCODER)
SMALL_MODEL_SEEDS = 10  # they train in seconds
RANDOM = "random-init encoder"
# The sets that a model is trained on: originals; these and their counterparts.
TRAINING_SETS = ORIGINAL, NEGATED = ("original", "negated")
RECIPES = {
    BAG: Recipe(epochs=20, learning_rate=3e-3),
    BILSTM: Recipe(epochs=6, learning_rate=1e-2),
    ENCODER: Recipe(epochs=2, learning_rate=1e-4, batch_size=8),
}
RECIPES[RANDOM] = RECIPES[ENCODER]
# The committed run on the published arguments; there is none outside a checkout.
ARCT_RUN = PROJECT_ROOT / "figures/minilm-arct-later"


class Run(NamedTuple):
    """A classifier, the name of the set that it is trained on, and the input that it is shown."""

    classifier: str
    train: str
    inputs: str


def planned_runs(sets: Mapping[str, list[Argument]]) -> list[Run]:
    """List the runs of ``runs.csv`` on the sets that there are, in the order of the tables.

    `NEGATED` is only trained on with all parts, because a model that is not shown the claim is
    right on half of it by construction.
    """
    table = pd.read_csv(Path(__file__).with_name("runs.csv"))
    return [Run(*row) for row in table[table["train"].isin(sets)].to_numpy()]


def choice_tables(
    corpus: Arguments,
    encoder: Model,
    controls: Sequence[Model],
    vectors: Embeddings,
    *,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Train every model on every input and measure its accuracy; finished runs are cached.

    Parameters
    ----------
    corpus : Arguments
        The arguments and their counterparts.
    encoder : Model
        The model.
    controls : sequence of Model
        The model with random weights, for each training run of the encoder.
    vectors : Embeddings
        Word vectors of the small models (bag of vectors and BiLSTM).
    seed : int
        The first seed.  The encoder is trained from as many seeds as there are controls, the small
        models from `SMALL_MODEL_SEEDS`.

    Returns
    -------
    dict of str to DataFrame
        ``partial_inputs``: the first table of `score_tables` after the columns model, corpus,
        classifier, train and inputs, with the paper's means unless the cue is planted.
        ``partial_input_seeds``: the second table of `score_tables`, after model, classifier, train
        and inputs.  Both have the rows of the control, see `with_control`.

    Raises
    ------
    ModelError
        If a loss is not a number.
    """
    sets = training_sets(corpus)
    test = corpus.part("test") + corpus.part("test", adversarial=True)
    runs = planned_runs(sets)

    def choose(job: tuple[Run, int]) -> list[int]:
        run, run_seed = job
        recipe = recipe_of(run, run_seed)
        run_encoder = controls[run_seed - seed] if run.classifier == RANDOM else encoder
        return choices_in_test(run, sets[run.train], test, recipe, run_encoder, vectors)

    jobs: list[tuple[Run, int]] = []
    for run in runs:
        n_seeds = SMALL_MODEL_SEEDS if run.classifier in SMALL_MODELS else len(controls)
        jobs += product([run], range(seed, seed + n_seeds))
    threads = batch_threads(encoder.model.device)
    results = thread_map(choose, jobs, label="choosing warrants", unit="training", threads=threads)
    tables = {}
    seed_tables = {}
    for run in runs:
        choices = [chosen for job, chosen in zip(jobs, results, strict=True) if job[0] == run]
        tables[run], seed_tables[run] = score_tables(choices, test)
    table = concat_with_keys(tables, *Run._fields)
    if not corpus.planted:
        table = with_paper(table)
    table.insert(0, "corpus", corpus.name)
    seed_table = concat_with_keys(seed_tables, *Run._fields)
    return {
        "partial_inputs": with_control(table),
        "partial_input_seeds": with_control(seed_table),
    }


def with_control(table: pd.DataFrame) -> pd.DataFrame:
    """Add the rows of the control: those of the small models, and its own as the encoder's."""
    rows = table[table["classifier"].isin([*SMALL_MODELS, RANDOM])]
    control = rows.replace({"classifier": {RANDOM: ENCODER}})
    return by_model({"trained": table, "random": control})


def recipe_of(run: Run, seed: int) -> Recipe:
    """Choose the recipe of a run: half the epochs on `NEGATED`, which has twice the arguments."""
    recipe = RECIPES[run.classifier]
    epochs = recipe.epochs // 2 if run.train == NEGATED else recipe.epochs
    return replace(recipe, seed=seed, epochs=epochs)


def training_sets(corpus: Arguments) -> dict[str, list[Argument]]:
    """Select the arguments of each of the `TRAINING_SETS` that the corpus has.

    `NEGATED` has the originals with a counterpart, each followed by its counterpart.  It is absent
    if no argument of train has one.
    """
    train = corpus.part("train")
    sets = {ORIGINAL: train}
    paired = argument_sets(train + corpus.part("train", adversarial=True))[BOTH]
    if paired:
        sets[NEGATED] = paired
    return sets


def choices_in_test(
    run: Run,
    train: Sequence[Argument],
    test: Sequence[Argument],
    recipe: Recipe,
    encoder: Model,
    vectors: Embeddings,
) -> list[int]:
    """Train a chooser and compute its choices in test, or read them from the cache.

    The choices of each run are cached because long training may be interrupted.
    """
    is_small = run.classifier in SMALL_MODELS

    def compute() -> list[int]:
        if is_small:
            chooser = WordChooser(run.classifier, run.inputs, vectors.vectors, seed=recipe.seed)
        else:
            chooser = EncoderChooser(encoder, run.inputs, seed=recipe.seed)
        return choosers.train_chooser(chooser, train, test, recipe, ", ".join(run)).tolist()

    inputs = {
        "run": run,
        "train": train,
        "test": test,
        "recipe": recipe,
        "model": {"vectors": vectors.fingerprint} if is_small else encoder.key,
    }
    return cached("warrant-choices", compute, inputs=inputs, code=CODE)


def score_tables(
    choices: ArrayLike,
    arguments: Sequence[Argument],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure the accuracy of several training runs on each of the `argument_sets`.

    Parameters
    ----------
    choices : array-like of int, shape (seed, argument)
        The chosen warrant, 0 or 1.
    arguments : sequence of Argument
        Originals and counterparts.

    Returns
    -------
    table : DataFrame
        One row per set that is not empty.  Columns: test (the set), arguments, seeds; mean
        and std of the accuracy over runs (percent; std is NaN for one run); the bootstrap
        interval of the mean over arguments, with their counterparts in "both" (mean_low,
        mean_high).
    by_seed : DataFrame
        The accuracy of each run.  Columns: test, seed, accuracy.
    """
    labels = [argument.label for argument in arguments]
    ids = [argument.id for argument in arguments]
    is_right = pd.DataFrame(np.asarray(choices) == labels, columns=ids)
    rows = {}
    accuracies = {}
    for set_name, members in argument_sets(arguments).items():
        if not members:
            continue
        right = 100 * is_right[[argument.id for argument in members]]
        cluster_size = 2 if set_name == BOTH else 1  # an original and its counterpart
        by_cluster = right.mean().to_numpy().reshape(-1, cluster_size).mean(axis=1)
        interval = ratio(by_cluster, np.ones(len(by_cluster)))
        accuracies[set_name] = right.mean(axis=1)
        rows[set_name] = {
            "arguments": right.shape[1],
            "seeds": len(right),
            **accuracies[set_name].agg(["mean", "std"]),
            "mean_low": interval.low,
            "mean_high": interval.high,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("test").reset_index()
    by_seed = pd.concat(accuracies, names=["test", "seed"]).rename("accuracy").reset_index()
    return table, by_seed


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's mean accuracy on ARCT as a column: paper_mean (percent).

    The paper's encoder is BERT Large.  Its figures on both halves (Table 4) are those of models
    that were trained on swapped warrants, too, which to a model of one warrant are `ORIGINAL`
    again.  The small models' figures there are from a rerun in the authors' repository
    (IKMLab/arct2).  The erratum of the paper says that these models were not trained on negated
    claims, and that models which are (`NEGATED`) do better than chance, because cues over claim and
    warrant together remain; the conclusions are not withdrawn.
    """
    names = table[["classifier", "inputs", "test"]].agg(", ".join, axis=1) + ", mean"
    published = names.where(table["train"] == ORIGINAL).map(published_values())
    return table.assign(paper_mean=published.astype(float))
