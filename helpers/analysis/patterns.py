"""Which of five patterns an attention map shows (Kovaleva et al. 2019, section 4.1, Figure 1).

- vertical: columns, a few tokens get the attention of every token (mostly special tokens);
- diagonal: each token attends to itself or to its neighbours;
- vertical + diagonal: both;
- block: squares on the diagonal, tokens attend within their own text or sentence;
- heterogeneous: none of these.

The paper trains a convolutional network on about 400 maps labelled by hand.  Here a map is
reduced to eleven numbers (`FEATURES`), and six thresholds on five of them decide, in the order
that `classify` states.  The thresholds are in ``pattern_thresholds.json``; they were fitted by
`helpers.analysis.pattern_labels` on one half of 300 maps labelled by eye, and the other half
says how far to trust them.

In use: ``pattern_table((attention, special, segment), ...)`` takes examples one by one and counts
the classes of each head; ``map_features`` and ``classify`` are its two steps.  ``special`` says
which positions are special tokens, ``segment`` (from `text_segments` if need be) which text each
position belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.errors import InputError

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
FEATURES = (
    "special", "column", "stripes", "previous", "current", "next", "diagonal", "band", "text",
    "slide", "entropy",
)  # fmt: skip
THRESHOLDS = ("diagonal", "band", "slide", "narrow", "column", "stripes")
BAND = 8  # a token's neighbourhood reaches to an eighth of the input on either side
# Attention within the own text, as far as it is not in the neighbourhood.  Set, not fitted: the
# squares of two whole texts have more, and no map of the labels' fit half has as much.
SQUARES = 0.4

Maps = Float[np.ndarray, "layer head query key"]
Example = tuple[Maps, Bool[np.ndarray, " key"], Int[np.ndarray, " key"]]


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


def classify(
    features: Float[np.ndarray, "*map feature"], thresholds: Mapping[str, float] | None = None
) -> Int[np.ndarray, "*map"]:
    """Return the class of each map, as an index into `CLASSES`.

    A map whose attention between ordinary tokens is near the diagonal (``diagonal`` or ``band``
    reaches its threshold) is "block" if its rows stay where they are (``slide`` below) and little
    is right on the diagonal (``diagonal`` below ``narrow``); otherwise "vertical + diagonal" if
    one column is strong (``column``), else "diagonal".  Any other map is "vertical" if it has
    ``stripes``, else "heterogeneous".  A map of two squares, one for each text (``text`` above
    ``band`` by `SQUARES`), is "block" in any case.
    """
    limit = thresholds or default_thresholds()
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


@cache
def default_thresholds() -> dict[str, float]:
    """Return the thresholds fitted on the labelled maps, by name (see `classify`)."""
    return json.loads(Path(__file__).with_name("pattern_thresholds.json").read_text())


def pattern_table(examples: Iterable[Example]) -> pd.DataFrame:
    """Return how often each head shows each pattern: one row a head.

    Columns: layer, head (from 1), maps (how many), the share of each class (0-1), and pattern,
    the class that the head shows most often.
    """
    counts: np.ndarray | int = 0
    for attention, special, segment in examples:
        classes = classify(map_features(attention, special, segment))
        counts = counts + np.eye(len(CLASSES))[classes]  # [layer, head, class]
    if isinstance(counts, int):
        raise InputError("no attention map to classify; give at least one example")
    layer, head = np.indices(counts.shape[:2]).reshape(2, -1) + 1
    shares = pd.DataFrame(counts.reshape(-1, len(CLASSES)), columns=list(CLASSES))
    maps = shares.sum(axis=1)
    shares = shares.div(maps, axis=0)
    table = pd.DataFrame({"layer": layer, "head": head, "maps": maps.astype(int)}).join(shares)
    return table.assign(pattern=shares.idxmax(axis=1))


def typical_maps(features: Float[np.ndarray, "map feature"]) -> dict[str, int]:
    """Return for each class that occurs the map closest to the median features of the class."""
    classes = classify(features)
    scale = features.std(axis=0) + 1e-9
    found = {}
    for index, name in enumerate(CLASSES):
        own = np.flatnonzero(classes == index)
        if len(own):
            offset = (features[own] - np.median(features[own], axis=0)) / scale
            found[name] = int(own[np.abs(offset).sum(axis=1).argmin()])
    return found


def text_segments(special: Bool[np.ndarray, " key"]) -> Int[np.ndarray, " key"]:
    """Return which text each position belongs to (0, 1, ...), from where special tokens stand.

    Special tokens separate texts; one that closes a text belongs to it, and those in front of
    the first text to the first.
    """
    starts = ~special & np.concatenate([[True], special[:-1]])
    return np.maximum(np.cumsum(starts) - 1, 0)


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
