"""The accuracy of models that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is incomplete.  What a model gets right with only the
warrants it therefore gets right because of cues.  An adversarial counterpart has the same warrants
and the other label: on an argument and its counterpart together, a model that is not shown the
claim is right once and wrong once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.cache import cached
from helpers.data.glove import Embeddings
from helpers.metrics.statistics import ratio
from helpers.model.encoder import Encoder
from helpers.settings import small_profile
from helpers.store.extract import model_key
from helpers.studies.common.fine_tune import Recipe, concat_with_keys
from helpers.studies.niven2019 import choosers
from helpers.studies.niven2019.arguments import Argument, Arguments
from helpers.studies.niven2019.choosers import BAG, BILSTM, ENCODER, EncoderChooser, WordChooser
from helpers.studies.niven2019.cues import AS_WRITTEN, BOTH, argument_sets, published_values
from helpers.torch_utils import batch_threads, thread_map

MODELS = (BAG, BILSTM, ENCODER)
SMALL_MODELS = (BAG, BILSTM)
# The encoder with random weights, by the prefix of the names of its tables.
CONTROL_ENCODERS = {"random_": "random-init encoder", "entropy_matched_": "entropy-matched encoder"}
WARRANTS = "warrants"
EVERYTHING = "all"
STATISTICS = ("mean", "median", "max")
# The sets that a model is trained and validated on: originals; these and the same with their
# warrants swapped, validated on both halves as in the paper; originals and counterparts.
TRAINING_SETS = ORIGINAL, SWAPPED, NEGATED = ("original", "swapped", "negated")
RECIPES = {
    BAG: Recipe(epochs=20, learning_rate=3e-3, batch_size=16),
    BILSTM: Recipe(epochs=10, learning_rate=1e-2, batch_size=16),
    ENCODER: Recipe(epochs=3, learning_rate=1e-4, batch_size=8),
}
RECIPES |= dict.fromkeys(CONTROL_ENCODERS.values(), RECIPES[ENCODER])
MIN_SMALL_MODEL_SEEDS = 10

Splits = dict[str, list[Argument]]


class Run(NamedTuple):
    """A model, the name of the set that it is trained on, and the input that it is shown."""

    model: str
    train: str
    inputs: str


def planned_runs(sets: Mapping[str, Splits], *, planted: bool) -> list[Run]:
    """List the runs of ``runs.csv`` on the sets that there are, in the order of the tables.

    As in the paper's Table 4, the encoder is trained on swapped warrants with any input, the small
    models only with all parts.  `NEGATED` is only trained on with all parts, because a model that
    is not shown the claim is right on half of it by construction.  For a ``planted`` cue, fewer
    runs are enough: those whose column ``planted`` is true.
    """
    table = pd.read_csv(Path(__file__).with_name("runs.csv"))
    is_planned = table["train"].isin(sets)
    if planted:
        is_planned &= table["planted"]
    return [Run(*row) for row in table.loc[is_planned, list(Run._fields)].to_numpy()]


def choice_tables(
    corpus: Arguments,
    encoder: Encoder,
    control: Callable[..., Encoder],
    vectors: Embeddings,
    *,
    examples: int | None,
    max_tokens: int,
    seeds: int,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Train every model on every input and measure its accuracy; finished runs are cached.

    Parameters
    ----------
    corpus : Arguments
        The arguments and their counterparts.
    encoder : Encoder
        The model.
    control : callable
        ``control(seed, entropy_matched=...)`` returns the model with random weights, whose heads
        have the mean entropies of the model if ``entropy_matched``.
    vectors : Embeddings
        Word vectors of the small models (bag of vectors and BiLSTM).
    examples : int
        The number of arguments to train on at most; 0 for all.
    max_tokens : int
        The longest input in tokens.
    seeds : int
        Training runs of the encoder; the small models have `MIN_SMALL_MODEL_SEEDS` at least.
    seed : int
        The first seed, and the seed of the bootstrap.

    Returns
    -------
    dict of str to DataFrame
        ``partial_inputs``: the first table of `score_tables` after the columns corpus, model, train
        and inputs, with the paper's figures unless the cue is planted.
        ``partial_input_seeds``: the second table of `score_tables`, after model, train and inputs.
        Both again for each control, see `control_tables`.

    Raises
    ------
    ModelError
        If ``max_tokens`` is too long for the model, or a loss is not a number.
    """
    sets = training_sets(corpus, examples)
    small_model_seeds = 1 if small_profile() else max(MIN_SMALL_MODEL_SEEDS, seeds)
    controls = {}
    for run_seed in range(seed, seed + seeds):
        for name, is_matched in zip(CONTROL_ENCODERS.values(), (False, True), strict=True):
            controls[name, run_seed] = control(run_seed, entropy_matched=is_matched)

    def choose(job: tuple[Run, int]) -> Int[np.ndarray, " argument"]:
        run, run_seed = job
        recipe = recipe_of(run, sets, run_seed, max_tokens)
        run_encoder = controls.get((run.model, run_seed), encoder)
        return choices_in_test(run, sets[run.train], recipe, run_encoder, vectors)

    jobs = []
    for run in planned_runs(sets, planted=corpus.planted):
        n_seeds = small_model_seeds if run.model in SMALL_MODELS else seeds
        jobs += [(run, run_seed) for run_seed in range(seed, seed + n_seeds)]
    threads = batch_threads(encoder.device)
    results = thread_map(choose, jobs, label="choosing warrants", unit="training", threads=threads)
    choices = defaultdict(list)
    for (run, _), run_choices in zip(jobs, results, strict=True):
        choices[run].append(run_choices)
    tables = {}
    seed_tables = {}
    for run, by_seed in choices.items():
        tables[run], seed_tables[run] = score_tables(by_seed, sets[ORIGINAL]["test"], seed=seed)
    table = concat_with_keys(tables, *Run._fields)
    if not corpus.planted:
        table = with_paper(table)
    table.insert(0, "corpus", corpus.name)
    seed_table = concat_with_keys(seed_tables, *Run._fields)
    return control_tables({"partial_inputs": table, "partial_input_seeds": seed_table})


def control_tables(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Add the tables of each control, named with its prefix.

    A control's table has the rows of the small models, and the control's rows as the encoder's.
    """
    with_controls = dict(tables)
    for (prefix, control), (name, table) in product(CONTROL_ENCODERS.items(), tables.items()):
        as_encoder = table[table["model"] == control].assign(model=ENCODER)
        if len(as_encoder):
            small_models = table[table["model"].isin(SMALL_MODELS)]
            with_controls[prefix + name] = pd.concat([small_models, as_encoder])
    return with_controls


def recipe_of(run: Run, sets: Mapping[str, Splits], seed: int, max_tokens: int) -> Recipe:
    """Choose the recipe of a run; on any set it has as many steps as on the originals."""
    recipe = RECIPES[run.model]
    epochs = 1 if small_profile() and run.model not in SMALL_MODELS else recipe.epochs
    n_examples = epochs * len(sets[ORIGINAL]["train"])
    epochs = -(-n_examples // len(sets[run.train]["train"]))  # rounded up
    max_tokens = min(recipe.max_tokens, max_tokens)
    return replace(recipe, seed=seed, epochs=epochs, max_tokens=max_tokens)


def training_sets(corpus: Arguments, examples: int | None = None) -> dict[str, Splits]:
    """List the arguments of each of the `TRAINING_SETS` that the corpus allows.

    Parameters
    ----------
    corpus : Arguments
        The arguments and their counterparts.
    examples : int, optional
        The number of originals to train on at most; None for all.

    Returns
    -------
    dict of str to dict of str to list of Argument
        Splits by set; all sets share the test split, which is all originals and counterparts.
        `ORIGINAL`: arguments as written.
        `SWAPPED`: each original a second time with its warrants swapped, which to a model that
        scores each warrant separately is the first again; validated on dev and its counterparts.
        `NEGATED`: the originals that have a counterpart, and these; validated as `SWAPPED`.
    """
    train = corpus.part("train")[:examples]
    dev = corpus.part("dev")
    both_of_dev = dev + corpus.part("dev", adversarial=True)
    test = corpus.part("test") + corpus.part("test", adversarial=True)
    sets = {ORIGINAL: {"train": train, "dev": dev, "test": test}}
    if len(both_of_dev) > len(dev):
        swapped = [argument.swapped() for argument in train]
        sets[SWAPPED] = {"train": train + swapped, "dev": both_of_dev, "test": test}
    pairs = argument_sets(train + corpus.part("train", adversarial=True))[BOTH]
    if pairs and SWAPPED in sets:
        originals, counterparts = zip(*pairs, strict=True)
        sets[NEGATED] = {"train": [*originals, *counterparts], "dev": both_of_dev, "test": test}
    return sets


def choices_in_test(
    run: Run,
    splits: Splits,
    recipe: Recipe,
    encoder: Encoder,
    vectors: Embeddings,
) -> Int[np.ndarray, " argument"]:
    """Train a chooser and compute its choices in test, or read them from the cache.

    The choices of each run are cached because hours of training may be interrupted.
    """
    is_small = run.model in SMALL_MODELS

    def compute() -> list[int]:
        if is_small:
            chooser = WordChooser(run.model, run.inputs, vectors.vectors, seed=recipe.seed)
        else:
            chooser = EncoderChooser(encoder, run.inputs, recipe.max_tokens, seed=recipe.seed)
        return choosers.train_chooser(chooser, splits, recipe, ", ".join(run)).tolist()

    inputs = {
        "run": run,
        "arguments": splits,
        "recipe": asdict(recipe),
        "model": {"vectors": vectors.fingerprint} if is_small else model_key(encoder),
    }
    choices = cached("warrant-choices", compute, inputs=inputs)
    return np.array(choices)


def score_tables(
    choices: Sequence[Int[np.ndarray, " argument"]],
    arguments: Sequence[Argument],
    *,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure the accuracy of several training runs on each of the `ARGUMENT_SETS`.

    Parameters
    ----------
    choices : sequence of array of int, shape (seed, argument)
        The chosen warrant, 0 or 1.
    arguments : sequence of Argument
        Originals and counterparts.
    seed : int, optional
        Seed of the bootstrap.

    Returns
    -------
    table : DataFrame
        One row per set that is not empty.  Columns: test (the set), arguments, seeds; mean, median,
        max and std of the accuracy over runs (percent; std is NaN for one run); the bootstrap
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
    for set_name, clusters in argument_sets(arguments).items():
        if not clusters:
            continue
        right = 100 * is_right[[argument.id for argument in chain.from_iterable(clusters)]]
        by_argument = (
            right.mean().to_numpy().reshape(len(clusters), -1)
        )  # [cluster, argument of it]
        interval = ratio(by_argument.mean(axis=1), np.ones(len(clusters)), seed=seed)
        accuracies[set_name] = right.mean(axis=1)
        rows[set_name] = {
            "arguments": right.shape[1],
            "seeds": len(right),
            **accuracies[set_name].agg([*STATISTICS, "std"]),
            "mean_low": interval.low,
            "mean_high": interval.high,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("test").reset_index()
    by_seed = pd.concat(accuracies, names=["test", "seed"]).rename("accuracy").reset_index()
    return table, by_seed


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    The paper's encoder is BERT Large.  Its figures on both halves (Table 4) are those of `SWAPPED`.
    The small models' figures there are from a rerun in the authors' repository (IKMLab/arct2).  The
    erratum of the paper concerns the training data of these experiments: originals, without
    negated claims.  It adds that models trained with negated claims (`NEGATED`) do better than
    chance, because cues over claim and warrant together remain; the conclusions are not withdrawn.
    """
    is_as_written = (table["test"] == AS_WRITTEN) & (table["train"] == ORIGINAL)
    is_swapped = (table["test"] == BOTH) & (table["train"] == SWAPPED)
    names = table[["model", "inputs", "test"]].agg(", ".join, axis=1)
    comparable_names = names.where(is_as_written | is_swapped)
    for statistic in STATISTICS:
        published = (comparable_names + f", {statistic}").map(published_values())
        table[f"paper_{statistic}"] = published.astype(float)
    return table
