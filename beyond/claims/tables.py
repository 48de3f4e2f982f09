"""Cells of a run's tables, and why a claim has no number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from beyond.claims.estimates import TestedEstimate

Tables = Mapping[str, pd.DataFrame]


class MissingCell(LookupError):
    """The tables lack a number, because the model or the run does not have it."""


class NotMeasurable(LookupError):
    """The tables have a number that says nothing; the message is the reason."""


def rows_where(tables: Tables, table: str, **where: Any) -> pd.DataFrame:
    """Select the rows of a table with some values in some columns; a list is any of them.

    Raises
    ------
    MissingCell
        If there are none.
    """
    rows = tables.get(table, pd.DataFrame())
    for name, value in where.items():
        values = value if isinstance(value, list) else [value]
        rows = rows[rows[name].isin(values)] if name in rows else rows.head(0)
    if rows.empty:
        raise MissingCell(f"{table}.csv: no row has {where}")
    return rows


def estimate_in(row: pd.Series, column: str, df: float = np.nan) -> TestedEstimate:
    """Read a number and its interval from a row.

    Parameters
    ----------
    row
        The row of a table.
    column
        Column of the number; ``<column>_low`` and ``<column>_high`` are its bounds, and
        ``<column>_p`` is the p-value of a test of its own.  A number without degrees of freedom,
        whose interval has no width, is exact.
    df
        Degrees of freedom of the interval, if there is no column ``<column>_df``.

    Raises
    ------
    MissingCell
        If there is no number.
    """
    if pd.isna(row.get(column)):
        raise MissingCell(f"no number in the column {column}")
    df = row.get(f"{column}_df", df)
    low = row.get(f"{column}_low", np.nan)
    high = row.get(f"{column}_high", np.nan)
    p = row.get(f"{column}_p", np.nan)
    is_exact = bool(low == high and np.isnan(df) and np.isnan(p))
    return TestedEstimate(row[column], low, high, df, is_exact=is_exact, own_p=p)


def cell(
    tables: Tables, table: str, column: str = "value", *, df: float = np.nan, **where: Any
) -> TestedEstimate:
    """Read a number and its interval from the first row of a table that has some values."""
    return estimate_in(rows_where(tables, table, **where).iloc[0], column, df)
