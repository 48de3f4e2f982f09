"""The claims of Niven and Kao (2019), measured on arguments that people wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from helpers.analysis import paper
from helpers.analysis.paper import Claim, Measure, NotMeasurable, Tables, row_where, rows_of
from helpers.analysis.statistics import Estimate, both_spreads, difference, mean_interval
from helpers.studies.argument_cues import partial_inputs
from helpers.studies.argument_cues.arguments import EMBEDDED
from helpers.studies.argument_cues.choosers import BAG, ENCODER
from helpers.studies.argument_cues.cues import ALL, CHANCE, HALVES, NOT
from helpers.studies.argument_cues.partial_inputs import EVERYTHING, MIRRORED, ORIGINAL, WARRANTS


def argument_claims() -> list[Claim]:
    """Return the claims of notebook 09: ``claims.csv``, measured of arguments that people wrote."""
    found = paper.read_claims(__file__, MEASURES)
    return [replace(claim, measure=partial(_written, claim.measure)) for claim in found]


def lead_of_not(tables: Tables) -> float:
    """Return by how many points ``not`` helps more than the next best word."""
    table = rows_of(tables, "cues", "half", "split", "cue", "kind", "gain")
    own = table[(table["half"] == HALVES[0]) & (table["split"] == ALL)]
    others = own[(own["kind"] == "unigram") & (own["cue"] != NOT)]
    return row_where(own, cue=NOT)["gain"] - others["gain"].max()


def more_than_half(tables: Tables) -> Estimate:
    """Return the points above chance with warrants alone, less half of those with everything."""
    whole = mean_accuracy(tables, ENCODER, EVERYTHING)
    if whole.value <= CHANCE:
        raise NotMeasurable("an encoder above chance")
    half = Estimate(*((bound + CHANCE) / 2 for bound in whole))  # as an accuracy
    return difference(mean_accuracy(tables, ENCODER, WARRANTS), half)


def encoder_less_bag(tables: Tables) -> Estimate:
    """Return by how many points the encoder outdoes the bag with warrants alone."""
    encoder, bag = (mean_accuracy(tables, model, WARRANTS) for model in (ENCODER, BAG))
    return difference(encoder, bag)


def of_models(tables: Tables, choose: Callable, inputs: str, **where: str) -> Estimate:
    """Return what ``choose`` (min or max) takes of the mean accuracies of the kinds of model."""
    return choose(mean_accuracy(tables, own, inputs, **where) for own in partial_inputs.MODELS)


def from_chance(tables: Tables) -> Estimate:
    """Return how far accuracy is from chance, on either side."""
    found = mean_accuracy(tables, ENCODER, EVERYTHING, train=partial_inputs.SWAPPED, test=HALVES[2])
    mean, low, high = (bound - CHANCE for bound in found)
    return Estimate(abs(mean), max(0, low, -high), max(-low, high))


def mean_accuracy(
    tables: Tables, model: str, inputs: str, *, train: str = ORIGINAL, test: str = HALVES[0]
) -> Estimate:
    """Return a mean over trainings; its interval has their spread and that of test arguments."""
    where = {"model": model, "train": train, "inputs": inputs, "test": test}
    columns = paper.with_bounds("mean", "ci")
    over_arguments = row_where(rows_of(tables, "partial_inputs", *where, *columns), **where)
    by_seed = rows_of(tables, "partial_input_seeds", *where, "accuracy")
    own = by_seed[(by_seed[list(where)] == pd.Series(where)).all(axis=1)]
    return both_spreads(Estimate(*over_arguments[columns]), mean_interval(own["accuracy"]))


def _written(measure: Measure, tables: Tables) -> float | Estimate:
    """Measure, but not the embedded sample: who finds its cue confirms the plant and no claim."""
    if any((own["corpus"] == EMBEDDED).any() for own in tables.values() if "corpus" in own):
        raise NotMeasurable("the cue of the embedded sample is planted")
    return measure(tables)


MEASURES: dict[str, Measure] = {
    "lead of not": lead_of_not,
    "share of warrants": more_than_half,
    "lowest with warrants": partial(of_models, choose=min, inputs=WARRANTS),
    "encoder with warrants": partial(mean_accuracy, model=ENCODER, inputs=WARRANTS),
    "encoder over bag": encoder_less_bag,
    "highest on counterparts": partial(of_models, choose=max, inputs=EVERYTHING, test=HALVES[1]),
    "from chance": from_chance,
    "mirrored": partial(
        mean_accuracy, model=ENCODER, inputs=EVERYTHING, train=MIRRORED, test=HALVES[2]
    ),
}
