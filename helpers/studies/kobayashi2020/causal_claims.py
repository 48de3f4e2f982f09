"""Claims of the causal test of Table 1: does the margin of a head say what it does?

What they say is in ``causal_claims.toml``; here is how they are measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from helpers.claims.claim import read_claims
from helpers.claims.tables import Measure, NotMeasurable, Tables, cell, rows_of
from helpers.metrics.statistics import Estimate, ratio
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED
from helpers.studies.kobayashi2020.causal import (
    GIVEN_ATTENTION,
    LOSES,
    MATCHED_HEAD,
    TURNS,
    TURNS_ONLY,
)


def mean_difference(tables: Tables, measure: str, minus: str) -> Estimate:
    """Estimate the effect of dropping the best head's edges minus another, a mean over relations.

    The interval is a bootstrap over heads, because one head is often best for several relations.  A
    relation in which no edge can be matched is left out.
    """
    table = rows_of(tables, "head_edges", "relation", "head", "change", "measure", "value")
    by_column = table.pivot(
        index=["relation", "head"], columns=["change", "measure"], values="value"
    )
    differences = (by_column[DROPPED, measure] - by_column[minus, measure]).dropna()
    by_head = differences.groupby(level="head")
    if by_head.ngroups < 2:
        raise NotMeasurable("fewer than two heads have edges that can be matched")
    return ratio(by_head.sum().to_numpy(), by_head.size().to_numpy())


correlation = partial(cell, "head_edge_correlations", "correlation")
MEASURES: dict[str, Measure] = {
    "causal-margin-turns": correlation(predictor="margin", effect=TURNS, within="all"),
    "causal-margin-turns-within-layers": correlation(
        predictor="margin", effect=TURNS, within="layers"
    ),
    "causal-turns-over-matched-head": partial(
        mean_difference, measure=TURNS_ONLY, minus=MATCHED_HEAD
    ),
    "causal-margin-loses": correlation(predictor="margin", effect=LOSES, within="all"),
    "causal-margin-loses-within-layers": correlation(
        predictor="margin", effect=LOSES, within="layers"
    ),
    "causal-loses-over-matched-words": partial(mean_difference, measure=LOSES, minus=MASS_MATCHED),
    "causal-loses-over-matched-head": partial(mean_difference, measure=LOSES, minus=MATCHED_HEAD),
    "causal-margin-turns-given-attention": correlation(
        predictor=GIVEN_ATTENTION, effect=TURNS, within="all"
    ),
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
