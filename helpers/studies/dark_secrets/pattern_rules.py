"""Which of five patterns an attention map shows (Kovaleva et al. 2019, section 4.1, Figure 1).

- vertical: columns, a few tokens get the attention of every token (mostly special tokens);
- diagonal: each token attends to itself or to its neighbours;
- vertical + diagonal: both;
- block: squares on the diagonal, tokens attend within their own text or sentence;
- heterogeneous: none of these.

Here is what a map is reduced to before a class is told: eleven numbers with names (`FEATURES`),
and what an eye sees of the map as it is drawn (`seen_features`).  Six thresholds on five of the
former make simple rules (`classify`), beside which the judges of `pattern_labels` are measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from helpers.errors import InputError
from helpers.studies.dark_secrets.maps import shaded

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
FEATURES = (
    "special", "column", "stripes", "previous", "current", "next", "diagonal", "band", "text",
    "slide", "entropy",
)  # fmt: skip
REACH = 3  # a diagonal is looked for so many tokens to either side
THRESHOLDS = ("diagonal", "band", "slide", "narrow", "column", "stripes")
BAND = 8  # a token's neighbourhood reaches to an eighth of the input on either side
# Attention within the own text, as far as it is not in the neighbourhood.  Set, not fitted: the
# squares of two whole texts have more, and no map of the labels' fit half has as much.
SQUARES = 0.4

SMALL_CLASS = 1e-9  # a class that a resample has no map of counts as not found
CANDIDATES = 25  # values tried for a threshold: quantiles of its feature
STARTS = (0.2, 0.5, 0.8)  # quantiles from which the search sets out

Labels = Int[np.ndarray, " map"]
Maps = Float[np.ndarray, "layer head query key"]


def map_features(
    attention: Maps, special: Bool[np.ndarray, " key"], segment: Int[np.ndarray, " key"]
) -> Float[np.ndarray, "layer head feature"]:
    """Return what is looked at in each map, in the order of `FEATURES`.

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
    profile = maps.mean(axis=-2)  # [layer, head, key]
    median = np.median(maps, axis=-2)  # [layer, head, key]
    ordinary = maps[..., ~special, :][..., ~special]
    places, texts = np.flatnonzero(~special), segment[~special]
    distance = np.abs(places[:, None] - places)
    columns = {
        "special": profile[..., special].sum(axis=-1),
        "column": profile.max(axis=-1),
        "stripes": np.maximum(median - 1 / length, 0).sum(axis=-1),
        "previous": np.diagonal(maps, -1, -2, -1).mean(axis=-1),
        "current": np.diagonal(maps, 0, -2, -1).mean(axis=-1),
        "next": np.diagonal(maps, 1, -2, -1).mean(axis=-1),
        "diagonal": _above_uniform(ordinary, distance <= 1),
        "band": _above_uniform(ordinary, distance <= length / BAND),
        "text": _above_uniform(ordinary, texts[:, None] == texts),
        "slide": _slide(ordinary),
        "entropy": -(maps * np.log(maps + 1e-9)).sum(axis=-1).mean(axis=-1) / np.log(length),
    }
    return np.stack([columns[name] for name in FEATURES], axis=-1).astype(np.float64)


def all_features(
    attention: Maps, special: Bool[np.ndarray, " key"], segment: Int[np.ndarray, " key"]
) -> Float[np.ndarray, "layer head feature"]:
    """Return `map_features` and `seen_features`, in this order, as float32."""
    found = [view(attention, special, segment) for view in (map_features, seen_features)]
    return np.concatenate(found, axis=-1).astype(np.float32)


def seen_features(
    attention: Maps, special: Bool[np.ndarray, " key"], segment: Int[np.ndarray, " key"]
) -> Float[np.ndarray, "layer head feature"]:
    """Return what an eye sees of each map as it is drawn (`shaded`).

    Columns: of the median, the lower quartile, the mean and the dark share of each column, the
    largest values, those at the edges, and how a column stands out from its neighbours.  Of the
    ordinary tokens, less each column's median: the largest diagonals within `REACH` of the main
    one, how many rows have something there, bands of several widths against the rest, which side
    has more, squares of the own text against the other, and how alike rows are.
    """
    shades = shaded(np.asarray(attention, np.float32))
    length, found = shades.shape[-1], []
    means = shades.mean(axis=-2)
    padded = np.pad(means, ((0, 0), (0, 0), (2, 2)), mode="edge")
    around = sum(padded[..., i : i + length] for i in (0, 1, 3, 4)) / 4
    quartile, median = np.quantile(shades, (0.25, 0.5), axis=-2)
    for columns in (median, quartile, means, means - around, (shades > 0.5).mean(axis=-2)):
        order = np.sort(columns, axis=-1)[..., ::-1]
        found += [order[..., min(rank, length - 1)] for rank in (0, 1, 4)]
        found += [columns[..., 0], columns[..., -1], columns[..., special].max(axis=-1)]
    plain = shades[..., ~special, :][..., ~special]
    count = plain.shape[-1]
    above = np.clip(plain - np.median(plain, axis=-2, keepdims=True), 0, None)
    offset = np.arange(count) - np.arange(count)[:, None]
    distance = np.abs(offset)
    reach = range(-min(REACH, count - 1), min(REACH, count - 1) + 1)
    for part in (plain, above):
        lines = [np.diagonal(part, e, -2, -1) for e in reach]
        on = np.sort(np.stack([line.mean(axis=-1) for line in lines]), axis=0)
        far = _mean(part, distance > REACH)
        half = np.max([np.median(line, axis=-1) for line in lines], axis=0)
        found += [
            on[-1],
            on[max(-2, -len(on))],
            half,
            far,
            on[-1] - far,
            lines[len(lines) // 2].mean(axis=-1),
        ]
    near = np.where(distance <= REACH, above, 0).max(axis=-1)
    found += [near.mean(axis=-1), *((near > level).mean(axis=-1) for level in (0.15, 0.3))]
    for width in (16, BAND, 4):
        band = distance <= max(1, length / width)
        found.append(_mean(above, band) - _mean(above, ~band))
    found.append(np.abs(_mean(plain, offset > 0) - _mean(plain, offset < 0)))
    text = segment[~special]
    own = text[:, None] == text
    other = _mean(plain, ~own)
    far = own & (distance > length / BAND)
    sides = [
        _mean(plain, own & (text == t)) - _mean(plain, ~own & (text == t)[:, None]) for t in (0, 1)
    ]
    several = float(not own.all())
    found += [several * (_mean(plain, part) - other) for part in (own, far)]
    found += [several * np.minimum(*sides), several * _mean(above, ~own)]
    rows = plain - plain.mean(axis=-1, keepdims=True)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-6)
    for step in (1, max(1, count // 2)):
        found.append(_mean(rows[..., step:, :] * rows[..., :-step, :]) * count)
    found.append(_mean(rows[..., 1:, 1:] * rows[..., :-1, :-1]) * count)
    found += [
        (shades > 0.5).mean(axis=(-2, -1)),
        shades.mean(axis=(-2, -1)),
        shades.std(axis=(-2, -1)),
    ]
    found += [np.full(found[0].shape, value) for value in (np.log(length), several)]
    return np.stack(found, axis=-1).astype(np.float64)


def _mean(part: Maps, mask: Bool[np.ndarray, "query key"] | None = None) -> np.ndarray:
    """Return the mean over cells of a mask (all: None); 0 where there is none."""
    if mask is None:
        return part.mean(axis=(-2, -1)) if part.size else np.zeros(part.shape[:2])
    return part[..., mask].mean(axis=-1) if mask.any() else np.zeros(part.shape[:2])


def classify(
    features: Float[np.ndarray, "*map feature"], limit: Mapping[str, float]
) -> Int[np.ndarray, "*map"]:
    """Return the class of each map, as an index into `CLASSES`; ``limit`` has the thresholds.

    A map whose attention between ordinary tokens is near the diagonal (``diagonal`` or ``band``
    reaches its threshold) is "block" if its rows stay where they are (``slide`` below) and little
    is right on the diagonal (``diagonal`` below ``narrow``); otherwise "vertical + diagonal" if
    one column is strong (``column``), else "diagonal".  Any other map is "vertical" if it has
    ``stripes``, else "heterogeneous".  A map of two squares, one for each text (``text`` above
    ``band`` by `SQUARES`), is "block" in any case.
    """
    value = {name: features[..., index] for index, name in enumerate(FEATURES)}
    local = (value["diagonal"] >= limit["diagonal"]) | (value["band"] >= limit["band"])
    still = (value["slide"] < limit["slide"]) & (value["diagonal"] < limit["narrow"])
    squares = value["text"] - value["band"] >= SQUARES
    classes = np.select(
        [
            squares | (local & still),
            local & (value["column"] >= limit["column"]),
            local,
            value["stripes"] >= limit["stripes"],
        ],
        [CLASSES.index(n) for n in ("block", "vertical + diagonal", "diagonal", "vertical")],
        CLASSES.index("heterogeneous"),
    )
    return np.asarray(classes)


def fit_thresholds(features: Float[np.ndarray, "map feature"], labels: Labels) -> dict[str, float]:
    """Return the thresholds that agree best with labels (indices into `CLASSES`).

    Each threshold in turn takes the value with the highest sum of macro F1 and accuracy, the
    others held, until none changes; the best of several starts is taken.  Nothing is random.
    """
    columns = {n: FEATURES.index("diagonal" if n == "narrow" else n) for n in THRESHOLDS}
    grid = np.linspace(0.02, 0.98, CANDIDATES)
    candidates = {n: np.unique(np.quantile(features[:, c], grid)) for n, c in columns.items()}

    def score(limit: Mapping[str, float]) -> float:
        return sum(measures(confusion(labels, classify(features, limit))))

    best, best_score = {}, -1.0
    for start in STARTS:
        limit = {n: float(np.quantile(features[:, c], start)) for n, c in columns.items()}
        found, before = -1.0, None
        while found != before:
            before = found
            for name, values in candidates.items():
                scores = [score({**limit, name: value}) for value in values]
                if max(scores) > found:
                    found, limit[name] = max(scores), float(values[np.argmax(scores)])
        if found > best_score:
            best, best_score = limit, found
    return best


def confusion(labels: Labels, guesses: Labels) -> Int[np.ndarray, "label guess"]:
    """Return how many maps have each pair of label and guess."""
    size = len(CLASSES)
    return np.bincount(labels * size + guesses, minlength=size * size).reshape(size, size)


def measures(matrix: Float[np.ndarray, "label guess"]) -> tuple[float, float]:
    """Return accuracy and macro F1 (the mean over all classes, 0 for one never found)."""
    right = np.diagonal(matrix)
    f1 = 2 * right / np.maximum(matrix.sum(axis=0) + matrix.sum(axis=1), SMALL_CLASS)
    return float(right.sum() / matrix.sum()), float(f1.mean())


def _above_uniform(
    ordinary: Maps, inside: Bool[np.ndarray, "query key"]
) -> Float[np.ndarray, "layer head"]:
    """Return the share of the attention inside a mask: 0 if uniform, 1 if all of it is."""
    expected = inside.mean()
    if expected == 1:
        return np.zeros(ordinary.shape[:2])
    total = ordinary.sum(axis=(-2, -1), dtype=np.float64)
    within = np.where(inside, ordinary, 0).sum(axis=(-2, -1), dtype=np.float64)
    share = np.divide(within, total, out=np.full_like(total, expected), where=total > 0)
    return (share - expected) / (1 - expected)


def _slide(ordinary: Maps) -> Float[np.ndarray, "layer head"]:
    if ordinary.shape[-1] < 2:
        return np.zeros(ordinary.shape[:2])
    rows = ordinary / np.maximum(ordinary.sum(axis=-1, keepdims=True), 1e-9)
    moved = np.minimum(rows[..., :-1, :-1], rows[..., 1:, 1:])
    stayed = np.minimum(rows[..., :-1, :], rows[..., 1:, :])
    return (moved.sum(axis=-1) - stayed.sum(axis=-1)).mean(axis=-1)
