"""Names of heads, ``layer-head``, both from 1 as in the paper ("8-10"), and tables of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from helpers.errors import InputError


def head_label(layer: int, head: int) -> str:
    """Return the label of a head given its array indices (both from 0)."""
    return f"{layer + 1}-{head + 1}"


def head_labels(layers: int, heads: int) -> list[str]:
    """Return the labels of a model's heads, layer by layer (the order of flattened maps)."""
    return [head_label(layer, head) for layer in range(layers) for head in range(heads)]


def parse_head(label: str) -> tuple[int, int]:
    """Return the array indices (both from 0) of a labelled head.

    Raises:
        InputError: the label is not two positive numbers joined by a hyphen.
    """
    layer, _, head = label.strip().partition("-")
    if not (layer.isdecimal() and head.isdecimal() and int(layer) and int(head)):
        raise InputError(f"{label!r} is not a head; write layer-head, both from 1, such as 8-10")
    return int(layer) - 1, int(head) - 1


def head_rows(layers: int, heads: int, **columns: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Return one row a head, in the order of `head_labels`: layer, head (from 1), and columns."""
    layer, head = np.indices((layers, heads)).reshape(2, -1) + 1
    values = {name: np.asarray(column).ravel() for name, column in columns.items()}
    return pd.DataFrame({"layer": layer, "head": head} | values)


def by_head(table: pd.DataFrame, column: str) -> Float[np.ndarray, "layer head"]:
    """Return a column of a table with a row for each layer and head (from 1): see `head_rows`."""
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def head_grid(values: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Return one number a head as a table to look at: a row a layer, a column a head, from 1."""
    layers, heads = (pd.RangeIndex(1, size + 1) for size in values.shape)
    return pd.DataFrame(values, layers.rename("layer"), heads.rename("head"))
