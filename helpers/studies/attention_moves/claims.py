"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own.

Each is a row of ``claims.csv``, which names the function here that measures it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from helpers.analysis.claims import (
    Claim,
    Estimate,
    NotMeasurable,
    Tables,
    read_claims,
    row_where,
    rows_of,
    with_bounds,
)

WHOLE, MEAN = "all", "mean"


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10."""
    return read_claims(Path(__file__).with_name("claims.csv"), globals(), {})


def special(tables: Tables, name: str) -> Estimate:
    """Return a column of special_tokens over all layers and heads."""
    table = _special_tokens(tables, name)
    return Estimate(*table[table["layer"].astype(str) == WHOLE].iloc[0][with_bounds(name)])


def special_of_layers(tables: Tables, name: str) -> Estimate:
    """Return the largest of the layers' values of a column of special_tokens."""
    table = _special_tokens(tables, name)
    layers = table[table["layer"].astype(str) != WHOLE]
    return Estimate(*layers.loc[layers[name].idxmax()][with_bounds(name)])


def gain_of_norm_lens(tables: Tables) -> Estimate:
    """Return by how many points a lens finds more of a relation, the mean over relations."""
    return _row(tables, "lens_relations", with_bounds("gain"), relation=MEAN)


def lead_of_head(tables: Tables, probe: str, against: str) -> Estimate:
    """Return how much more of its relation is lost without a head than without others."""
    names = ["lead", "low", "high"]
    return _row(tables, "relation_heads_mean", names, kind="zero", probe=probe, against=against)


def lead_of_rollout(tables: Tables) -> Estimate:
    """Return how much better than attention rollout explains what leaving a token out does."""
    return _row(tables, "attributions", with_bounds("lead"), method="rollout", effect="vector")


def _special_tokens(tables: Tables, name: str) -> pd.DataFrame:
    table = rows_of(tables, "special_tokens", "layer", *with_bounds(name))
    if table[name].isna().all():
        raise NotMeasurable("a special token")
    return table


def _row(tables: Tables, name: str, columns: list[str], **where: str) -> Estimate:
    """Return the number and interval of the row with some values."""
    return Estimate(*row_where(rows_of(tables, name, *columns, *where), **where)[columns])
