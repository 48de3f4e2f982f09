"""The accuracy of models that see only a part of an argument (Niven & Kao 2019, sections 5 and 6).

Without its reason or its claim an argument is incomplete.  What a model gets right with only the
warrants it therefore gets right because of cues.  An adversarial counterpart has the same warrants
and the other label: on an argument and its counterpart together, a model that is not shown the
claim is right once and wrong once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
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
from helpers.studies.common.jobs import StepDone, run_jobs
from helpers.studies.niven2019 import choosers
from helpers.studies.niven2019.arguments import INPUTS, SPLITS, Argument, Arguments
from helpers.studies.niven2019.choosers import BAG, BILSTM, ENCODER
from helpers.studies.niven2019.cues import AS_WRITTEN, BOTH, argument_sets, published_values

MODELS = (BAG, BILSTM, ENCODER)
SMALL_MODELS = (BAG, BILSTM)
# The encoder with random weights, by the prefix of the names of its tables.
CONTROL_ENCODERS = {"random_": "random-init encoder", "entropy_matched_": "entropy-matched encoder"}
WARRANTS = "warrants"
EVERYTHING = "all"
STATISTICS = ("mean", "median", "max")
# The sets that a model is trained and validated on: originals; these and the same with their
# warrants swapped, validated on both halves as in the paper; originals and counterparts.
TRAINING_SETS = ORIGINAL, SWAPPED, MIRRORED = ("original", "swapped", "mirrored")
RECIPES = {
    BAG: Recipe(epochs=20, learning_rate=3e-3, batch_size=16),
    BILSTM: Recipe(epochs=10, learning_rate=1e-2, batch_size=16),
    ENCODER: Recipe(epochs=3, learning_rate=1e-4, batch_size=8),
}
RECIPES |= dict.fromkeys(CONTROL_ENCODERS.values(), RECIPES[ENCODER])
MIN_SMALL_MODEL_SEEDS = 10
VALIDATION_FRACTION = 5  # if counterparts of dev are trained on, one in so many is validated on

Splits = dict[str, list[Argument]]


class Run(NamedTuple):
    """A model, the name of the set that it is trained on, and the input that it is shown."""

    model: str
    train: str
    inputs: str


def planned_runs(sets: Mapping[str, Splits], *, planted: bool) -> Iterator[Run]:
    """Yield the runs to train, in the order of the tables.

    As in the paper's Table 4, the encoder is trained on swapped warrants with any input, the small
    models only with all parts.  `MIRRORED` is only trained on with all parts, because a model that
    is not shown the claim is right on half of it by construction.  A ``planted`` cue needs fewer
    inputs.
    """
    for model, train in product((*MODELS, *CONTROL_ENCODERS.values()), sets):
        for inputs in _inputs_of(model, train, planted=planted):
            yield Run(model, train, inputs)


def _inputs_of(model: str, train: str, *, planted: bool) -> Sequence[str]:
    """List the inputs that a model is shown when it is trained on a set."""
    is_control = model in CONTROL_ENCODERS.values()
    if train == ORIGINAL and is_control:
        return (WARRANTS,) if planted else (WARRANTS, EVERYTHING)
    if train == ORIGINAL:
        return tuple(INPUTS)
    if train == SWAPPED and is_control:
        return ()
    if train == SWAPPED and model == ENCODER and not planted:
        return tuple(INPUTS)
    return (EVERYTHING,)


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
    runs = list(planned_runs(sets, planted=corpus.planted))
    control_encoders = {}
    for (prefix, name), run_seed in product(CONTROL_ENCODERS.items(), range(seed, seed + seeds)):
        control_encoders[name, run_seed] = control(
            run_seed, entropy_matched=prefix == "entropy_matched_"
        )
    small_model_seeds = 1 if small_profile() else max(MIN_SMALL_MODEL_SEEDS, seeds)
    jobs = {}
    for run in runs:
        n_seeds = small_model_seeds if run.model in SMALL_MODELS else seeds
        for run_seed in range(seed, seed + n_seeds):
            recipe = recipe_of(run, sets, run_seed, max_tokens)
            run_encoder = control_encoders.get((run.model, run_seed), encoder)
            jobs[run, run_seed] = partial(
                choices_in_test, run, sets[run.train], recipe, run_encoder, vectors
            )
    choices_of_jobs = run_jobs(
        list(jobs.values()), encoder.device, label="choosing warrants", unit="training",
        total=len(jobs),
    )  # fmt: skip
    choices = {run: [] for run in runs}
    for (run, _), job_choices in zip(jobs, choices_of_jobs, strict=True):
        choices[run].append(job_choices)
    tables = {}
    seed_tables = {}
    for run in runs:
        run_choices = np.stack(choices[run])  # [seed, argument]
        tables[run], seed_tables[run] = score_tables(run_choices, sets[ORIGINAL]["test"], seed=seed)
    table = concat_with_keys(tables, *Run._fields)
    if not corpus.planted:
        table = with_paper(table)
    table.insert(0, "corpus", corpus.name)
    by_seed = concat_with_keys(seed_tables, *Run._fields)
    return control_tables({"partial_inputs": table, "partial_input_seeds": by_seed})


def control_tables(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Add the tables of each control, named with its prefix.

    A control's table has the rows of the small models, and the control's rows as the encoder's.
    """
    with_controls = dict(tables)
    for (prefix, control), (name, table) in product(CONTROL_ENCODERS.items(), tables.items()):
        is_control = table["model"] == control
        if is_control.any():
            as_encoder = table[is_control].assign(model=ENCODER)
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
        `MIRRORED`: the originals that have a counterpart, and these.  If train has none (ARCT),
        those of dev: all but the last fifth to train on, the last fifth to validate on.
    """
    train = corpus.part("train")[:examples]
    dev = corpus.part("dev")
    negated = {split: corpus.part(split, adversarial=True) for split in SPLITS}
    test = corpus.part("test") + negated["test"]
    sets = {ORIGINAL: {"train": train, "dev": dev, "test": test}}
    if negated["dev"]:
        swapped = [argument.swapped() for argument in train]
        sets[SWAPPED] = {"train": train + swapped, "dev": dev + negated["dev"], "test": test}
    train_pairs = argument_sets(train + negated["train"])[BOTH]
    dev_pairs = argument_sets(dev + negated["dev"])[BOTH]
    if not train_pairs:
        n_train = len(dev_pairs) - len(dev_pairs) // VALIDATION_FRACTION
        train_pairs = dev_pairs[:n_train]
        dev_pairs = dev_pairs[n_train:]
    if train_pairs and dev_pairs:
        sets[MIRRORED] = {
            "train": _originals_then_counterparts(train_pairs),
            "dev": _originals_then_counterparts(dev_pairs),
            "test": test,
        }
    return sets


def _originals_then_counterparts(pairs: Sequence[Sequence[Argument]]) -> list[Argument]:
    """List the originals of some pairs, and after them the counterparts."""
    originals = [original for original, _ in pairs]
    counterparts = [counterpart for _, counterpart in pairs]
    return originals + counterparts


def choices_in_test(
    run: Run,
    splits: Splits,
    recipe: Recipe,
    encoder: Encoder,
    vectors: Embeddings,
    step_done: StepDone,
) -> Int[np.ndarray, " argument"]:
    """Train a chooser and compute its choices in test, or read them from the cache.

    The choices of each run are cached because hours of training may be interrupted.
    """
    inputs = {"run": run, "arguments": splits, "recipe": asdict(recipe)}
    if run.model in SMALL_MODELS:
        make_chooser = partial(choosers.WordChooser, run.model, run.inputs, vectors.vectors)
        inputs["vectors"] = vectors.fingerprint
    else:
        make_chooser = partial(choosers.EncoderChooser, encoder, run.inputs, recipe.max_tokens)
        inputs.update(model_key(encoder))

    def compute() -> dict[str, np.ndarray]:
        chooser = make_chooser(seed=recipe.seed)
        choices = choosers.train_chooser(chooser, splits, recipe, ", ".join(run))
        return {"choices": choices}

    choices = cached("warrant-choices", compute, inputs=inputs)["choices"]
    step_done()
    return choices


def score_tables(
    choices: Int[np.ndarray, "seed argument"], arguments: Sequence[Argument], *, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure the accuracy of several training runs on each of the `ARGUMENT_SETS`.

    Parameters
    ----------
    choices : array of int, shape (seed, argument)
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
    is_right = np.asarray(choices) == np.array([argument.label for argument in arguments])
    index_of = {argument.id: index for index, argument in enumerate(arguments)}
    rows = []
    accuracies = {}
    for set_name, clusters in argument_sets(arguments).items():
        if not clusters:
            continue
        indices = []
        for cluster in clusters:
            indices.append([index_of[argument.id] for argument in cluster])
        right = is_right[:, indices]  # [seed, cluster, argument of the cluster]
        n_seeds, n_clusters, cluster_size = right.shape
        sizes = np.full(n_clusters, cluster_size)
        _, low, high = ratio(right.mean(axis=0).sum(axis=1), sizes, seed=seed)
        accuracies[set_name] = pd.Series(100 * right.mean(axis=(1, 2)))
        statistics = accuracies[set_name].agg([*STATISTICS, "std"])
        rows.append((set_name, sizes.sum(), n_seeds, *statistics, 100 * low, 100 * high))
    columns = ["test", "arguments", "seeds", *STATISTICS, "std", "mean_low", "mean_high"]
    by_seed = pd.concat(accuracies, names=["test", "seed"]).rename("accuracy").reset_index()
    return pd.DataFrame(rows, columns=columns), by_seed


def with_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's figures of ARCT: paper_mean, paper_median and paper_max (percent).

    The paper's encoder is BERT Large.  Its figures on both halves (Table 4) are those of `SWAPPED`.
    The small models' figures there are from a rerun in the authors' repository (IKMLab/arct2).  The
    erratum of the paper concerns the training data of these experiments: originals, without
    negated claims.  It adds that models trained with negated claims (`MIRRORED`) do better than
    chance, because cues over claim and warrant together remain; the conclusions are not withdrawn.
    """
    is_as_written = (table["test"] == AS_WRITTEN) & (table["train"] == ORIGINAL)
    is_swapped = (table["test"] == BOTH) & (table["train"] == SWAPPED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"] + ", "
    for statistic in STATISTICS:
        published = (names + statistic).map(published_values())
        comparable = published.where(is_as_written | is_swapped)
        table[f"paper_{statistic}"] = comparable.astype(float)
    return table
