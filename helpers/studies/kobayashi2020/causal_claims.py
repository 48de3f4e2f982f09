"""Claims of the causal test of Table 1: does the margin of a head say what it does?

What they say is in ``causal_claims.toml``; here is how they are measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from helpers.claims.claim import read_claims
from helpers.claims.tables import Measure, NotMeasurable, Tables, cell, rows_of
from helpers.metrics.statistics import Estimate, mean_interval
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED
from helpers.studies.kobayashi2020.causal import GIVEN_ATTENTION, LOSES, MATCHED_HEAD, TURNS


def mean_difference(tables: Tables, measure: str, minus: str, minus_measure: str = "") -> Estimate:
    """Estimate the effect of dropping the best head's edges minus another, a mean over relations.

    The interval is over relations, by Student's t.  A relation in which no edge can be matched is
    left out.
    """
    table = rows_of(tables, "head_edges", "relation", "change", "measure", "value")
    by_column = table.pivot(index="relation", columns=["change", "measure"], values="value")
    subtrahend = by_column[minus, minus_measure or measure]
    differences = (by_column[DROPPED, measure] - subtrahend).dropna()
    if len(differences) < 2:
        raise NotMeasurable("fewer than two relations have edges that can be matched")
    return mean_interval(differences)


correlation = partial(cell, "head_edge_correlations", "correlation")
MEASURES: dict[str, Measure] = {
    "causal-margin-turns": correlation(predictor="margin", effect=TURNS, within="all"),
    "causal-margin-turns-within-layers": correlation(
        predictor="margin", effect=TURNS, within="layers"
    ),
    "causal-turns-over-matched-words": partial(mean_difference, measure=TURNS, minus=MASS_MATCHED),
    "causal-turns-over-matched-head": partial(mean_difference, measure=TURNS, minus=MATCHED_HEAD),
    "causal-margin-loses": correlation(predictor="margin", effect=LOSES, within="all"),
    "causal-margin-loses-within-layers": correlation(
        predictor="margin", effect=LOSES, within="layers"
    ),
    "causal-loses-over-matched-words": partial(mean_difference, measure=LOSES, minus=MASS_MATCHED),
    "causal-loses-over-matched-head": partial(mean_difference, measure=LOSES, minus=MATCHED_HEAD),
    "causal-margin-turns-given-attention": correlation(
        predictor=GIVEN_ATTENTION, effect=TURNS, within="all"
    ),
    "causal-turns-over-other-words": partial(
        mean_difference, measure="turns", minus=DROPPED, minus_measure="turns, other words"
    ),
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
