"""What a run leaves behind: its tables, what they must be, and the record that lists them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import InputError, TableError

CAUSE = (
    "weights or hidden states that are not finite, or a damaged store: try --dtype float32, and "
    "'python -m helpers verify'"
)


def check_table(
    table: pd.DataFrame,
    name: str,
    *,
    special_tokens: Callable[[], Mapping[str, str | None]],
    optional: Collection[str] = (),
) -> None:
    """Refuse a table with a column of numbers that are infinite, or all missing.

    Missing may be what the paper does not say, intervals, p-values, ``optional`` columns, and
    those about [CLS] or [SEP] if the model, as ``special_tokens`` is then asked, has no such token.

    Raises:
        TableError: the message names table, column and likely cause.
    """
    for column in table.select_dtypes("float") if len(table) else ():
        values, parts = table[column], str(column).split("_")
        if np.isinf(values).any():
            raise TableError(f"{name}.csv: column {column} has infinite numbers; {CAUSE}")
        expected = column not in optional and parts[0] not in ("paper", "p")
        if values.isna().all() and expected and parts[-1] not in ("low", "high"):
            about = {"cls", "sep"}.intersection(parts)
            if not any(special_tokens().get(role) is None for role in about):
                raise TableError(f"{name}.csv: column {column} has no number; {CAUSE}")


def latex(table: pd.DataFrame) -> str:
    """Return a table as LaTeX (booktabs), its numbers rounded to about three digits."""
    rounded = pd.DataFrame(dict(enumerate(_rounded(column) for _, column in table.items())))
    rounded.columns = [str(name).replace("_", " ") for name in table.columns]
    kinds = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in table.dtypes)
    text = rounded.to_latex(index=False, escape=True, column_format=kinds)
    return text.replace("·", r"\textperiodcentered{}")


def _rounded(column: pd.Series) -> list[str]:
    """Return a column as text: with the same decimals, if its numbers are of one size."""
    column = column.infer_objects()
    if not pd.api.types.is_float_dtype(column):
        return ["" if pd.isna(value) else str(value) for value in column]
    if (column.dropna() % 1 == 0).all():
        return ["" if pd.isna(value) else f"{value:.0f}" for value in column]
    sizes = column.abs()
    decimals = int(np.clip(2 - np.floor(np.log10(sizes.max())), 1, 4))
    of_one_size = sizes.quantile(0.25) >= 10.0 ** (1 - decimals)

    def shown(value: float) -> str:
        if pd.isna(value):
            return ""
        if not of_one_size and abs(value) < 1000:
            return f"{value:.3g}"
        text = f"{value:.{decimals}f}"
        return text if float(text) or not value else f"{value:.1g}"

    return [shown(value) for value in column]


def read_tables(results: Path, written: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Return the tables of the run that a results folder belongs to, by name.

    They are those that ``run.json`` lists, and ``written``, what was just now; all of the folder
    where the notebooks were run one by one.

    Raises:
        InputError: a table cannot be read.
    """
    own = listed(results, "tables")
    paths = sorted((results / "tables").glob("*.csv"))
    if own is not None:
        paths = [path for path in paths if path.stem in own.union(written)]
    return {path.stem: _read(path) for path in paths}


def listed(results: Path, kind: str) -> set[str] | None:
    """Return the "tables" or "figures" that ``run.json`` lists; None where it lists none."""
    notebooks = run_record(results).get("notebooks")
    if notebooks is None:
        return None
    return {name for files in notebooks.values() for name in files[kind]}


def run_record(results: Path) -> dict[str, Any]:
    """Return what a run's ``run.json`` says; nothing where it is missing or damaged."""
    try:
        return dict(json.loads((results / "run.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise InputError(
            f"{path}: not a table ({str(error).splitlines()[0]}); run the notebook again"
        ) from error
