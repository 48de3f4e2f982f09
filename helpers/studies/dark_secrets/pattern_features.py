"""Which of five patterns an attention map shows (Kovaleva et al. 2019, section 4.1, Figure 1).

- vertical: columns, a few tokens get the attention of every token (mostly special tokens);
- diagonal: each token attends to itself or to its neighbours;
- vertical + diagonal: both;
- block: squares on the diagonal, tokens attend within their own text or sentence;
- heterogeneous: none of these.

A map is reduced to numbers before a class is told: eleven with names (`FEATURES`), then what an
eye sees of the map as it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from helpers.errors import InputError
from helpers.studies.dark_secrets.maps import shaded

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
ANY_COLUMN = "vertical, with or without diagonal"
FEATURES = (
    "special", "column", "stripes", "previous", "current", "next", "diagonal", "band", "text",
    "slide", "entropy",
)  # fmt: skip
REACH = 3  # a diagonal is looked for so many tokens to either side
BAND = 8  # a token's neighbourhood reaches to an eighth of the input on either side

Maps = Float[np.ndarray, "layer head query key"]
Special = Bool[np.ndarray, " key"]
Segment = Int[np.ndarray, " key"]


def map_features(
    attention: Maps, special: Special, segment: Segment
) -> Float[np.ndarray, "layer head feature"]:
    """Return what is looked at in each map, as float32; the first are `FEATURES`.

    Shares of attention, averaged over queries:

    - special: to special tokens; column: to the token that gets most; previous, current, next:
      to that neighbour, over the queries that have one;
    - stripes: what every query gives to the same tokens: the sum over keys of the median over
      queries, as far as it is above uniform attention.

    Shares of the attention between ordinary tokens (0: as uniform attention, 1: all of it):

    - diagonal: to the token itself and its two neighbours; band: within `BAND` of the length;
    - text: within the own text; 0 where there is only one.

    And two more:

    - slide: how much of a row of ordinary tokens stays the same from one query to the next if it
      moves along, less how much does if it stays: above 0 on a diagonal, below 0 in columns and
      blocks;
    - entropy: of the attention, as a share of that of uniform attention.

    Then of the map as drawn (`shaded`): of the median, the lower quartile, the mean and the dark
    share of each column, the largest values, those at the edges, and how a column stands out from
    its neighbours.  Of the ordinary tokens, as they are and less each column's median: the
    largest diagonals within `REACH` of the main one, how many rows have something there, bands of
    several widths against the rest, which side has more, squares of the own text against the
    other, how much squares of four sizes stand out (`_contrast`), and how alike rows are that
    are near or far from each other.

    Raises:
        InputError: the masks are not as long as the maps, or no token is an ordinary one.
    """
    length = attention.shape[-1]
    if not len(special) == len(segment) == length or length < 2 or special.all():
        raise InputError(
            f"maps of {attention.shape[-2]} x {length} tokens with {len(special)} special flags "
            f"and {len(segment)} segments: expected as many of each, and an ordinary token"
        )
    maps = np.asarray(attention, np.float32)
    shades, ordinary = shaded(maps), np.flatnonzero(~special)
    values = [
        *_weights(maps, special, segment[ordinary]),
        *_columns(shades, special),
        *_ordinary(shades[..., ordinary, :][..., ordinary], segment[ordinary], length),
        (shades > 0.5).mean(axis=(-2, -1)),
        shades.mean(axis=(-2, -1)),
        shades.std(axis=(-2, -1)),
        np.full(maps.shape[:2], np.log(length)),
        np.full(maps.shape[:2], len(set(segment[ordinary])) > 1),
    ]
    return np.stack(values, axis=-1).astype(np.float32)


def _weights(maps: Maps, special: Special, texts: Segment) -> list[np.ndarray]:
    """Return `FEATURES`; ``texts`` are those of ordinary tokens."""
    length, places = len(special), np.flatnonzero(~special)
    inner = maps[..., places, :][..., places]
    profile = maps.mean(axis=-2)
    median = _quantile(np.swapaxes(maps, -1, -2), 0.5)
    distance = np.abs(places[:, None] - places)
    near = [distance <= 1, distance <= length / BAND, texts[:, None] == texts]
    return [
        profile[..., special].sum(axis=-1),
        profile.max(axis=-1),
        np.maximum(median - 1 / length, 0).sum(axis=-1),
        *(np.diagonal(maps, offset, -2, -1).mean(axis=-1) for offset in (-1, 0, 1)),
        *_above_uniform(inner, near),
        _slide(inner),
        -(maps * np.log(maps + 1e-9)).sum(axis=-1).mean(axis=-1) / np.log(length),
    ]


def _columns(shades: Maps, special: Special) -> list[np.ndarray]:
    length, means = len(special), shades.mean(axis=-2)
    padded = np.pad(means, ((0, 0), (0, 0), (2, 2)), mode="edge")
    around = sum(padded[..., i : i + length] for i in (0, 1, 3, 4)) / 4
    quartile, median = _quantile(np.swapaxes(shades, -1, -2), 0.25, 0.5)
    found = []
    for columns in (median, quartile, means, means - around, (shades > 0.5).mean(axis=-2)):
        order = np.sort(columns, axis=-1)[..., ::-1]
        found += [order[..., min(rank, length - 1)] for rank in (0, 1, 4)]
        at_special = columns[..., special] if special.any() else np.zeros_like(columns)
        found += [columns[..., 0], columns[..., -1], at_special.max(axis=-1)]
    return found


def _ordinary(plain: Maps, text: Segment, length: int) -> list[np.ndarray]:
    count = len(text)
    above = np.maximum(plain - _quantile(np.swapaxes(plain, -1, -2), 0.5)[..., None, :], 0)
    offset = np.arange(count) - np.arange(count)[:, None]
    distance, own = np.abs(offset), text[:, None] == text
    reach = min(REACH, count - 1)
    found = []
    for part in (plain, above):
        lines = [np.diagonal(part, step, -2, -1) for step in range(-reach, reach + 1)]
        on = np.sort([line.mean(axis=-1) for line in lines], axis=0)
        half = np.max([_quantile(line, 0.5) for line in lines], axis=0)
        (far,) = _means(part, [distance > REACH])
        found += [on[-1], on[max(-2, -len(on))], half, far, on[-1] - far]
        found.append(lines[reach].mean(axis=-1))
    near = np.where(distance <= REACH, above, 0).max(axis=-1)
    found += [near.mean(axis=-1), *((near > level).mean(axis=-1) for level in (0.15, 0.3))]
    bands = [distance <= max(1, length / width) for width in (16, BAND, 4)]
    *inside, crossing = _means(above, [*bands, *(~band for band in bands), ~own])
    found += [band - rest for band, rest in zip(inside[:3], inside[3:], strict=True)]
    masks = [offset > 0, offset < 0, ~own, own, own & (distance > length / BAND)]
    for number in (0, 1):
        masks += [own & (text == number), ~own & (text == number)[:, None]]
    right, left, other, same, apart, *sides = _means(plain, masks)
    squares = [same - other, apart - other, np.minimum(sides[0] - sides[1], sides[2] - sides[3])]
    found += [np.abs(right - left), *(not own.all()) * np.array([*squares, crossing])]
    rows = _unit(plain - plain.mean(axis=-1, keepdims=True))
    for step in (1, max(1, count // 2)):
        found.append(_alike(rows[..., step:, :], rows[..., :-step, :]) * count)
    found.append(_alike(rows[..., 1:, 1:], rows[..., :-1, :-1]) * count)
    for part in (plain, above):
        sums = _corner_sums(np.where(distance > 2, part, 0))
        for width in (count // 12, count // 6, count // 3, count):
            contrast = _contrast(sums, max(2, width))
            found += [contrast.max(axis=-1), contrast.std(axis=-1)]
    rows = np.sqrt(np.where(distance > 1, above, 0))
    rows = _unit(rows - rows.mean(axis=-2, keepdims=True))
    edges = [0, 1, 2, max(3, count / 16), count / BAND, count / 4, count]
    apart = [(distance > low) & (distance <= high) for low, high in pairwise(edges)]
    apart += [own & (distance > count / 16), ~own]
    return [*found, *_means(rows @ np.swapaxes(rows, -1, -2), apart)]


def _corner_sums(maps: Maps) -> Float[np.ndarray, "layer head corner corner"]:
    """Return what each map has above and to the left of each corner of its cells."""
    return np.pad(maps, ((0, 0), (0, 0), (1, 0), (1, 0))).cumsum(axis=-2).cumsum(axis=-1)


def _contrast(
    sums: Float[np.ndarray, "layer head corner corner"], width: int
) -> Float[np.ndarray, "layer head cut"]:
    """Return how much darker the squares on both sides of a cut are than where they cross.

    Squares of up to ``width`` tokens, at cuts that are not too near the edges: a checkerboard
    moved along the diagonal (Foote 2000).  ``sums`` are the map's `_corner_sums`.
    """
    count = sums.shape[-1] - 1
    if count < 2:
        return np.zeros((*sums.shape[:2], 1))
    margin = min(width // 2, (count - 2) // 3)
    cut = np.arange(1 + margin, count - margin)
    first, last = np.maximum(cut - width, 0), np.minimum(cut + width, count)

    def mean(top: Int[np.ndarray, " cut"], left: Int[np.ndarray, " cut"]) -> np.ndarray:
        """Return the mean of a rectangle from here to the cut, or from the cut on."""
        bottom, right = (np.where(start == cut, last, cut) for start in (top, left))
        inside = sums[..., bottom, right] - sums[..., top, right]
        inside += sums[..., top, left] - sums[..., bottom, left]
        return inside / ((bottom - top) * (right - left))

    return (mean(first, first) + mean(cut, cut) - mean(first, cut) - mean(cut, first)) / 2


def _unit(rows: Maps) -> Maps:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-6)


def _quantile(values: Float[np.ndarray, "*row value"], *shares: float) -> np.ndarray:
    """Return one quantile of each row, or several; sorting is faster here than partitioning."""
    ordered, last = np.sort(values, axis=-1), values.shape[-1] - 1
    found = []
    for share in shares:
        low = int(share * last)
        below, above = ordered[..., low], ordered[..., min(low + 1, last)]
        found.append(below + (share * last - low) * (above - below))
    return found[0] if len(found) == 1 else np.stack(found)


def _means(
    maps: Maps, masks: Sequence[Bool[np.ndarray, "query key"]]
) -> Float[np.ndarray, "mask layer head"]:
    """Return the mean over the cells of each mask; 0 where a mask has none."""
    cells = np.reshape(masks, (len(masks), -1)).astype(np.float32)
    sums = maps.reshape(*maps.shape[:2], -1) @ cells.T
    return np.moveaxis(sums / np.maximum(cells.sum(axis=1), 1), -1, 0)


def _above_uniform(
    ordinary: Maps, masks: Sequence[Bool[np.ndarray, "query key"]]
) -> Float[np.ndarray, "mask layer head"]:
    """Return the share of the attention inside each mask: 0 if uniform, 1 if all of it is."""
    expected = np.mean(masks, axis=(1, 2))[:, None, None]
    total = ordinary.mean(axis=(-2, -1))
    within = _means(ordinary, masks) * expected
    share = np.divide(within, total, out=np.zeros_like(within) + expected, where=total > 0)
    return (share - expected) / np.where(expected == 1, np.inf, 1 - expected)


def _slide(ordinary: Maps) -> Float[np.ndarray, "layer head"]:
    if ordinary.shape[-1] < 2:
        return np.zeros(ordinary.shape[:2])
    rows = ordinary / np.maximum(ordinary.sum(axis=-1, keepdims=True), 1e-9)
    moved = np.minimum(rows[..., :-1, :-1], rows[..., 1:, 1:])
    stayed = np.minimum(rows[..., :-1, :], rows[..., 1:, :])
    return (moved.sum(axis=-1) - stayed.sum(axis=-1)).mean(axis=-1)


def _alike(rows: Maps, others: Maps) -> Float[np.ndarray, "layer head"]:
    return (rows * others).sum(axis=(-2, -1)) / max(1, rows.shape[-2] * rows.shape[-1])
