"""Rows, columns and numbers of a run's tables; `NotMeasurable` where a run does not have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from helpers.metrics.statistics import Estimate

Tables = Mapping[str, pd.DataFrame]
Measure = Callable[[Tables], Estimate]


UNDER_CAUSAL_MASK = "cannot occur under a causal mask"
# What the first token gives, which under a causal mask sees nothing else.
SEEN_BY_FIRST_ONLY = ("cls_to_cls", "first_to_first", "entropy_from_cls")
NONE = pd.Series(dtype=float)


class NotMeasurable(LookupError):
    """A claim has no number in this run.

    The message is the reason, for the column ``reason`` of claims.csv: half a sentence such as
    "the run has no gradients.csv" or "cannot occur under a causal mask".
    """


def rows_of(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Look up a run's table.

    Raises
    ------
    NotMeasurable
        If the run has no such table, or the table lacks one of the columns.
    """
    if table not in tables:
        raise NotMeasurable(f"the run has no {table}.csv")
    missing = [name for name in columns if name not in tables[table]]
    if missing:
        raise NotMeasurable(f"{table}.csv has no column {', '.join(missing)}")
    return tables[table]


def column(tables: Tables, table: str, name: str) -> pd.Series:
    """Look up a column of a run's table.

    Raises
    ------
    NotMeasurable
        If it is missing, or empty because the model has no such token.
    """
    values = rows_of(tables, table, name)[name]
    if values.isna().all():
        raise NotMeasurable(_reason_of_empty(tables, table, name))
    return values


def _reason_of_empty(tables: Tables, table: str, name: str) -> str:
    """Say why a column is empty: no such token, or nothing that its mask lets it see."""
    if name == "next":
        return UNDER_CAUSAL_MASK
    for role in {"cls", "sep"}.intersection(name.split("_")):
        if name == role or tables.get("token_types", pd.DataFrame()).get(role, NONE).isna().all():
            return f"the model has no [{role.upper()}]"
    if name in SEEN_BY_FIRST_ONLY and has_causal_mask(tables):
        return "the first token sees only itself under a causal mask"
    return f"the column {name} of {table}.csv is empty"


def has_causal_mask(tables: Tables) -> bool:
    """Tell whether no token sees the next one, in any layer."""
    positions = tables.get("relative_position", pd.DataFrame())
    return "next" in positions and bool(positions["next"].isna().all())


def select_or_raise(
    rows: pd.DataFrame | pd.Series, chosen: pd.Series, reason: str
) -> pd.DataFrame | pd.Series:
    """Select rows of a table or column by a mask.

    Raises
    ------
    NotMeasurable
        If the mask selects none; the message is the reason.
    """
    if not chosen.any():
        raise NotMeasurable(reason)
    return rows[chosen]


def rows_where(rows: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Select the rows with some values in some columns; `NotMeasurable` if there are none."""
    required = pd.Series(values, dtype=object)
    is_match = (rows[list(values)] == required).all(axis=1)
    description = ", ".join(f"{name} {value!r}" for name, value in values.items())
    return select_or_raise(rows, is_match, f"no row has {description}")


def with_bounds(name: str) -> list[str]:
    """Name a column and those of its interval, as `Estimate.columns` does."""
    return list(Estimate(0).columns(name))


def estimate_in(row: pd.Series, name: str, df: float = np.nan) -> Estimate:
    """Read a number and its interval from a row.

    Parameters
    ----------
    row
        The row of a table.
    name
        Column of the number.
    df
        Degrees of freedom of the interval.  By default they are in the column ``<name>_df``, which
        `Estimate.columns` writes with ``df=True``.  A column ``<name>_p`` has the p-value of a test
        of its own.

    Raises
    ------
    NotMeasurable
        If there are no degrees of freedom: an older run's table does not have the column.
    """
    df = row.get(f"{name}_df", df)
    if np.isnan(df):
        raise NotMeasurable(f"no degrees of freedom in a column {name}_df")
    return Estimate(*row[with_bounds(name)], df=df, own_p=row.get(f"{name}_p", np.nan))


def estimate_from_table(
    tables: Tables, table: str, column: str, *, df: float = np.nan, **where: Any
) -> Estimate:
    """Read a number and its interval from the first row of a table that has some values.

    Parameters
    ----------
    tables
        The tables of a run.
    table, column
        Names of the table and of the number's column.
    df
        Degrees of freedom, as for `estimate_in`.
    **where
        Values of the row in other columns.

    Raises
    ------
    NotMeasurable
        If the table, a column or the row is missing.
    """
    rows = rows_of(tables, table, *with_bounds(column), *where)
    try:
        return estimate_in(rows_where(rows, **where).iloc[0], column, df)
    except NotMeasurable as error:
        raise NotMeasurable(f"{table}.csv: {error}") from error


def cell(table: str, column: str, **options: Any) -> Measure:
    """Make a measure that reads a number as `estimate_from_table` does."""
    return partial(estimate_from_table, table=table, column=column, **options)
