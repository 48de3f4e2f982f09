"""How often heads show each of five patterns (Kovaleva et al. 2019, section 4.1, Figures 1 and 2).

- vertical: a few tokens (mostly special tokens) get the attention of every token, columns that are
  clearly darker than their surroundings over most of the rows;
- diagonal: each token attends to itself or to its neighbours, a dark line or band that follows the
  main diagonal over most of its length;
- vertical + diagonal: both;
- block: tokens attend within their own text or sentence, squares (or triangles) that fill it on the
  diagonal and are what one sees first, whatever columns cross them;
- heterogeneous: none of these.

A map is reduced to ten numbers (`FEATURES`, the best of 96 on these maps, so that their score is
somewhat optimistic), and support vectors tell its class from them.  They learned from maps that
one annotator labelled by eye, from images without names, in two passes and two orders; a third
look settled where they differ.  ``pattern_labels.csv`` has a row a map, with these three labels;
``pattern_features.safetensors`` has their features in the same order.  The first 648 are one map
of each head of two models in an input of each source, the last 118 two more where that was a block
or heterogeneous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, f1_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from helpers.analysis.heads import head_label, head_rows
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import bootstrap_intervals
from helpers.cache import cached
from helpers.data.records import Corpus, Segment
from helpers.model.encoder import Encoder
from helpers.studies.dark_secrets.maps import Maps, PerHead, TextMaps, shaded, tables_of, text_maps
from helpers.studies.fine_tune import FineTuned, stacked
from helpers.studies.tasks import FINE_TUNED, PRETRAINED, Pair

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
COLUMNS = ["vertical", "vertical + diagonal"]
ANY_COLUMN = "vertical, with or without diagonal"
SPECIAL_COLUMN = "of these, the darkest column is a special token"
FEATURES = (
    "column share", "first column", "diagonal", "second diagonal", "main diagonal", "far", "square",
    "rows alike", "far rows alike", "length",
)  # fmt: skip
REACH = 3  # a diagonal is looked for so many tokens to either side
BAND = 8  # a square begins an eighth of the input away from the diagonal
COST = 5  # of an error of the support vectors
FOLDS = 5
# What a plain map of a class has most of; what is none of these has no plain map.
PLAIN = {
    "vertical": "column share", "diagonal": "diagonal", "vertical + diagonal": "diagonal",
    "block": "square",
}  # fmt: skip
PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TEXT = "none (segments of the text)"  # what stands in column ``task`` for these


def map_features(
    attention: Maps, special: Bool[np.ndarray, " key"], segment: Int[np.ndarray, " key"]
) -> Float[np.ndarray, "layer head feature"]:
    """Return `FEATURES`: all but the first of maps as drawn, all but two of ordinary tokens."""
    length, ordinary = attention.shape[-1], np.flatnonzero(~special)
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
        maps.mean(axis=-2).max(axis=-1),  # what the token gets that gets most
        np.median(shades[..., 0], axis=-1),
        darkest[0],  # the mean of the darkest diagonal within `REACH` of the main one
        darkest[min(1, 2 * reach)],
        lines[reach],
        _mean(plain, distance > REACH),
        square * (not own.all()),  # within a text, off the diagonal, less between texts
        _alike(rows, 1),  # correlations of rows next to each other
        _alike(rows, max(1, count // 2)),  # of rows half of the tokens apart
        np.full(attention.shape[:2], np.log(length)),  # the others depend on it
    ]
    return np.stack(values, axis=-1).astype(np.float32)


@cache
def labelled_maps() -> tuple[pd.DataFrame, Float[np.ndarray, "map feature"]]:
    """Return the labelled maps (see the module) and their `FEATURES`."""
    data = Path(__file__).parent
    features = load_file(data / "pattern_features.safetensors")["features"]
    return pd.read_csv(data / "pattern_labels.csv"), features


@cache
def pattern_judge() -> Pipeline:
    """Return the support vectors of all labelled maps."""
    labels, features = labelled_maps()
    judge = make_pipeline(StandardScaler(), SVC(C=COST, class_weight="balanced", break_ties=True))
    return judge.fit(features, labels["settled"])


@cache
def told_labels() -> np.ndarray:
    """Return the classes that the labelled maps are taken for, each by what other heads taught.

    Heads are dealt out to folds at random: nothing of a head is on both sides.
    """
    labels, features = labelled_maps()
    place = labels.groupby(["model", "layer", "head"]).ngroup()
    folds = (np.random.default_rng(0).permutation(place.max() + 1) % FOLDS)[place]
    judge, split = clone(pattern_judge()), PredefinedSplit(folds)
    return cross_val_predict(judge, features, labels["settled"], cv=split)


def confusion_table() -> pd.DataFrame:
    """Return how many labelled maps of each class (rows) are taken for which (columns)."""
    counts = confusion_matrix(labelled_maps()[0]["settled"], told_labels(), labels=CLASSES)
    return pd.DataFrame(counts, pd.Index(CLASSES, name="label"), CLASSES).reset_index()


def trust_table() -> pd.DataFrame:
    """Return how far the classes can be trusted; ``paper``: its network's F1 on its own labels."""
    labels, _ = labelled_maps()
    own, told = labels["settled"], told_labels()
    paper = values_of("Kovaleva")["pattern classifier F1"]
    rows = [
        ("accuracy", accuracy_score(own, told), np.nan),
        ("macro F1", f1_score(own, told, average="macro"), paper),
        ("accuracy of the commonest label", own.value_counts(normalize=True).max(), np.nan),
        ("kappa of the two passes", cohen_kappa_score(labels["pass1"], labels["pass2"]), np.nan),
    ]
    table = pd.DataFrame(rows, columns=["measure", "percent", "paper"])
    return table.assign(percent=100 * table["percent"])


def pattern_counts(examples: Iterable[TextMaps]) -> pd.DataFrame:
    """Return how often each head shows each pattern.

    Columns: layer, head, maps (how many), the share of each class (0-1), `SPECIAL_COLUMN` (the
    share of maps with a column, the darkest of which is a special token's), and pattern, the one
    that the head shows most often.
    """
    features, special = [], []
    for example in examples:
        features.append(map_features(*example))
        darkest = example.attention.mean(axis=-2).argmax(axis=-1)  # [layer, head]
        special.append(example.special[darkest])
    told = pattern_judge().predict(np.reshape(features, (-1, len(FEATURES))))
    told = told.reshape(np.shape(special))  # [map, layer, head]
    shares = {name: (told == name).mean(axis=0) for name in CLASSES}
    shares[SPECIAL_COLUMN] = (np.isin(told, COLUMNS) & special).mean(axis=0)
    heads = head_rows(*told.shape[1:], maps=np.full(told[0].shape, len(told)), **shares)
    return heads.assign(pattern=heads[list(CLASSES)].idxmax(axis=1))


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
        return tables_of(parts, pattern_counts, encoder.device)

    return cached(
        "patterns",
        compute,
        inputs={
            "model": encoder.identity,
            "runs": [run.folder.name for run in runs],
            "segments": segments,
            "max_tokens": max_tokens,
        },
        module=__name__,
    )


def share_table(table: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Return the share of each class over all heads of a `pattern_table`.

    And of `ANY_COLUMN` (of all maps) and `SPECIAL_COLUMN` (of those with a column; NaN where there
    is none).  Columns: task, weights, pattern, share, and its 95% bootstrap interval over heads.
    """
    table = table.assign(**{ANY_COLUMN: table[COLUMNS].sum(axis=1)})
    names, parts = [*CLASSES, ANY_COLUMN, SPECIAL_COLUMN], {}
    for key, own in table.groupby(["task", "weights"], sort=False):
        values, total = own[names].to_numpy(), np.ones((len(own), len(names)))
        total[:, -1] = own[ANY_COLUMN]
        low, high = bootstrap_intervals(values, total, seed=seed)
        share = values.mean(axis=0) / np.where(total.any(axis=0), total.mean(axis=0), np.nan)
        shares = {"pattern": names, "share": share, "ci_low": low, "ci_high": high}
        parts[key] = pd.DataFrame(shares)
    return stacked(parts, "task", "weights")


def typical_maps(encoder: Encoder, segments: list[Pair], *, max_tokens: int) -> dict[str, TextMaps]:
    """Return the plainest map of each class of `PLAIN` in some segments, by its class and head."""
    best, found = dict.fromkeys(PLAIN, -np.inf), {}
    for example in text_maps(encoder, segments, max_tokens=max_tokens):
        features = map_features(*example).reshape(-1, len(FEATURES))
        told = pattern_judge().predict(features)
        for name, feature in PLAIN.items():
            scores = np.where(told == name, features[:, FEATURES.index(feature)], -np.inf)
            if scores.max() > best[name]:
                layer, head = divmod(scores.argmax(), encoder.heads)
                plainest = example._replace(attention=example.attention[layer, head])
                best[name] = scores.max()
                found[name] = f"{name} ({head_label(layer, head)})", plainest
    return dict(found[name] for name in PLAIN if name in found)


def _mean(maps: Maps, mask: Bool[np.ndarray, "query key"]) -> PerHead:
    """Return the mean over the cells of a mask; 0 where it has none."""
    return maps[..., mask].sum(axis=-1) / max(1, mask.sum())


def _alike(rows: Maps, step: int) -> PerHead:
    """Return the mean product of unit rows that are ``step`` apart; 0 where there are none."""
    products = (rows[..., step:, :] * rows[..., :-step, :]).sum(axis=-1)
    return products.sum(axis=-1) / max(1, products.shape[-1])
