"""The keys that a query can attend to, which decide every baseline: all, earlier ones, a window.

The manifest of a store describes them for each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool


class Visible(NamedTuple):
    """The keys that the queries of a layer can attend to.

    Attributes
    ----------
    causal : bool
        Whether a query sees no later keys.
    window : int or None
        The distance of the farthest key that a query sees, in tokens; None if there is no limit.
        A key is visible if it is as far away or nearer.
    """

    causal: bool
    window: int | None


def visible_mask(visible: Visible, n: int) -> Bool[np.ndarray, "query key"]:
    """Compute which keys each query of an input can attend to.

    Parameters
    ----------
    visible : Visible
        The description of a layer.
    n : int
        The number of tokens.

    Returns
    -------
    bool array of shape (query, key)
        Each query sees itself.
    """
    positions = np.arange(n)
    distance = positions[:, None] - positions  # of a key before the query
    mask = np.ones(distance.shape, dtype=bool)
    if visible.causal:
        mask &= distance >= 0
    if visible.window is not None:
        mask &= abs(distance) <= visible.window
    return mask


def visible_words(
    mask: Bool[np.ndarray, "query key"], groups: Sequence[int]
) -> Bool[np.ndarray, "word word"]:
    """Compute which words each word can attend to: a word sees another if any of its tokens does.

    Parameters
    ----------
    mask : bool array of shape (query, key)
        Which tokens see which, as from `visible_mask`.
    groups : sequence of int
        The word of each token, numbered from 0 in their order without gaps.

    Returns
    -------
    bool array of shape (word, word)
    """
    first_tokens = np.flatnonzero(np.diff(groups, prepend=-1))
    by_query = np.logical_or.reduceat(mask, first_tokens, axis=0)
    return np.logical_or.reduceat(by_query, first_tokens, axis=1)


def describe_mask(mask: Bool[np.ndarray, "query key"]) -> Visible | None:
    """Describe a mask; None if it is neither full nor causal nor a window.

    Parameters
    ----------
    mask : bool array of shape (query, key)
        Which keys each query of an input sees.

    Returns
    -------
    Visible or None
        A window as long as the input, or longer, looks like no window.
    """
    n = len(mask)
    queries, keys = np.nonzero(mask)
    farthest = int(abs(queries - keys).max(initial=0))
    causal = n > 1 and not np.triu(mask, 1).any()
    visible = Visible(causal, farthest if farthest < n - 1 else None)
    return visible if np.array_equal(visible_mask(visible, n), mask) else None
