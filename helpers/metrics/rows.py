"""The measures of section 3 as sums over a block of rows: consecutive queries of one layer.

Each measure is a mean over the queries of an example.  Therefore the sums of all blocks give it,
and no block needs the others.  Whole maps are one block for each layer.  The maps of a text that is
too long for memory come in several blocks, each of which is dropped when it has been measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from helpers.data.records import Roles
from helpers.metrics.heads import PerHead
from helpers.metrics.statistics import divide
from helpers.store.store import ROW_SUM_TOLERANCE

ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero
OFFSETS = {"previous": -1, "current": 0, "next": 1}  # of the key from the query
SPECIAL = ("first", "cls", "sep")
TOKEN_TYPES = (
    "first", "cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "cls_to_cls",
    "other_to_cls", "first_to_first", "other_to_first", "uniform_first", "uniform_cls",
    "uniform_sep", "sink",
)  # fmt: skip

Rows = Float[np.ndarray, "head query key"]
Seen = Bool[np.ndarray, "query key"]
# The sum over queries, their number, and whether what is measured can occur at one of them.
Totals = Float[np.ndarray, "3 head"]
Measure = Callable[[Rows, int, Seen], dict[str, Totals]]


def section_3(
    rows: Rows, first: int, visible: Seen, roles: Roles, *, cross: bool = False
) -> dict[str, Totals]:
    """Sum every measure of section 3 over a block of rows; without neighbours in cross-attention.

    Parameters
    ----------
    rows : array, shape (head, query, key)
        Consecutive rows of the maps of one layer.
    first : int
        The position of the first query.
    visible : bool array, shape (query, key)
        The keys that each query sees.
    roles : Roles
        Masks over all tokens of the example (of the keys).
    cross : bool
        Whether queries are tokens of another text.

    Returns
    -------
    dict of str to array, shape (3, head)
        See `Totals`.
    """
    totals = {} if cross else relative_position(rows, first, visible)
    totals |= token_types(rows, first, visible, roles, cross=cross)
    totals |= entropy(rows, first, visible, roles, cross=cross)
    return totals


def relative_position(rows: Rows, first: int, visible: Seen) -> dict[str, Totals]:
    """Sum the attention to the previous, the current and the next token; see `section_3`."""
    _, n_queries, n = rows.shape
    totals = {}
    for name, offset in OFFSETS.items():
        keys = np.arange(first, first + n_queries) + offset
        queries = np.flatnonzero((keys >= 0) & (keys < n))
        keys = keys[queries]
        weights = np.zeros(rows.shape[:2], dtype=rows.dtype)
        weights[:, queries] = rows[:, queries, keys]
        totals[name] = total(weights, occurs=visible[queries, keys].any())
    return totals


def token_types(
    rows: Rows, first: int, visible: Seen, roles: Roles, *, cross: bool = False
) -> dict[str, Totals]:
    """Sum the attention to [CLS], [SEP] and punctuation; see `section_3`."""
    n_heads, n_queries, n = rows.shape
    n_visible = visible.sum(axis=-1)  # [query]
    totals: dict[str, Totals] = dict.fromkeys(TOKEN_TYPES, total(np.zeros((n_heads, 0))))
    for name, mask in zip(SPECIAL, (np.arange(n) == 0, roles.cls, roles.sep), strict=True):
        if mask is None:
            continue
        to_token = rows[..., mask].sum(axis=-1)  # [head, query]
        uniform = visible[:, mask].sum(axis=-1) / n_visible
        totals[name] = total(to_token)
        totals[f"uniform_{name}"] = total(np.tile(uniform, (n_heads, 1)))
        if not cross:
            is_token = mask[first : first + n_queries]
            sees_others = visible[is_token][:, ~mask].any()
            totals[f"{name}_to_{name}"] = total(to_token[:, is_token], occurs=sees_others)
            totals[f"other_to_{name}"] = total(to_token[:, ~is_token])
    totals["punctuation"] = total(rows[..., roles.punctuation].sum(axis=-1))
    missing = 1 - rows.sum(axis=-1)
    totals["sink"] = total(missing, occurs=missing.max() > ROW_SUM_TOLERANCE)
    return totals


def entropy(
    rows: Rows, first: int, visible: Seen, roles: Roles, *, cross: bool = False
) -> dict[str, Totals]:
    """Sum the entropies of rows, and their largest weights; see `section_3`."""
    n_heads, n_queries, _ = rows.shape
    n_visible = visible.sum(axis=-1)  # [query]
    uniform = visible / n_visible[:, None]
    smoothed = (1 - ENTROPY_SMOOTHING) * rows + (ENTROPY_SMOOTHING * uniform).astype(rows.dtype)
    row_entropy = -np.einsum("hij,hij->hi", smoothed, np.log(smoothed + ~visible))  # 0 ln 0 = 0
    is_cls = np.zeros(n_queries, dtype=bool)
    if roles.cls is not None and not cross:
        is_cls = roles.cls[first : first + n_queries]
    return {
        "entropy": total(row_entropy),
        "entropy_from_cls": total(row_entropy[:, is_cls], occurs=(n_visible[is_cls] > 1).any()),
        "uniform": total(np.tile(np.log(n_visible), (n_heads, 1))),
        "largest": total(rows.max(axis=-1)),
    }


def total(values: Float[np.ndarray, "head query"], *, occurs: bool | np.bool = True) -> Totals:
    """Sum the values of some queries, and count the queries."""
    sums = values.sum(axis=-1, dtype=np.float64)
    return np.stack(np.broadcast_arrays(sums, values.shape[-1], occurs and values.shape[-1] > 0))


class RowSums:
    """Sums of measures over the rows of one example, added block by block.

    Parameters
    ----------
    measure : callable
        What to sum, a function of a block of rows, as `section_3` with the roles of the tokens.

    Examples
    --------
    >>> sums = RowSums(partial(section_3, roles=example.roles))
    >>> for layer, rows in enumerate(example.attention):
    ...     sums.add(layer, rows, 0, example.visible_keys[layer])
    >>> sums.means()["entropy"].shape  # (layer, head)
    (6, 12)
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.layers: dict[int, dict[str, Totals]] = {}

    def add(self, layer: int, rows: Rows, first: int, visible: Seen) -> None:
        """Add a block of rows of a layer (from 0); ``first`` is the position of its first query."""
        block_totals = self.measure(rows, first, visible)
        if layer in self.layers:
            block_totals = {
                name: self.layers[layer][name] + block_totals[name] for name in block_totals
            }
        self.layers[layer] = block_totals

    def means(self) -> dict[str, PerHead]:
        """Average each measure over the queries; NaN where it cannot occur, or no query counts."""
        layer_totals = [self.layers[layer] for layer in sorted(self.layers)]
        return {
            name: _means(name, [layer[name] for layer in layer_totals]) for name in layer_totals[0]
        }


def _means(name: str, layer_totals: list[Totals]) -> PerHead:
    """Average one measure over the queries of each layer."""
    sums, n_queries, occurs = np.stack(layer_totals, axis=1)  # [layer, head] each
    if name == "sink":  # a model has sinks or none, whatever share some of its heads give them
        occurs = occurs.any()
    return divide(sums, n_queries * (occurs > 0))


def means_of_maps(
    measure: Measure,
    attention: Float[np.ndarray, "layer head query key"],
    visible: Bool[np.ndarray, "layer query key"],
) -> dict[str, PerHead]:
    """Average a measure over the rows of whole maps, which are one block for each layer.

    Parameters
    ----------
    measure : callable
        A function of a block of rows.
    attention : array, shape (layer, head, query, key)
        The maps of an example.
    visible : bool array, shape (layer, query, key)
        The keys that each query sees.

    Returns
    -------
    dict of str to array, shape (layer, head)
    """
    sums = RowSums(measure)
    for layer, (layer_rows, layer_visible) in enumerate(zip(attention, visible, strict=True)):
        sums.add(layer, layer_rows, 0, layer_visible)
    return sums.means()
