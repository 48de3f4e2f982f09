"""The claims of Niven and Kao (2019), measured on arguments that people wrote."""

from __future__ import annotations

import pandas as pd

from helpers.analysis.paper import (
    Claim,
    Estimate,
    Measure,
    NotMeasurable,
    Tables,
    read_claims,
    row_where,
    rows_of,
    with_bounds,
)
from helpers.studies.argument_cues.arguments import EMBEDDED
from helpers.studies.argument_cues.choosers import BAG, ENCODER
from helpers.studies.argument_cues.cues import ALL, CHANCE, HALVES, NOT
from helpers.studies.argument_cues.partial_inputs import (
    EVERYTHING,
    MODELS,
    ORIGINAL,
    SWAPPED,
    WARRANTS,
    Run,
)

MEAN = with_bounds("mean", "ci")


def argument_claims() -> list[Claim]:
    """Return the claims of notebook 09: ``claims.csv``, measured by `MEASURES`."""
    return read_claims(__file__, MEASURES)


def productivity_of_not(tables: Tables) -> Estimate:
    """Return how often the warrant with ``not`` is right, in the originals of all splits."""
    columns = with_bounds("productivity", "ci")
    table = written(tables, "cues", "half", "split", "cue", *columns)
    return Estimate(*row_where(table, half=HALVES[0], split=ALL, cue=NOT)[columns])


def lead_of_not(tables: Tables) -> float:
    """Return by how many points ``not`` helps more than the next best word."""
    table = written(tables, "cues", "half", "split", "cue", "kind", "gain")
    own = table[(table["half"] == HALVES[0]) & (table["split"] == ALL)]
    others = own[(own["kind"] == "unigram") & (own["cue"] != NOT)]
    return row_where(own, cue=NOT)["gain"] - others["gain"].max()


def share_of_warrants(tables: Tables) -> float:
    """Return the accuracy above chance with warrants alone, over that with everything."""
    everything = _choice(tables, ENCODER, EVERYTHING)["median"] - CHANCE
    if everything <= 0:
        raise NotMeasurable("an encoder above chance")
    return (_choice(tables, ENCODER, WARRANTS)["median"] - CHANCE) / everything


def lowest_with_warrants(tables: Tables) -> Estimate:
    """Return the lowest mean accuracy of a kind of model with warrants alone."""
    return min(Estimate(*_choice(tables, model, WARRANTS)[MEAN]) for model in MODELS)


def encoder_less_bag(tables: Tables) -> Estimate:
    """Return by how many points the encoder outdoes the bag with warrants alone."""
    encoder, bag = (_choice(tables, model, WARRANTS) for model in (ENCODER, BAG))
    return Estimate(*(encoder[with_bounds("median", "ci")] - bag["median"]))


def highest_on_counterparts(tables: Tables) -> Estimate:
    """Return the highest mean accuracy of a kind of model on the counterparts, untrained on."""
    rows = [_choice(tables, model, EVERYTHING, test=HALVES[1]) for model in MODELS]
    return max(Estimate(*row[MEAN]) for row in rows)


def from_chance(tables: Tables) -> Estimate:
    """Return how far accuracy is from chance, on either side."""
    row = _choice(tables, ENCODER, EVERYTHING, train=SWAPPED, test=HALVES[2])
    mean, low, high = row[MEAN] - CHANCE
    return Estimate(abs(mean), max(0, low, -high), max(-low, high))


def written(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a table of a run on arguments that people wrote.

    NotMeasurable where the run has none; or it is of the embedded sample, whose cue is planted: a
    model that finds it confirms the plant and no claim.
    """
    rows = rows_of(tables, table, "corpus", *columns)
    if (rows["corpus"] == EMBEDDED).any():
        raise NotMeasurable("the cue of the embedded sample is planted")
    return rows


def _choice(
    tables: Tables, model: str, inputs: str, *, train: str = ORIGINAL, test: str = HALVES[0]
) -> pd.Series:
    table = written(tables, "partial_inputs", *Run._fields, "test", "median", *MEAN)
    return row_where(table, model=model, inputs=inputs, train=train, test=test)


MEASURES: dict[str, Measure] = {
    "productivity of not": productivity_of_not,
    "lead of not": lead_of_not,
    "share of warrants": share_of_warrants,
    "lowest with warrants": lowest_with_warrants,
    "encoder over bag": encoder_less_bag,
    "highest on counterparts": highest_on_counterparts,
    "from chance": from_chance,
}
