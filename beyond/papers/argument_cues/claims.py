"""The claims of Niven and Kao (2019), measured on arguments that people wrote.

What they say is in ``niven2019.toml``; here is how they are measured.  A claim is not measured on
the bundled sample, whose cue is planted.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from beyond.claims.claim import read_claims
from beyond.claims.tables import (
    Measure,
    NotMeasurable,
    Tables,
    estimate_from_table,
    estimate_in,
    rows_of,
    rows_where,
    with_bounds,
)
from beyond.papers.argument_cues.arguments import SAMPLE_NAME
from beyond.papers.argument_cues.choosers import BAG, ENCODER
from beyond.papers.argument_cues.cues import (
    ADVERSARIAL,
    ALL_SPLITS,
    AS_WRITTEN,
    BOTH,
    CHANCE,
    NOT,
    published_values,
)
from beyond.papers.argument_cues.partial_inputs import (
    EVERYTHING,
    MODELS,
    NEGATED,
    ORIGINAL,
    WARRANTS,
)
from helpers.metrics.statistics import (
    Estimate,
    combine_in_quadrature,
    difference,
    distance_from,
    exact,
    mean_interval,
)


def productivity_of_not(tables: Tables, split: str) -> Estimate:
    """Read how often the warrant with ``not`` is right, in percent."""
    _refuse_planted_cue(tables)
    where = {"half": AS_WRITTEN, "split": split, "cue": NOT}
    return estimate_from_table(tables, "cues", "productivity", df=np.inf, **where)


def lead_of_not(tables: Tables, split: str) -> Estimate:
    """Compute the gain of ``not`` minus the gain of the next best word, in percentage points."""
    _refuse_planted_cue(tables)
    table = rows_of(tables, "cues", "half", "split", "cue", "kind", "gain")
    words = rows_where(table, half=AS_WRITTEN, split=split, kind="unigram")
    is_not = words["cue"] == NOT
    return exact(words["gain"][is_not].max() - words["gain"][~is_not].max())


def share_of_warrants(tables: Tables) -> Estimate:
    """Estimate the accuracy with warrants only, minus half of the accuracy with all parts."""
    all_parts = mean_accuracy(tables, ENCODER, EVERYTHING)
    if all_parts.value <= CHANCE:
        raise NotMeasurable("the encoder is not above chance")
    return difference(mean_accuracy(tables, ENCODER, WARRANTS), all_parts.scaled(0.5))


def lowest_with_warrants(tables: Tables) -> Estimate:
    """Estimate the lowest mean accuracy of the `MODELS`, with warrants only."""
    return min(mean_accuracy(tables, model, WARRANTS) for model in MODELS)


def encoder_with_warrants(tables: Tables) -> Estimate:
    """Estimate the encoder's mean accuracy, with warrants only."""
    return mean_accuracy(tables, ENCODER, WARRANTS)


def encoder_over_bag(tables: Tables) -> Estimate:
    """Estimate the encoder's accuracy minus the bag's, with warrants only."""
    encoder = mean_accuracy(tables, ENCODER, WARRANTS)
    bag = mean_accuracy(tables, BAG, WARRANTS)
    return difference(encoder, bag)


def highest_on_counterparts(tables: Tables) -> Estimate:
    """Estimate the highest mean accuracy of the `MODELS` on counterparts, with all parts."""
    return max(mean_accuracy(tables, model, EVERYTHING, test=ADVERSARIAL) for model in MODELS)


def distance_from_chance(tables: Tables) -> Estimate:
    """Estimate the absolute distance of the encoder's accuracy from chance."""
    accuracy = mean_accuracy(tables, ENCODER, EVERYTHING, test=BOTH)
    return distance_from(accuracy, CHANCE)


def encoder_on_negated(tables: Tables) -> Estimate:
    """Estimate the encoder's accuracy on both sets, trained on arguments and counterparts."""
    return mean_accuracy(tables, ENCODER, EVERYTHING, train=NEGATED, test=BOTH)


def mean_accuracy(
    tables: Tables, model: str, inputs: str, *, train: str = ORIGINAL, test: str = AS_WRITTEN
) -> Estimate:
    """Estimate a mean accuracy over training runs, in percent.

    The interval combines the spread over seeds with the interval over test arguments.
    """
    _refuse_planted_cue(tables)
    where = {"model": model, "train": train, "inputs": inputs, "test": test}
    columns = [*where, *with_bounds("mean"), "arguments"]
    row = rows_where(rows_of(tables, "partial_inputs", *columns), **where).iloc[0]
    clusters = row["arguments"] / (2 if test == BOTH else 1)
    over_arguments = estimate_in(row, "mean", df=clusters - 1)
    by_seed = rows_of(tables, "partial_input_seeds", *where, "accuracy")
    over_seeds = mean_interval(rows_where(by_seed, **where)["accuracy"])
    return combine_in_quadrature(over_arguments, over_seeds)


def _refuse_planted_cue(tables: Tables) -> None:
    """Raise `NotMeasurable` on the bundled sample: its planted cue supports no claim."""
    for table in tables.values():
        if "corpus" in table and (table["corpus"] == SAMPLE_NAME).any():
            raise NotMeasurable("the cue of the bundled sample is planted")


MEASURES: dict[str, Measure] = {
    "niven-not-right": partial(productivity_of_not, split=ALL_SPLITS),
    "niven-not-strongest": partial(lead_of_not, split=ALL_SPLITS),
    "niven-not-right-in-test": partial(productivity_of_not, split="test"),
    "niven-not-strongest-in-test": partial(lead_of_not, split="test"),
    "niven-warrants-most": share_of_warrants,
    "niven-warrants-every-model": lowest_with_warrants,
    "niven-warrants-encoder": encoder_with_warrants,
    "niven-encoder-over-bag": encoder_over_bag,
    "niven-counterparts-below-chance": highest_on_counterparts,
    "niven-both-at-chance": distance_from_chance,
    "niven-trained-on-negated": encoder_on_negated,
}
CLAIMS = read_claims(
    Path(__file__).with_suffix(".toml"),
    MEASURES,
    paper_numbers={**published_values(), "chance": CHANCE},
)
