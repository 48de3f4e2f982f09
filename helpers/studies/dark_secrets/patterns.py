"""How often heads show each of five patterns (Kovaleva et al. 2019, section 4.1, Figures 1 and 2).

- vertical: columns, a few tokens get the attention of every token (mostly special tokens);
- diagonal: each token attends to itself or to its neighbours;
- vertical + diagonal: both;
- block: squares on the diagonal, tokens attend within their own text or sentence;
- heterogeneous: none of these.

A map is reduced to ten numbers (`FEATURES`), and support vectors tell its class from them: they
learned from maps that were labelled by eye.  ``pattern_labels.csv`` has a row a map: model,
source, example, layer, head, the labels of the first and the second pass, and the settled one;
``pattern_features.safetensors`` has their features, in the same order.  One annotator labelled
from images without names, in two passes and two orders; a third look settled where they differ.
The first 648 are one map of each head of two models in an input of each source; few of them were
blocks or heterogeneous, so that the last 118 are two more of each head and source that had one.
The rules, in this order:

- a column counts where it is clearly darker than its surroundings over most of the rows, be it
  one token wide or at the edge; a diagonal where a dark line or band (of one side, too) follows
  the main diagonal over most of its length; a light one does not count;
- squares (or triangles) that fill a text or a sentence on the diagonal, and are what one sees
  first, make a map "block", whatever columns cross them;
- else columns and diagonal decide; a map with neither is "heterogeneous".

The features are what was left of 96 when the one that helped least went again and again, over
eight ways of dealing the heads out to folds: their score is somewhat optimistic.  The share of a
column took the place of its darkness, which did not tell a column that is alone in its map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from safetensors.numpy import load_file
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from helpers.analysis.heads import head_rows
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_intervals, percentiles, resampled_sums
from helpers.cache import cached_table
from helpers.data.records import Corpus, Segment
from helpers.errors import InputError
from helpers.model.encoder import Encoder
from helpers.studies.dark_secrets.maps import TextMaps, shaded, tables_of, text_maps
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, Pair

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
ANY_COLUMN = "vertical, with or without diagonal"
FEATURES = (
    "column share", "first column", "diagonal", "second diagonal", "main diagonal", "far", "square",
    "rows alike", "far rows alike", "length",
)  # fmt: skip
REACH = 3  # a diagonal is looked for so many tokens to either side
BAND = 8  # a square begins an eighth of the input away from the diagonal

COST = 5  # of an error of the support vectors
FOLDS = 5
SMALL_CLASS = 1e-9  # a class that a resample has no map of counts as not found

PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TYPICAL_EXAMPLES = 10  # segments of the text to choose typical maps from
TEXT = "none (segments of the text)"  # what stands in column ``task`` for these

Confusion = Int[np.ndarray, "*sample label guess"]


def map_features(
    attention: Float[np.ndarray, "layer head query key"],
    special: Bool[np.ndarray, " key"],
    segment: Int[np.ndarray, " key"],
) -> Float[np.ndarray, "layer head feature"]:
    """Return `FEATURES` of each map, as float32: but for the first of the map as drawn (`shaded`).

    - column share: what the token that gets most attention gets, averaged over queries;
    - first column: the median over queries of the first token.

    Of the ordinary tokens alone:

    - diagonal, second diagonal: the means of the darkest diagonals within `REACH` of the main
      one; main diagonal: its mean; far: the mean of what is further away;
    - square: the mean within a text, away from the diagonal, less that between texts;
    - rows alike, far rows alike: the mean correlation of rows next to each other, and of rows that
      are half of the tokens apart.

    And the logarithm of the length, on which the others depend.

    Raises:
        InputError: the masks are not as long as the maps, or no token is an ordinary one.
    """
    length, ordinary = attention.shape[-1], np.flatnonzero(~special)
    if not len(special) == len(segment) == length or length < 2 or not len(ordinary):
        raise InputError(
            f"maps of {attention.shape[-2]} x {length} tokens with {len(special)} special flags "
            f"and {len(segment)} segments: expected as many of each, and an ordinary token"
        )
    maps = np.asarray(attention, np.float32)
    shades = shaded(maps)
    plain, text = shades[..., ordinary, :][..., ordinary], segment[ordinary]
    count = len(ordinary)
    reach = min(REACH, count - 1)
    lines = [np.diagonal(plain, step, -2, -1).mean(axis=-1) for step in range(-reach, reach + 1)]
    darkest = np.sort(lines, axis=0)[::-1]
    distance = np.abs(np.arange(count) - np.arange(count)[:, None])
    own = text[:, None] == text
    square = _mean(plain, own & (distance > length / BAND)) - _mean(plain, ~own)
    rows = plain - plain.mean(axis=-1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-4)
    values = [
        maps.mean(axis=-2).max(axis=-1),
        np.median(shades[..., 0], axis=-1),
        darkest[0],
        darkest[min(1, 2 * reach)],
        lines[reach],
        _mean(plain, distance > REACH),
        square * (not own.all()),
        _alike(rows, 1),
        _alike(rows, max(1, count // 2)),
        np.full(attention.shape[:2], np.log(length)),
    ]
    return np.stack(values, axis=-1).astype(np.float32)


@cache
def read_labels() -> pd.DataFrame:
    """Return the labelled maps (see the module), with a number for the head of each: ``place``."""
    table = pd.read_csv(Path(__file__).with_name("pattern_labels.csv"))
    return table.assign(place=table.groupby(["model", "layer", "head"]).ngroup())


@cache
def read_features() -> Float[np.ndarray, "map feature"]:
    """Return `FEATURES` of the labelled maps."""
    return load_file(Path(__file__).with_name("pattern_features.safetensors"))["features"]


@cache
def pattern_judge() -> Pipeline:
    """Return the support vectors of all labelled maps."""
    return _judge().fit(read_features(), read_labels()["settled"])


def confusion_by_head() -> Confusion:
    """Return, for each labelled head, how many maps of each class are taken for which.

    Heads are dealt out to folds at random, and each fold is judged by what the others taught:
    nothing of a head is on both sides.
    """
    place, labels = read_labels()["place"].to_numpy(), read_labels()["settled"].to_numpy()
    heads = range(place.max() + 1)
    folds = (np.random.default_rng(0).permutation(heads) % FOLDS)[place]
    told = cross_val_predict(_judge(), read_features(), labels, cv=PredefinedSplit(folds))
    own = [place == head for head in heads]
    return np.array([confusion_matrix(labels[of], told[of], labels=CLASSES) for of in own])


def confusion_table() -> pd.DataFrame:
    """Return how many labelled maps of each class (rows) are taken for which (columns)."""
    table = pd.DataFrame(confusion_by_head().sum(axis=0), columns=list(CLASSES))
    table.insert(0, "label", CLASSES)
    return table


def trust_table() -> pd.DataFrame:
    """Return how far the pattern classes can be trusted.

    Columns: measure, percent, its 95% interval over heads where there is one, and the paper's F1
    of its own network on its own labels.
    """
    counts, labels = confusion_by_head(), read_labels()
    drawn = resampled_sums(counts.reshape(len(counts), -1)).reshape(-1, *counts.shape[1:])
    (accuracy, f1), bounds = _scores(counts.sum(axis=0)), percentiles(_scores(drawn), len(counts))
    low, high = 100 * np.array(bounds)
    commonest = labels["settled"].value_counts(normalize=True).max()
    same = (labels["pass1"] == labels["pass2"]).mean()
    kappa = cohen_kappa_score(labels["pass1"], labels["pass2"])
    published = values_of("Kovaleva")["pattern classifier F1"]
    rows = [
        ("accuracy", 100 * accuracy, low[0], high[0], np.nan),
        ("macro F1", 100 * f1, low[1], high[1], published),
        ("accuracy of the commonest label", 100 * commonest, np.nan, np.nan, np.nan),
        ("same label in both passes", 100 * same, np.nan, np.nan, np.nan),
        ("the same beyond chance (kappa, in percent)", 100 * kappa, np.nan, np.nan, np.nan),
    ]
    return pd.DataFrame(rows, columns=["measure", "percent", "ci_low", "ci_high", "paper"])


def pattern_counts(examples: Iterable[TextMaps]) -> pd.DataFrame:
    """Return how often each head shows each pattern: one row a head.

    Columns: layer, head (from 1), maps (how many), the share of each class (0-1), and pattern,
    the class that the head shows most often.
    """
    features = [map_features(*example) for example in examples]
    if not features:
        raise InputError("no attention map to classify; give at least one example")
    shape = (len(features), *features[0].shape[:2])
    classes = pattern_judge().predict(np.concatenate(features).reshape(-1, len(FEATURES)))
    told = (classes[:, None] == np.array(CLASSES)).reshape(*shape, -1)
    shares = told.mean(axis=0)  # [layer, head, class]
    table = pd.DataFrame(shares.reshape(-1, len(CLASSES)), columns=list(CLASSES))
    heads = head_rows(*shape[1:], maps=np.full(len(table), len(features)))
    return heads.join(table).assign(pattern=table.idxmax(axis=1))


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
        parts = {(TEXT, PRETRAINED): text_maps(encoder, segments, max_tokens=max_tokens)}
        for run in runs:
            some, most = run.task.test[:PATTERN_EXAMPLES], run.recipe.max_tokens
            models = {PRETRAINED: run.encoder, FINE_TUNED: run.fine_tuned_encoder()}
            for weights, model in models.items():
                parts[run.task.name, weights] = text_maps(model, some, max_tokens=most)
        names = ["task", "weights"]
        return tables_of(parts, pattern_counts, names, encoder.device, "patterns of maps")

    facts = {"runs": [run.folder.name for run in runs], "segments": segments}
    return cached_table("patterns", compute, depends_on=facts | {"max_tokens": max_tokens})


def share_table(table: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Return the share of each class, and of `ANY_COLUMN`, over all heads of a `pattern_table`.

    Columns: task, weights, pattern, share, and its 95% bootstrap interval over heads.
    """
    shares = table.assign(**{ANY_COLUMN: table["vertical"] + table["vertical + diagonal"]})
    names, parts = [*CLASSES, ANY_COLUMN], {}
    for key, part in shares.groupby(["task", "weights"], sort=False):
        own = part[names].to_numpy()
        low, high = bootstrap_intervals(own, np.ones_like(own), seed=seed)
        columns = {"share": own.mean(axis=0), "ci_low": low, "ci_high": high}
        parts[key] = pd.DataFrame({"pattern": names} | columns)
    return stacked(parts, "task", "weights")


def typical_maps(
    encoder: Encoder, segments: Sequence[Pair], *, max_tokens: int
) -> dict[str, TextMaps]:
    """Return a map of each class that occurs, by its class and head: the judge is surest of it."""
    some = segments[:: PATTERN_EXAMPLES // TYPICAL_EXAMPLES]
    examples = list(text_maps(encoder, some, max_tokens=max_tokens))
    features = np.stack([map_features(*example) for example in examples])
    sure = pattern_judge().decision_function(features.reshape(-1, len(FEATURES)))
    found = {}
    order = pattern_judge().classes_.tolist()
    for name in CLASSES:
        number = order.index(name)
        own = np.where(sure.argmax(axis=1) == number, sure[:, number], 0)
        if own.any():
            example, layer, head = np.unravel_index(own.argmax(), features.shape[:-1])
            attention, *tokens = examples[example]
            found[f"{name} ({layer + 1}-{head + 1})"] = TextMaps(attention[layer, head], *tokens)
    return found


def _judge() -> Pipeline:
    return make_pipeline(StandardScaler(), SVC(C=COST, class_weight="balanced", break_ties=True))


def _scores(counts: Confusion) -> Float[np.ndarray, "*sample measure"]:
    """Return accuracy and macro F1 (the mean over all classes, 0 for one never found)."""
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    f1 = 2 * right / np.maximum(counts.sum(axis=-1) + counts.sum(axis=-2), SMALL_CLASS)
    return np.stack([right.sum(axis=-1) / counts.sum(axis=(-2, -1)), f1.mean(axis=-1)], axis=-1)


def _mean(
    maps: Float[np.ndarray, "layer head query key"], mask: Bool[np.ndarray, "query key"]
) -> Float[np.ndarray, "layer head"]:
    """Return the mean over the cells of a mask; 0 where it has none."""
    return maps[..., mask].sum(axis=-1) / max(1, mask.sum())


def _alike(
    rows: Float[np.ndarray, "layer head query key"], step: int
) -> Float[np.ndarray, "layer head"]:
    """Return the mean product of unit rows that are ``step`` apart; 0 where there are none."""
    products = (rows[..., step:, :] * rows[..., :-step, :]).sum(axis=-1)
    return products.sum(axis=-1) / max(1, products.shape[-1])
