"""Sections 3, 4 and 6 of the paper: arrays and records in, tables out; knows no model."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pandas as pd

from helpers import store
from helpers.files import file_digests

CODE = store.CODE | file_digests(Path(__file__).parent)  # of cached results
TRAINED = "trained"  # the model itself in the column ``model``; the other rows are of controls
__all__ = ["by_model", "rows_of_model", *(module.name for module in iter_modules(__path__))]


def __getattr__(name: str) -> ModuleType:
    """Import a module of this package when ``metrics.<name>`` is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__


def by_model(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put the tables of a model and of its controls under one another.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables by model: "trained", "random", "entropy-matched" or "shuffled".

    Returns
    -------
    DataFrame
        All rows, in the given order, with the name of their model in the first column, ``model``.
    """
    stacked = pd.concat(tables, names=["model"])
    return stacked.reset_index("model").reset_index(drop=True)


def rows_of_model(table: pd.DataFrame, model: str = TRAINED) -> pd.DataFrame:
    """Select the rows of one model.

    Parameters
    ----------
    table : DataFrame
        A table as `by_model` makes it.  One without the column ``model`` is of the trained model.
    model : str
        The name of the model.

    Returns
    -------
    DataFrame
        Its rows without the column ``model``; none for a control that was not measured.
    """
    if "model" not in table:
        return table if model == TRAINED else table.iloc[:0]
    rows = table[table["model"] == model]
    return rows.drop(columns="model").reset_index(drop=True)
