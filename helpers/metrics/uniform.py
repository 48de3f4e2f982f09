"""Chance lines of figures: the shares of uniform attention."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from helpers.data.records import roles
from helpers.data.visible import visible_mask
from helpers.metrics.surface import relative_position, token_types
from helpers.store.store import Store

COLUMNS = ("previous", "current", "next", "punctuation")


def with_uniform(table: pd.DataFrame, store: Store) -> pd.DataFrame:
    """Add the shares that uniform attention over the visible keys would have, by layer.

    Parameters
    ----------
    table : pandas.DataFrame
        The table relative_position.csv or token_types.csv, with one row per head.
    store : Store
        The token-level store that the table is of.  Only the tokens are read.

    Returns
    -------
    pandas.DataFrame
        The table with a column ``uniform_<column>`` for each of its columns in `COLUMNS`: the mean
        over the examples of the same measure of uniform attention.
    """
    columns = [column for column in COLUMNS if column in table]
    masks = list(dict.fromkeys(store.visible))  # most models have one for all layers
    totals: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(masks)))
    for record in store.records():
        tokens = record["tokens"]
        visible = np.stack([visible_mask(mask, len(tokens)) for mask in masks])
        uniform = visible / visible.sum(axis=-1, keepdims=True)
        attention = uniform[:, None]  # [mask, one head, query, key]
        shares = relative_position(attention, visible)
        shares |= token_types(attention, roles(tokens, store.special_tokens), visible)
        for column in columns:
            totals[column] += shares[column][:, 0] / len(store)
    rows = table["layer"].map(lambda layer: masks.index(store.visible[layer - 1]))
    return table.assign(**{f"uniform_{column}": totals[column][rows] for column in columns})
