"""The claims of Niven and Kao (2019), measured on arguments that people wrote.

The p-values of all claims are adjusted together (Holm), as the paper is one family.

A claim is not measured on the bundled sample, whose cue is planted.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from helpers.claims.engine import Family
from helpers.claims.tables import (
    NotMeasurable,
    Tables,
    estimate_from_table,
    estimate_in,
    rows_of,
    rows_where,
    with_bounds,
)
from helpers.metrics.statistics import (
    Estimate,
    combine_in_quadrature,
    difference,
    exact,
    mean_interval,
)
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
    MODELS,
    NEGATED,
    ORIGINAL,
    WARRANTS,
)

NIVEN = Family("Niven & Kao")
claim = NIVEN.claim
PAPER_PRODUCTIVITY = {ALL_SPLITS: 61, "test": 52}  # Tables 1 and 2
IN_SPLIT = {ALL_SPLITS: "over all splits", "test": "in the test split"}


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


for split, in_split in IN_SPLIT.items():
    claim(
        "Niven & Kao 4",
        f"The warrant with “not” is more often right than the other, {in_split}",
        how_measured=(
            "productivity of “not” in percent, the arguments taken as a sample; holds above 50"
        ),
        above=50,
        threshold_source="paper",
        paper=PAPER_PRODUCTIVITY[split],
        unit="percent",
    )(partial(productivity_of_not, split=split))

    claim(
        "Niven & Kao 4",
        f"“not” is the strongest of the words that are cues, {in_split}",
        how_measured=(
            "percentage points of accuracy over guessing from following it, minus those from the "
            "next best word; a census of these arguments, so without an interval; holds above 0"
        ),
        above=0,
        threshold_source="paper",
        unit="points",
    )(partial(lead_of_not, split=split))


@claim(
    "Niven & Kao 5",
    "Warrants alone are enough for most of what the encoder achieves",
    how_measured=(
        "its mean accuracy with warrants alone minus half of that with everything; both on the "
        "same test arguments, but their intervals are combined as if independent, which is too "
        "wide; holds above 25, because chance is 50"
    ),
    above=CHANCE / 2,
    paper=32.05,  # Table 3: means, 65.6 minus half of 67.1
    unit="points",
)
def share_of_warrants(tables: Tables) -> Estimate:
    """Estimate the accuracy with warrants only, minus half of the accuracy with all parts."""
    all_parts = mean_accuracy(tables, ENCODER, EVERYTHING)
    if all_parts.value <= CHANCE:
        raise NotMeasurable("an encoder above chance")
    return difference(mean_accuracy(tables, ENCODER, WARRANTS), all_parts.scaled(0.5))


@claim(
    "Niven & Kao 5",
    "All kinds of model get the right warrant from the warrants alone",
    how_measured=(
        "the lowest mean accuracy of bag of vectors, BiLSTM and encoder, so that the controls show "
        "nothing: they may be the bag itself; holds above 50"
    ),
    above=50,
    paper=55,  # Table 3: BiLSTM
    unit="percent",
)
def lowest_with_warrants(tables: Tables) -> Estimate:
    """Estimate the lowest mean accuracy of the `MODELS`, with warrants only."""
    return min(mean_accuracy(tables, model, WARRANTS) for model in MODELS)


@claim(
    "Niven & Kao 5",
    "The encoder gets the right warrant from the warrants alone",
    how_measured="its mean accuracy; holds above 50",
    above=50,
    paper=65.6,  # Table 3
    unit="percent",
    about_training=True,
)
def encoder_with_warrants(tables: Tables) -> Estimate:
    """Estimate the encoder's mean accuracy, with warrants only."""
    return mean_accuracy(tables, ENCODER, WARRANTS)


@claim(
    "Niven & Kao 5",
    "The encoder follows the cues better than a bag of vectors",
    how_measured=(
        "percentage points of mean accuracy between the two with warrants alone, with the spreads "
        "of both, combined as if independent, which is too wide; holds above 0"
    ),
    above=0,
    paper=8.9,  # Table 3: means, 65.6 minus 56.7
    unit="points",
    about_training=True,
)
def encoder_over_bag(tables: Tables) -> Estimate:
    """Estimate the encoder's accuracy minus the bag's, with warrants only."""
    encoder = mean_accuracy(tables, ENCODER, WARRANTS)
    bag = mean_accuracy(tables, BAG, WARRANTS)
    return difference(encoder, bag)


@claim(
    "Niven & Kao 6",
    "Models trained on arguments as written do worse than chance on the counterparts",
    how_measured=(
        "the highest mean accuracy of bag of vectors, BiLSTM and encoder with everything shown, so "
        "that the controls show nothing: they may be the bag itself; holds below 50"
    ),
    below=50,
    unit="percent",
)
def highest_on_counterparts(tables: Tables) -> Estimate:
    """Estimate the highest mean accuracy of the `MODELS` on counterparts, with all parts."""
    return max(mean_accuracy(tables, model, EVERYTHING, test=ADVERSARIAL) for model in MODELS)


@claim(
    "Niven & Kao 6",
    (
        "Trained on arguments as written, the encoder is within two percentage points of chance on "
        "arguments and counterparts together"
    ),
    how_measured=(
        "percentage points from 50 to its mean accuracy on both with everything shown; equivalence "
        "test: holds where the interval ends below 2, our margin. The paper also trains on swapped "
        "warrants, which a model that scores each warrant by itself cannot distinguish from this"
    ),
    below=2,
    paper=0.4,  # Table 4: 50.4 minus 50
    unit="points",
)
def distance_from_chance(tables: Tables) -> Estimate:
    """Estimate the absolute distance of the encoder's accuracy from chance."""
    accuracy = mean_accuracy(tables, ENCODER, EVERYTHING, test=BOTH)
    low = accuracy.low - CHANCE
    high = accuracy.high - CHANCE
    nearest = max(0, low, -high)
    return Estimate(abs(accuracy.value - CHANCE), nearest, max(-low, high), accuracy.df)


@claim(
    "Niven & Kao 6",
    (
        "Trained on negated claims too, the encoder does better than chance on arguments and "
        "counterparts together"
    ),
    how_measured=(
        "its mean accuracy on both with everything shown, trained on arguments and counterparts "
        "(for ARCT the authors' train-adv-negated.csv); holds above 50 (their erratum, without a "
        "number)"
    ),
    above=50,
    unit="percent",
    about_training=True,
)
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


CLAIMS = NIVEN.claims
