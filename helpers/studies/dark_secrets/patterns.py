"""Which of five patterns an attention map shows (Kovaleva et al. 2019, section 4.1, Figure 1).

- vertical: columns, a few tokens get the attention of every token (mostly special tokens);
- diagonal: each token attends to itself or to its neighbours;
- vertical + diagonal: both;
- block: squares on the diagonal, tokens attend within their own text or sentence;
- heterogeneous: none of these.

The paper trains a convolutional network on about 400 maps labelled by hand.  Here a map is
reduced to eleven numbers (`FEATURES`), and six thresholds on five of them decide, in the order
that `classify` states.  The thresholds are in ``pattern_thresholds.json``; they were fitted by
`pattern_labels` on one half of 300 maps labelled by eye, and the other half says how far to trust
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.analysis.heads import head_rows
from helpers.cache import cached_table
from helpers.data.records import Corpus, Segment
from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.model.parallel import StepDone, run_jobs
from helpers.studies.dark_secrets.maps import DrawnMap, TextMaps, text_maps
from helpers.studies.fine_tune import FineTuned
from helpers.studies.tasks import Pair

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

BEFORE, AFTER = "pretrained", "fine-tuned"  # column ``weights``
PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TYPICAL_EXAMPLES = 10  # segments of the text to choose typical maps from
TEXT = "none (segments of the text)"  # what stands in column ``task`` for these

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


def pattern_counts(examples: Iterable[TextMaps]) -> pd.DataFrame:
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
    shares = pd.DataFrame(counts.reshape(-1, len(CLASSES)), columns=list(CLASSES))
    maps = shares.sum(axis=1)
    shares = shares.div(maps, axis=0)
    table = head_rows(*counts.shape[:2], maps=maps.astype(int)).join(shares)
    return table.assign(pattern=shares.idxmax(axis=1))


def most_typical(features: Float[np.ndarray, "map feature"]) -> dict[str, int]:
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


def spread_segments(corpus: Corpus[Segment]) -> list[Pair]:
    """Return `PATTERN_EXAMPLES` segments of a text, spread evenly over it."""
    found = corpus.records()
    places = np.linspace(0, len(found) - 1, min(PATTERN_EXAMPLES, len(found))).astype(int)
    return [Pair(found[place].first, found[place].second, 0) for place in places]


def pattern_table(
    encoder: Encoder, segments: Sequence[Pair], runs: Sequence[FineTuned], *, max_tokens: int
) -> pd.DataFrame:
    """Return how often each head shows each pattern, on each task and on segments of a text.

    Columns: task (`TEXT` for ``segments``), weights (before or after fine-tuning), and those of
    `pattern_counts`.
    """

    def compute() -> pd.DataFrame:
        parts = [(encoder, segments, max_tokens, TEXT, BEFORE)]
        for run in runs:
            some, longest = run.task.test[:PATTERN_EXAMPLES], run.recipe.max_tokens
            parts.append((run.encoder, some, longest, run.task.name, BEFORE))
            parts.append((run.fine_tuned_encoder(), some, longest, run.task.name, AFTER))
        found = run_jobs(
            [partial(_patterns, *part) for part in parts],
            encoder.device,
            label="patterns of maps",
            unit="example",
            total=sum(len(pairs) for _, pairs, *_ in parts),
        )
        return pd.concat(found, ignore_index=True)

    facts = {"runs": [run.folder.name for run in runs], "segments": segments}
    return cached_table(
        "patterns",
        compute,
        depends_on=facts | {"max_tokens": max_tokens},
        code="studies.dark_secrets.patterns.pattern_table",
    )


def typical_maps(encoder: Encoder, segments: Sequence[Pair], *, max_tokens: int) -> list[DrawnMap]:
    """Return a map of each pattern class, the most typical of a model on some segments."""
    some = segments[:: PATTERN_EXAMPLES // TYPICAL_EXAMPLES]
    examples = list(text_maps(encoder, some, max_tokens=max_tokens))
    features = np.stack([map_features(*example) for example in examples])
    found = []  # features are [example, layer, head, feature]
    for name, index in most_typical(features.reshape(-1, features.shape[-1])).items():
        number, layer, head = np.unravel_index(index, features.shape[:-1])
        attention, special, segment = examples[number]
        title = f"{name} ({layer + 1}-{head + 1})"
        found.append(DrawnMap(title, attention[layer, head], special, segment))
    return found


def _patterns(
    encoder: Encoder,
    pairs: Sequence[Pair],
    max_tokens: int,
    task: str,
    weights: str,
    step_done: StepDone,
) -> pd.DataFrame:
    def examples() -> Iterator[TextMaps]:
        for example in text_maps(encoder, pairs, max_tokens=max_tokens):
            yield example
            step_done()

    table = pattern_counts(examples())
    table.insert(0, "task", task)
    table.insert(1, "weights", weights)
    return table


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
