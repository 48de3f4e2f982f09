"""The papers' statements as checks: what they say, what is measured here, and whether it holds.

Every claim is computed from the tables of a run; none is typed in.  A claim whose tables a run
does not have, or whose quantity this model does not have, is reported as not measured; claims of
the papers that came later are reported by the runs that measured them.

What claims are made of: a statement, its measure, and ways to read a run's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

NOT_MEASURED = "not measured"


def check_claims(tables: Tables, claims: Iterable[Claim]) -> pd.DataFrame:
    """Return claims.csv: section, claim, paper_value, here, holds, how_measured.

    ``tables`` maps the names of a run's tables ("token_types", ...) to the tables.
    ``holds`` is "yes", "no" or "not measured".
    """
    columns = ["section", "claim", "paper_value", "here", "holds", "how_measured"]
    return pd.DataFrame([_row(claim, tables) for claim in claims], columns=columns)


def _row(claim: Claim, tables: Tables) -> tuple[str, str, float | None, float, str, str]:
    here, verdict = check_claim(claim, tables)
    return claim.section, claim.statement, claim.paper, here, verdict, claim.how


def check_claim(claim: Claim, tables: Tables) -> tuple[float, str]:
    """Return what a claim measures here (NaN if it cannot), and "yes", "no" or "not measured"."""
    try:
        here = float(claim.measure(tables))
        holds = claim.holds(here, tables)
    except NotMeasurable:
        here = np.nan
    if np.isnan(here):
        return np.nan, NOT_MEASURED
    return here, "yes" if holds else "no"


Tables = Mapping[str, pd.DataFrame]


class NotMeasurable(LookupError):
    """The run has no table, row or column that a claim needs."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, how it is measured, and when it holds.

    ``measure`` takes the tables of a run and returns a number; ``holds`` takes that number and
    the tables, and says whether the statement is true of the model.  Either may raise
    `NotMeasurable`.  ``paper`` is the paper's own number, where it gives one.
    """

    section: str
    statement: str
    how: str
    measure: Callable[[Tables], float]
    holds: Callable[[float, Tables], bool]
    paper: float | None = None


def rows_of(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a run's table, which has ``columns``.

    Raises:
        NotMeasurable: the run does not have the table, or not all of the columns.
    """
    if table not in tables or not set(columns) <= set(tables[table]):
        raise NotMeasurable(f"{table}: {', '.join(columns)}")
    return tables[table]


def column(tables: Tables, table: str, name: str) -> pd.Series:
    """Return a column of a run's table.

    Raises:
        NotMeasurable: the run does not have it, or it is empty (a model without that token).
    """
    values = rows_of(tables, table, name)[name]
    if values.isna().all():
        raise NotMeasurable(f"{table}.{name} is empty")
    return values


def by_layer(tables: Tables, table: str, name: str) -> pd.Series:
    """Return a column's mean over the heads of each layer, by layer from 1."""
    return column(tables, table, name).groupby(column(tables, table, "layer")).mean()


def at_depth(values: pd.Series, low: float, high: float) -> float:
    """Return the mean over the layers between two shares of the depth (the last layer: 1).

    ``values`` is indexed by layer; the mean of no layer is NaN.
    """
    depth = values.index / values.index.max()
    return values[(depth >= low) & (depth <= high)].mean()
