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
from itertools import chain, product
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

MODELS = (BAG, BILSTM, ENCODER)
# The encoder with random weights, by what the names of its tables begin with.
CONTROLS = {"control_": "random-init encoder", "focused_": "focused encoder"}
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
RECIPES |= dict.fromkeys(CONTROLS.values(), RECIPES[ENCODER])
SMALL_MODEL_SEEDS = 10  # at least
HELD_OUT = 5  # where the counterparts of dev are trained on, one in so many is validated on

Splits = dict[str, list[Argument]]


class Run(NamedTuple):
    """What trains on what: a part of the arguments of one of the `TRAINING` sets."""

    model: str
    train: str
    inputs: str


def runs(sets: dict[str, Splits], *, planted: bool) -> Iterator[Run]:
    """Yield what is trained, in the order of the tables.

    As in the paper's Table 4 the encoder learns from swapped warrants with any part shown, the
    small models with everything.  `MIRRORED` is shown whole: of what does not show the claim, half
    is right by construction.  A ``planted`` cue needs fewer parts.
    """
    shown = {model: {ORIGINAL: INPUTS} for model in MODELS}
    shown[ENCODER][SWAPPED] = (EVERYTHING,) if planted else INPUTS
    ends = (WARRANTS,) if planted else (WARRANTS, EVERYTHING)
    shown |= {model: {ORIGINAL: ends, SWAPPED: ()} for model in CONTROLS.values()}
    for model, of_sets in shown.items():
        for train in sets:
            parts = of_sets.get(train, (EVERYTHING,))
            yield from (Run(model, train, inputs) for inputs in parts)


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
    """Train every model on every part of the arguments, once; what they choose is kept.

    ``control`` takes a seed, and whether it is ``focused``, and returns the model with random
    weights; ``vectors`` are for the small models, of which `SMALL_MODEL_SEEDS` are trained, and
    ``seeds`` of the encoder.

    ``partial_inputs`` and ``partial_input_seeds`` are `score_tables` after model, train and
    inputs; the first begins with corpus (its name), and has `with_paper` unless the cue is planted.
    Beside them are `control_tables`.
    """
    small_seeds = 1 if small_profile() else max(SMALL_MODEL_SEEDS, seeds)
    sets = training_sets(corpus, examples)
    wanted = [*runs(sets, planted=corpus.planted)]
    encoders = {
        (name, own): control(own, focused=kind == "focused_")
        for kind, name in CONTROLS.items()
        for own in range(seed, seed + seeds)
    }
    jobs = {
        (run, own): partial(
            chosen, run, sets[run.train], recipe_of(run, sets, own, max_tokens),
            encoders.get((run.model, own), encoder), vectors,
        )
        for run in wanted
        for own in range(seed, seed + (small_seeds if run.model in (BAG, BILSTM) else seeds))
    }  # fmt: skip
    found = run_jobs(
        [*jobs.values()], encoder.device, label="choosing warrants", unit="training",
        total=len(jobs),
    )  # fmt: skip
    made, test = dict(zip(jobs, found, strict=True)), sets[ORIGINAL]["test"]
    choices = {run: np.stack([made[job] for job in jobs if job[0] == run]) for run in wanted}
    scores = {run: score_tables(own, test, seed=seed) for run, own in choices.items()}
    table, by_seed = (
        stacked({run: both[part] for run, both in scores.items()}, *Run._fields) for part in (0, 1)
    )
    table = table if corpus.planted else with_paper(table)
    table.insert(0, "corpus", corpus.name)
    return control_tables({"partial_inputs": table, "partial_input_seeds": by_seed})


def control_tables(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return tables with those of each control: its rows as the encoder's, and the small models."""
    found = dict(tables)
    for (kind, control), (name, table) in product(CONTROLS.items(), tables.items()):
        if (own := table["model"] == control).any():
            rows = table[own].assign(model=ENCODER)
            found[kind + name] = pd.concat([table[table["model"].isin((BAG, BILSTM))], rows])
    return found


def recipe_of(run: Run, sets: dict[str, Splits], seed: int, max_tokens: int) -> Recipe:
    """Return how a model is trained: whatever its set, for as many steps as on the originals."""
    recipe = RECIPES[run.model]
    epochs = 1 if small_profile() and run.model not in (BAG, BILSTM) else recipe.epochs
    originals, own = (len(sets[name]["train"]) for name in (ORIGINAL, run.train))
    epochs = -(-epochs * originals // own)
    tokens = min(recipe.max_tokens, max_tokens)
    return replace(recipe, seed=seed, epochs=epochs, max_tokens=tokens)


def training_sets(corpus: Arguments, examples: int | None = None) -> dict[str, Splits]:
    """Return what to train and validate on, and all that there is to test on.

    `ORIGINAL` has the arguments as written, at most ``examples`` of them to train on (None: all).
    `SWAPPED` has each a second time with its warrants swapped: to a model that scores each warrant
    by itself, the first again.  `MIRRORED` has those with a counterpart and these; where there are
    none to train on (ARCT), those of dev but the last fifth, which is validated on.  Either is
    there where the corpus can give it.
    """
    train, dev = corpus.part("train")[:examples], corpus.part("dev")
    negated = {split: corpus.part(split, adversarial=True) for split in SPLITS}
    sets = {ORIGINAL: (train, dev)}
    if negated["dev"]:
        sets[SWAPPED] = train + [one.swapped() for one in train], dev + negated["dev"]
    pairs, held_out = (
        halves_of(own + negated[split])[HALVES[2]]
        for split, own in (("train", train), ("dev", dev))
    )
    if not pairs:
        most = len(held_out) - len(held_out) // HELD_OUT
        pairs, held_out = held_out[:most], held_out[most:]
    if pairs and held_out:
        sets[MIRRORED] = tuple([*chain(*zip(*own, strict=True))] for own in (pairs, held_out))
    test = corpus.part("test") + negated["test"]
    return {name: dict(zip(SPLITS, (*both, test), strict=True)) for name, both in sets.items()}


def chosen(
    run: Run, splits: Splits, recipe: Recipe, encoder: Encoder, vectors: Embeddings, done: StepDone
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

    found = cached("warrant-choices", choices, inputs=facts, module=__name__)["choices"]
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

    The paper's encoder is BERT Large; its figures on both halves (Table 4) are those of `SWAPPED`,
    those of the small models there are of a rerun in the authors' repository (IKMLab/arct2).  Its
    erratum is about what the training data of these experiments were: originals, without negated
    claims.  With these in training (`MIRRORED`), it adds, models do better than chance, because
    cues over claim and warrant together remain; what was concluded is not taken back.
    """
    comparable = (table["test"] == HALVES[0]) & (table["train"] == ORIGINAL)
    comparable |= (table["test"] == HALVES[2]) & (table["train"] == SWAPPED)
    names = table["model"] + ", " + table["inputs"] + ", " + table["test"] + ", "
    for statistic in STATISTICS:
        published = (names + statistic).map(values_of("Niven"))
        table[f"paper_{statistic}"] = published.where(comparable).astype(float)
    return table
