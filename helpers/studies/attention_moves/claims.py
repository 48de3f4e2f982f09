"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from helpers.analysis.paper import Claim, Estimate, Tables, read_claims, rows_of, with_bounds


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10: ``claims.csv``, which says what all but one read."""
    return read_claims(__file__, {"every layer": largest_ratio})


def largest_ratio(tables: Tables) -> Estimate:
    """Return the largest of the layers' ratios of special_tokens."""
    columns = with_bounds("ratio")
    rows = rows_of(tables, "special_tokens", "layer", *columns).query("layer != 'all'")
    return Estimate(*rows.sort_values("ratio", na_position="first").iloc[-1][columns])
