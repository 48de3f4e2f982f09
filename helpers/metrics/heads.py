"""Attention heads: their labels, tables of them, and the word that a head picks.

A head is named ``layer-head``, both from 1 as in the paper ("8-10").  For each word, it picks the
other word with the most attention (sections 4.2 and 4.3).  If several have the same weight, it
picks the first.  [CLS] and [SEP] cannot be picked, nor can a word that the layer's mask hides.  A
pick needs weight: a head picks nothing if all words that it could pick have the same weight, or
none has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from helpers.data.links import Links
from helpers.metrics.statistics import Whole

PerHead = Float[np.ndarray, "layer head"]
LayerNumbers = Sequence[int] | Int[np.ndarray, "_"]  # from 1, of the layers that attend
Direction = Literal["dependent attends to head", "head attends to dependent"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def layer_number(layer: Whole, numbers: LayerNumbers = ()) -> int:
    """Return the number, from 1, of a layer whose array index is ``layer``.

    ``numbers`` are those of the layers that attend (`Store.layer_numbers`), which have maps; all
    layers do if there are none.
    """
    return int(numbers[int(layer)]) if len(numbers) else int(layer) + 1


def layers_from_1(count: int, numbers: LayerNumbers = ()) -> list[int]:
    """List the `layer_number` of each of the ``count`` layers that have maps."""
    return [layer_number(layer, numbers) for layer in range(count)]


def head_label(layer: Whole, head: Whole, numbers: LayerNumbers = ()) -> str:
    """Format the label of a head.

    Parameters
    ----------
    layer, head : int
        Array indices, both from 0.
    numbers : sequence of int
        As for `layer_number`.

    Returns
    -------
    str
        ``layer-head``, both from 1: ``head_label(7, 9)`` is "8-10".
    """
    return f"{layer_number(layer, numbers)}-{head + 1}"


def head_labels(layers: int, heads: int, numbers: LayerNumbers = ()) -> list[str]:
    """List the labels of a model's heads, layer by layer (the order of flattened maps).

    Parameters
    ----------
    layers, heads : int
        Number of layers, and of heads in each.
    numbers : sequence of int
        As for `layer_number`.

    Returns
    -------
    list of str
        ``layers * heads`` labels.
    """
    return [head_label(layer, head, numbers) for layer, head in np.ndindex(layers, heads)]


def parse_head(label: str, numbers: LayerNumbers = ()) -> tuple[int, int]:
    """Read the label of a head.

    Parameters
    ----------
    label : str
        ``layer-head``, both from 1.
    numbers : sequence of int
        As for `layer_number`.

    Returns
    -------
    layer, head : int
        Array indices, both from 0: ``parse_head("8-10")`` is (7, 9).
    """
    number, head = map(int, label.split("-"))
    return (list(numbers).index(number) if len(numbers) else number - 1), head - 1


def head_indices(table: pd.DataFrame, numbers: LayerNumbers = ()) -> Int[np.ndarray, "3 row"]:
    """Read the heads of a table of relations.

    Parameters
    ----------
    table : DataFrame
        Columns ``head`` (a label) and ``direction``, one of `DIRECTIONS`.
    numbers : sequence of int
        As for `layer_number`.

    Returns
    -------
    int array of shape (3, row)
        The direction, the layer and the head of each row, all from 0.
    """
    rows = zip(table["direction"], table["head"], strict=True)
    indices = [
        (DIRECTIONS.index(direction), *parse_head(label, numbers)) for direction, label in rows
    ]
    return np.array(indices, int).reshape(-1, 3).T


def head_rows(
    layers: int, heads: int, numbers: LayerNumbers = (), **columns: Shaped[np.ndarray, "layer head"]
) -> pd.DataFrame:
    """Make a table with a row for each head, in the order of `head_labels`.

    Parameters
    ----------
    layers, heads : int
        Number of layers, and of heads in each.
    numbers : sequence of int
        As for `layer_number`.
    **columns : array of shape (layer, head)
        One value for each head, by the name of its column.

    Returns
    -------
    DataFrame
        Columns ``layer`` and ``head`` (from 1), then ``columns``.
    """
    layer, head = np.indices((layers, heads)).reshape(2, -1)
    layer = np.array(layers_from_1(layers, numbers))[layer]
    table = pd.DataFrame({"layer": layer, "head": head + 1})
    return table.assign(**{name: np.asarray(column).ravel() for name, column in columns.items()})


def by_head(table: pd.DataFrame, column: str) -> PerHead:
    """Arrange a column of a table of heads as an array: the inverse of `head_rows`.

    Parameters
    ----------
    table : DataFrame
        A row for each head, with columns ``layer`` and ``head`` (from 1).
    column : str
        Name of the column.

    Returns
    -------
    float array of shape (layer, head)
    """
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def picked_words(
    attention: Float[np.ndarray, "*heads word word"],
    queries: Int[np.ndarray, " query"] | None = None,
    *,
    direction: Direction = DIRECTIONS[0],
    candidates: Bool[np.ndarray, "query word"] | None = None,
    visible: Bool[np.ndarray, "*#heads word word"] | None = None,
) -> Int[np.ndarray, "*heads query"]:
    """Find the word with the most attention, which a head picks, for each word (section 4.2).

    For word i that is ``argmax_j A[i, j]`` (dependent attends to head) or ``argmax_j A[j, i]``
    (head attends to dependent), j not i.  Of equal weights the first counts, unless the weights of
    all words that can be picked are equal.

    Parameters
    ----------
    attention : array of shape (..., word, word)
        Maps over the words, without special tokens: ``attention[..., query, key]``.
    queries : int array, optional
        Words to pick for, from 0.  By default all.
    direction : {"dependent attends to head", "head attends to dependent"}
        Whether a row or a column of the map is read.
    candidates : bool array of shape (query, word), optional
        Words that may be picked for each query.  By default all.
    visible : bool array of shape (..., word, word), optional
        Keys that each query sees, ``visible[..., query, key]``.  By default all.

    Returns
    -------
    int array of shape (..., query)
        Picked words, from 0.  If a head picks nothing for a word, it is the word itself, which is
        never right.
    """
    words = np.arange(attention.shape[-1])
    queries = words if queries is None else queries
    weights = by_dependent(attention, direction)[..., queries, :]  # [..., query, word]
    allowed = queries[:, None] != words
    if candidates is not None:
        allowed = allowed & candidates
    if visible is not None:
        allowed = allowed & by_dependent(visible, direction)[..., queries, :]
    # Copied once, so that the rows are contiguous in either direction.
    candidate_weights = np.where(allowed, weights, -np.inf)
    largest = candidate_weights.max(axis=-1)
    smallest = np.where(allowed, weights, np.inf).min(axis=-1)
    is_only_candidate = allowed.sum(axis=-1) == 1
    has_pick = (largest > 0) & ((largest > smallest) | is_only_candidate)
    return np.where(has_pick, candidate_weights.argmax(axis=-1), queries)


def by_dependent(
    maps: Shaped[np.ndarray, "*heads query key"], direction: Direction
) -> Shaped[np.ndarray, "*heads dependent head"]:
    """Order the axes of maps, or of masks, so that those of the dependent come before the head's.

    Parameters
    ----------
    maps : array of shape (..., query, key)
        Maps over words.
    direction : {"dependent attends to head", "head attends to dependent"}
        Whether the query or the key is the dependent.
    """
    return maps if direction == DIRECTIONS[0] else maps.swapaxes(-1, -2)


def rows_by_dependent(
    maps: Shaped[np.ndarray, "row query key"], directions: Int[np.ndarray, " row"]
) -> Shaped[np.ndarray, "row dependent head"]:
    """Order the axes of maps as `by_dependent` does, each in the direction of its row, from 0."""
    return np.where(directions[:, None, None] == 1, maps.swapaxes(1, 2), maps)


def is_right(
    picked: Int[np.ndarray, "*heads link"], links: Links
) -> Bool[np.ndarray, "*heads link"]:
    """Mark the links whose picked word is right.

    Parameters
    ----------
    picked : int array of shape (..., link)
        The word that is picked for each link, from 0.  A pick outside the text's words, such as a
        special token, is wrong, and so is the word from which the link is read.
    links : Links
        The links of the text.

    Returns
    -------
    bool array of shape (..., link)
    """
    n_links, n_words = links.gold.shape
    is_word = (picked >= 0) & (picked < n_words)
    is_gold = links.gold[np.arange(n_links), np.where(is_word, picked, 0)]
    return is_gold & is_word & (picked != links.query)


def sees_answer(
    links: Links, visible: Bool[np.ndarray, "*heads word word"], direction: Direction
) -> Bool[np.ndarray, "*heads link"]:
    """Mark the links of which a right word is among those that can be seen.

    Parameters
    ----------
    links : Links
        The links of the text.
    visible : bool array of shape (..., word, word)
        Keys that each query sees.
    direction : {"dependent attends to head", "head attends to dependent"}
        As for `picked_words`.

    Returns
    -------
    bool array of shape (..., link)
    """
    return np.any(by_dependent(visible, direction)[..., links.query, :] & links.gold, axis=-1)
