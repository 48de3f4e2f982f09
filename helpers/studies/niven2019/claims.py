"""The claims of Niven and Kao (2019), measured on arguments that people wrote."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from helpers.metrics import paper
from helpers.metrics.paper import Claim, Measure, NotMeasurable, Tables, row_where, rows_of
from helpers.metrics.statistics import Estimate, combine_in_quadrature, difference, mean_interval
from helpers.studies.niven2019.arguments import SAMPLE_NAME
from helpers.studies.niven2019.choosers import BAG, ENCODER
from helpers.studies.niven2019.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    BOTH,
    CHANCE,
    NOT,
)
from helpers.studies.niven2019.partial_inputs import (
    EVERYTHING,
    MIRRORED,
    MODELS,
    ORIGINAL,
    SWAPPED,
    WARRANTS,
)


def argument_claims() -> list[Claim]:
    """List the claims of notebook 09, as ``claims.csv`` states them.

    A claim is not measured on the bundled sample, whose cue is planted.

    Returns
    -------
    list of Claim
        In the order of the file.
    """
    claims = paper.read_claims(__file__, MEASURES)
    return [replace(claim, measure=_unless_planted(claim.measure)) for claim in claims]


def lead_of_not(tables: Tables) -> float:
    """Compute the gain of ``not`` minus the gain of the next best word, in percentage points."""
    table = rows_of(tables, "cues", "half", "split", "cue", "kind", "gain")
    cues = table[(table["half"] == AS_WRITTEN) & (table["split"] == ALL_SPLITS)]
    competitors = cues[(cues["kind"] == "unigram") & (cues["cue"] != NOT)]
    return row_where(cues, cue=NOT)["gain"] - competitors["gain"].max()


def share_of_warrants(tables: Tables) -> Estimate:
    """Estimate the points above chance with warrants only, minus half of those with all parts."""
    all_parts = mean_accuracy(tables, ENCODER, EVERYTHING)
    if all_parts.value <= CHANCE:
        raise NotMeasurable("an encoder above chance")
    halfway = Estimate(*((bound + CHANCE) / 2 for bound in all_parts))  # to chance
    return difference(mean_accuracy(tables, ENCODER, WARRANTS), halfway)


def encoder_over_bag(tables: Tables) -> Estimate:
    """Estimate the encoder's accuracy minus the bag's, with warrants only."""
    encoder = mean_accuracy(tables, ENCODER, WARRANTS)
    bag = mean_accuracy(tables, BAG, WARRANTS)
    return difference(encoder, bag)


def lowest_with_warrants(tables: Tables) -> Estimate:
    """Estimate the lowest mean accuracy of the `MODELS`, with warrants only."""
    return min(mean_accuracy(tables, model, WARRANTS) for model in MODELS)


def encoder_with_warrants(tables: Tables) -> Estimate:
    """Estimate the encoder's mean accuracy, with warrants only."""
    return mean_accuracy(tables, ENCODER, WARRANTS)


def highest_on_counterparts(tables: Tables) -> Estimate:
    """Estimate the highest mean accuracy of the `MODELS` on counterparts, with all parts."""
    return max(mean_accuracy(tables, model, EVERYTHING, test=ADVERSARIAL) for model in MODELS)


def distance_from_chance(tables: Tables) -> Estimate:
    """Estimate the absolute distance of the encoder's accuracy from chance, in points."""
    accuracy = mean_accuracy(tables, ENCODER, EVERYTHING, train=SWAPPED, test=BOTH)
    mean = accuracy.value - CHANCE
    low = accuracy.low - CHANCE
    high = accuracy.high - CHANCE
    return Estimate(abs(mean), max(0, low, -high), max(-low, high))


def encoder_on_mirrored(tables: Tables) -> Estimate:
    """Estimate the encoder's accuracy on both sets, trained on arguments and counterparts."""
    return mean_accuracy(tables, ENCODER, EVERYTHING, train=MIRRORED, test=BOTH)


def mean_accuracy(
    tables: Tables, model: str, inputs: str, *, train: str = ORIGINAL, test: str = AS_WRITTEN
) -> Estimate:
    """Estimate a mean accuracy over training runs, in percent.

    The interval combines the spread over seeds with the interval over test arguments.
    """
    where = {"model": model, "train": train, "inputs": inputs, "test": test}
    columns = paper.with_bounds("mean")
    over_arguments = row_where(rows_of(tables, "partial_inputs", *where, *columns), **where)
    by_seed = rows_of(tables, "partial_input_seeds", *where, "accuracy")
    is_chosen = (by_seed[list(where)] == pd.Series(where)).all(axis=1)
    over_seeds = mean_interval(by_seed.loc[is_chosen, "accuracy"])
    return combine_in_quadrature(Estimate(*over_arguments[columns]), over_seeds)


def _unless_planted(measure: Measure) -> Measure:
    """Make a measure that refuses the bundled sample: its planted cue supports no claim."""

    def measure_unless_planted(tables: Tables) -> float | Estimate:
        for table in tables.values():
            if "corpus" in table and (table["corpus"] == SAMPLE_NAME).any():
                raise NotMeasurable("the cue of the embedded sample is planted")
        return measure(tables)

    return measure_unless_planted


MEASURES: dict[str, Measure] = {
    "lead of not": lead_of_not,
    "share of warrants": share_of_warrants,
    "lowest with warrants": lowest_with_warrants,
    "encoder with warrants": encoder_with_warrants,
    "encoder over bag": encoder_over_bag,
    "highest on counterparts": highest_on_counterparts,
    "from chance": distance_from_chance,
    "mirrored": encoder_on_mirrored,
}
