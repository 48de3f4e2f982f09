"""The tables of a run: what they must be where they are saved, and which of them are its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import InputError, TableError

# Tables in which every number is there, but for columns about a token that a model does not have.
WHOLE = (
    "relative_position", "token_types", "entropy", "gradients", "head_distances", "head_positions",
    "structural_layers",
)  # fmt: skip
ABOUT = {
    "cls": ("cls", "uniform_cls", "entropy_from_cls", "attention_cls", "norm_cls", "value_cls"),
    "sep": (
        "sep", "uniform_sep", "sep_to_sep", "other_to_sep", "attention_sep", "norm_sep",
        "value_sep",
    ),
}  # fmt: skip
# Columns that may be empty from top to bottom: what the paper does not say, what a figure's
# example has no use for, what claims could not measure, what no sentence has, and what there is
# nothing to compare with: a model of one head, a relation alone.
MAY_BE_EMPTY = (
    "here", "threshold", "control", "relation", "direction", "within", "between", "std",
    "correlation", "noun", "verb", "pronoun", "subject", "object", "negation", "ratio",
    "value_ratio", "layer", "matched", "relations",
)  # fmt: skip
CAUSE = (
    "weights or hidden states that are not finite, or a damaged store: try --dtype float32, and "
    "'python -m helpers verify'"
)


def check_table(
    table: pd.DataFrame, name: str, *, special_tokens: Callable[[], Mapping[str, str | None]]
) -> None:
    """Refuse a table with numbers that a model of its kind should have and that are not there.

    ``special_tokens`` is asked which of [CLS] and [SEP] the model has, if a column is empty.

    Raises:
        TableError: the message names table, column and likely cause.
    """
    for column in table.columns if len(table) else ():
        values = table[column]
        numbers = pd.api.types.is_float_dtype(values)
        if numbers and np.isinf(values).any():
            raise TableError(f"{name}.csv: column {column} has infinite numbers; {CAUSE}")
        empty = values.isna()
        whole = name.removeprefix("control_") in WHOLE
        if not (empty.any() if whole else empty.all()) or may_be_empty(str(column)):
            continue
        roles = [role for role, columns in ABOUT.items() if column in columns]
        if not any(special_tokens().get(role) is None for role in roles):
            rows = "no number" if empty.all() else f"{empty.sum()} of {len(table)} numbers missing"
            raise TableError(f"{name}.csv: column {column} has {rows}; {CAUSE}")


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


def may_be_empty(column: str) -> bool:
    """Return whether a column may hold nothing at all, whatever the model."""
    return (
        column in (*MAY_BE_EMPTY, "low", "high")
        or column.startswith(("paper", "p_value", "from_cls_"))
        or column.endswith(("_low", "_high"))
    )


def read_tables(results: Path, written: Iterable[str] = ()) -> dict[str, pd.DataFrame]:
    """Return the tables of the run that a results folder belongs to, by name.

    They are those that ``run.json`` lists, and ``written``, what was just now; all of the folder
    where the notebooks were run one by one.

    Raises:
        InputError: a table cannot be read.
    """
    own = listed(results, "tables")
    found = sorted((results / "tables").glob("*.csv"))
    files = {path.stem: path for path in found if path.is_file()}  # a pipe would never end
    if own is not None:
        files = {name: path for name, path in files.items() if name in own.union(written)}
    return {name: _read(path) for name, path in files.items()}


def listed(results: Path, kind: str) -> set[str] | None:
    """Return the "tables" or "figures" that ``run.json`` lists; None where it lists none."""
    try:
        return {
            name for files in read_record(results)["notebooks"].values() for name in files[kind]
        }
    except (KeyError, TypeError, AttributeError):
        return None


def read_record(results: Path) -> dict[str, Any]:
    """Return what a run's ``run.json`` says; nothing where it is missing or damaged."""
    path = results / "run.json"
    try:
        return dict(json.loads(path.read_bytes() if path.is_file() else ""))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise InputError(
            f"{path}: not a table ({str(error).splitlines()[0]}); run the notebook again"
        ) from error
