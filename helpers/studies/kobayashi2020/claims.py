"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from helpers.metrics.paper import Claim, Estimate, Tables, read_claims, rows_of, with_bounds


def movement_claims() -> list[Claim]:
    """List the claims of notebook 10, as ``claims.csv`` states them.

    All but one are read from a table's row that the file names; "every layer" is `largest_ratio`.

    Returns
    -------
    list of Claim
        In the order of the file.
    """
    return read_claims(__file__, {"every layer": largest_ratio})


def largest_ratio(tables: Tables) -> Estimate:
    """Estimate the largest ratio of norm lens to attention lens among the layers."""
    columns = with_bounds("ratio")
    rows = rows_of(tables, "special_tokens", "layer", *columns).query("layer != 'all'")
    largest = rows.sort_values("ratio", na_position="first").iloc[-1]
    return Estimate(*largest[columns])
