"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from helpers.analysis.paper import (
    Claim,
    Estimate,
    Measure,
    Tables,
    measured,
    read_claims,
    rows_of,
    with_bounds,
)
from helpers.studies.attention_moves.lenses import WHOLE


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10: ``claims.csv``, measured by `MEASURES`."""
    return read_claims(Path(__file__).with_name("claims.csv"), MEASURES)


def largest_ratio(tables: Tables) -> Estimate:
    """Return the largest of the layers' ratios of special_tokens."""
    columns = with_bounds("ratio")
    rows = rows_of(tables, "special_tokens", "layer", *columns).query("layer != @WHOLE")
    return Estimate(*rows.sort_values("ratio", na_position="first").iloc[-1][columns])


special = partial(measured, table="special_tokens", layer=WHOLE)
ratio = partial(measured, table="edge_ratios", measure="sentence vector")
DROPPED_OR_TAKEN = "dropped / taken from others"

MEASURES: dict[str, Measure] = {
    "special tokens": partial(special, column="ratio"),
    "every layer": largest_ratio,
    "value vectors": partial(special, column="value_ratio"),
    "dropped": partial(ratio, column="ratio", model="own", ways=DROPPED_OR_TAKEN),
    "given": partial(ratio, column="ratio", model="own", ways="given to others / dropped"),
    "drawn": partial(ratio, column="lead", model="drawn", ways=DROPPED_OR_TAKEN),
    "focused": partial(ratio, column="lead", model="focused", ways=DROPPED_OR_TAKEN),
    "rollout": partial(
        measured, table="attributions", column="lead", method="rollout", effect="vector"
    ),
}
