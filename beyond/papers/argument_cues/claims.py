"""The claims of Niven and Kao (2019), measured on arguments that people wrote.

The bundled sample has no number for them, because its cue is planted.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate, combine_in_quadrature, difference, exact
from beyond.claims.tables import MissingCell, NotMeasurable, Tables, cell, estimate_in, rows_where
from beyond.papers.common.statistics import mean_interval

SAMPLE_NAME = "arguments-sample"
CHANCE = 50.0  # percent, of two warrants
AS_WRITTEN, ADVERSARIAL, BOTH = ("original", "adversarial", "both")  # sets of arguments
BAG, BILSTM, ENCODER = CLASSIFIERS = ("bag of vectors", "BiLSTM", "encoder")
WARRANTS, EVERYTHING = ("warrants", "all")  # what is shown


def productivity_of_not(tables: Tables, split: str) -> TestedEstimate:
    """Read how often the warrant with ``not`` is right, in percent."""
    _refuse_planted_cue(tables)
    where = {"half": AS_WRITTEN, "split": split, "cue": "not"}
    return cell(tables, "cues", "productivity", df=np.inf, **where)


def lead_of_not(tables: Tables, split: str) -> TestedEstimate:
    """Compute the gain of ``not`` minus the gain of the next best word, in percentage points."""
    _refuse_planted_cue(tables)
    words = rows_where(tables, "cues", half=AS_WRITTEN, split=split, kind="unigram")
    is_not = words["cue"] == "not"
    return exact(words["gain"][is_not].max() - words["gain"][~is_not].max())


def share_of_warrants(tables: Tables) -> TestedEstimate:
    """Estimate the accuracy with warrants only, minus half of the accuracy with all parts."""
    all_parts = mean_accuracy(tables, ENCODER, EVERYTHING)
    if all_parts.value <= CHANCE:
        raise NotMeasurable("the encoder is not above chance")
    return difference(mean_accuracy(tables, ENCODER, WARRANTS), all_parts.scaled(0.5))


def lowest_with_warrants(tables: Tables) -> TestedEstimate:
    """Estimate the lowest mean accuracy of the classifiers, with warrants only."""
    return min(mean_accuracy(tables, classifier, WARRANTS) for classifier in CLASSIFIERS)


def encoder_over_bag(tables: Tables) -> TestedEstimate:
    """Estimate the encoder's accuracy minus the bag's, with warrants only."""
    encoder = mean_accuracy(tables, ENCODER, WARRANTS)
    return difference(encoder, mean_accuracy(tables, BAG, WARRANTS))


def highest_on_counterparts(tables: Tables) -> TestedEstimate:
    """Estimate the highest mean accuracy of the classifiers on counterparts, with all parts."""
    return max(
        mean_accuracy(tables, classifier, EVERYTHING, test=ADVERSARIAL)
        for classifier in CLASSIFIERS
    )


def mean_accuracy(
    tables: Tables,
    classifier: str,
    inputs: str,
    *,
    train: str = "original",
    test: str = AS_WRITTEN,
) -> TestedEstimate:
    """Estimate a mean accuracy over training runs, in percent.

    The interval combines the spread over seeds with the interval over test arguments.
    """
    _refuse_planted_cue(tables)
    where = {"classifier": classifier, "train": train, "inputs": inputs, "test": test}
    row = rows_where(tables, "partial_inputs", **where).iloc[0]
    clusters = row["arguments"] / (2 if test == BOTH else 1)
    over_arguments = estimate_in(row, "mean", df=clusters - 1)
    by_seed = rows_where(tables, "partial_input_seeds", **where)
    return combine_in_quadrature(over_arguments, mean_interval(by_seed["accuracy"]))


def _refuse_planted_cue(tables: Tables) -> None:
    """Raise `MissingCell` on the bundled sample: its planted cue supports no claim."""
    for table in tables.values():
        if "corpus" in table and (table["corpus"] == SAMPLE_NAME).any():
            raise MissingCell("the cue of the bundled sample is planted")


encoder_accuracy = partial(mean_accuracy, classifier=ENCODER, inputs=EVERYTHING, test=BOTH)
CLAIMS = read_claims(
    Path(__file__).with_suffix(".toml"),
    {
        "niven-not-right": partial(productivity_of_not, split="all"),
        "niven-not-strongest": partial(lead_of_not, split="all"),
        "niven-not-right-in-test": partial(productivity_of_not, split="test"),
        "niven-not-strongest-in-test": partial(lead_of_not, split="test"),
        "niven-warrants-most": share_of_warrants,
        "niven-warrants-every-model": lowest_with_warrants,
        "niven-warrants-encoder": partial(mean_accuracy, classifier=ENCODER, inputs=WARRANTS),
        "niven-encoder-over-bag": encoder_over_bag,
        "niven-counterparts-below-chance": highest_on_counterparts,
        "niven-both-at-chance": encoder_accuracy,
        "niven-trained-on-negated": partial(encoder_accuracy, train="negated"),
    },
)
