"""Tables with the rows of a model and of its controls, told apart by the column ``model``."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

TRAINED = "trained"


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
