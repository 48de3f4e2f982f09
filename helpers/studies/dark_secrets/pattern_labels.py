"""Maps labelled by eye: the thresholds of `patterns` and how far to trust them.

``pattern_labels.csv`` has a row for each map: where it is from (source, example, layer, head), to
which half it belongs (drawn at random before it was labelled), its label, a second label where it
was labelled again, and its features.  Four maps of each of the default model's heads were drawn
first (drawn: "every head"); few of them were blocks, so that two more were drawn of the heads
that had some ("heads with blocks").  Who labelled saw contact sheets
(`pattern_labels`) with numbers for names, and no feature.  The thresholds are fitted on
the half "fit"; the other half, "held-out", is for `agreement`.

Attention maps to be labelled by eye: drawn at random, and shown on contact sheets.

The labels of ``helpers/analysis/pattern_labels.csv`` were given to the maps of `sample_maps` on
the sheets of `draw_sheets`.  To judge the pattern classes on another model, call `draw_sheets` on
its study, fill in the label column (`patterns` says what the classes are), and
give the file to `label_features` and then to `agreement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.analysis.heads import head_rows
from helpers.analysis.paper import values_of
from helpers.analysis.statistics import resampled_sums
from helpers.data.records import Record
from helpers.model.encoder import Encoder
from helpers.plots.style import save_figure
from helpers.store.shards import shard_tensors
from helpers.store.store import Source
from helpers.studies.dark_secrets.patterns import (
    CLASSES,
    FEATURES,
    THRESHOLDS,
    DrawnMap,
    classify,
    map_features,
)
from helpers.studies.dark_secrets.plots import contact_sheet
from helpers.study import Study

FIT, HELD_OUT = "fit", "held-out"
CANDIDATES = 49  # values tried for a threshold: quantiles of its feature
STARTS = (0.2, 0.35, 0.5, 0.65, 0.8)  # quantiles from which the search sets out
RESAMPLES = 1000
SMALL_CLASS = 1e-9  # a class that a resample has no map of counts as not found

Labels = Int[np.ndarray, " map"]


@cache
def read_labels(path: Path | None = None) -> pd.DataFrame:
    """Return the labelled maps (see the module); ``path`` is another file of the same columns."""
    return pd.read_csv(path or Path(__file__).with_name("pattern_labels.csv"))


def fit_thresholds(table: pd.DataFrame) -> dict[str, float]:
    """Return the thresholds that agree best with the labels of some maps.

    Each threshold in turn takes the value with the highest sum of macro F1 and accuracy, the
    others held, until none changes; the best of several starts is taken.  Nothing is random.
    """
    features, labels = _arrays(table)
    columns = {n: FEATURES.index("diagonal" if n == "narrow" else n) for n in THRESHOLDS}
    grid = np.linspace(0.02, 0.98, CANDIDATES)
    candidates = {n: np.unique(np.quantile(features[:, c], grid)) for n, c in columns.items()}
    best, best_score = {}, -1.0
    for start in STARTS:
        found = {n: float(np.quantile(features[:, c], start)) for n, c in columns.items()}
        score, before = -1.0, None
        while score != before:
            before = score
            for name, values in candidates.items():
                scores = [_score(features, labels, {**found, name: value}) for value in values]
                if max(scores) > score:
                    score, found[name] = max(scores), float(values[np.argmax(scores)])
        if score > best_score:
            best, best_score = found, score
    return {name: round(value, 4) for name, value in best.items()}


def agreement(
    table: pd.DataFrame, thresholds: Mapping[str, float] | None = None, *, seed: int = 0
) -> pd.DataFrame:
    """Return how well the thresholds agree with the labels of some maps.

    Columns: measure (accuracy, macro F1), classifier, majority (always the commonest label),
    both in percent, and the 95% bootstrap interval of the classifier over maps.
    """
    features, labels = _arrays(table)
    guesses = classify(features, thresholds)
    majority = np.full_like(labels, np.bincount(labels).argmax())
    cells = np.eye(len(CLASSES) ** 2)[labels * len(CLASSES) + guesses]  # [map, label x guess]
    drawn = resampled_sums(cells, resamples=RESAMPLES, seed=seed)
    square = (-1, len(CLASSES), len(CLASSES))
    resampled = [measures(matrix) for matrix in drawn.reshape(square)]
    rows = []
    for index, name in enumerate(("accuracy", "macro F1")):
        low, high = np.quantile([values[index] for values in resampled], (0.025, 0.975))
        values = [measures(confusion(labels, g))[index] for g in (guesses, majority)]
        rows.append((name, *(100 * value for value in (*values, low, high))))
    return pd.DataFrame(rows, columns=["measure", "classifier", "majority", "ci_low", "ci_high"])


def agreement_across_heads(table: pd.DataFrame, *, folds: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return `agreement` where no map of a head has had a part in that head's thresholds.

    Heads are dealt out to folds at random, and thresholds fitted on all folds but one.
    """
    heads = table["layer"].astype(str) + "-" + table["head"].astype(str)
    names = np.unique(heads)
    deal = np.random.default_rng(seed).permutation(len(names)) % folds
    fold = heads.map(dict(zip(names, deal, strict=True))).to_numpy()
    features, labels = _arrays(table)
    guesses = np.empty_like(labels)
    for number in range(folds):
        inside = fold == number
        guesses[inside] = classify(features[inside], fit_thresholds(table[~inside]))
    accuracy, macro = measures(confusion(labels, guesses))
    rows = [("accuracy", 100 * accuracy), ("macro F1", 100 * macro)]
    return pd.DataFrame(rows, columns=["measure", "classifier"])


def trust_table() -> pd.DataFrame:
    """Return how far the pattern classes of `patterns` can be trusted.

    Columns: measure, maps, percent, its 95% interval where there is one, and the paper's F1 of
    its own network on its own labels.
    """
    labels, paper = read_labels(), values_of("Kovaleva")
    unseen = labels[labels["half"] == HELD_OUT]
    rows = []
    for row in agreement(unseen).itertuples():
        published = paper["pattern classifier F1"] if row.measure == "macro F1" else np.nan
        values = (row.classifier, row.ci_low, row.ci_high, published)
        rows.append((f"{row.measure}, held-out half", len(unseen), *values))
        rows.append((f"{row.measure} of the commonest label", len(unseen), row.majority))
    for row in agreement_across_heads(labels).itertuples():
        rows.append((f"{row.measure}, heads not fitted on", len(labels), row.classifier))
    twice = self_agreement(labels)
    rows.append(("same label the second time", twice["maps"], twice["same"]))
    columns = ["measure", "maps", "percent", "ci_low", "ci_high", "paper"]
    return pd.DataFrame([(*row, *[np.nan] * (6 - len(row))) for row in rows], columns=columns)


def confusion_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many maps of each label (rows) are put into each class (columns)."""
    features, labels = _arrays(table)
    counts = confusion(labels, classify(features))
    names = list(CLASSES)
    return pd.DataFrame(counts, pd.Index(names, name="labelled"), pd.Index(names, name="found"))


def self_agreement(table: pd.DataFrame) -> dict[str, float]:
    """Return how often who labelled a map twice gave it the same label: maps, percent, kappa."""
    twice = table.dropna(subset="second_label")
    first, second = (_indices(twice[name]) for name in ("label", "second_label"))
    counts = confusion(first, second) / len(twice)
    expected = float(counts.sum(axis=0) @ counts.sum(axis=1))
    same = float(np.trace(counts))
    return {"maps": len(twice), "same": 100 * same, "kappa": (same - expected) / (1 - expected)}


def confusion(labels: Labels, guesses: Labels) -> Int[np.ndarray, "label guess"]:
    """Return how many maps have each pair of label and guess."""
    size = len(CLASSES)
    return np.bincount(labels * size + guesses, minlength=size * size).reshape(size, size)


def measures(matrix: Float[np.ndarray, "label guess"]) -> tuple[float, float]:
    """Return accuracy and macro F1 (the mean over all classes, 0 for one never found)."""
    right = np.diagonal(matrix)
    f1 = 2 * right / np.maximum(matrix.sum(axis=0) + matrix.sum(axis=1), SMALL_CLASS)
    return float(right.sum() / matrix.sum()), float(f1.mean())


def _score(features: np.ndarray, labels: Labels, thresholds: Mapping[str, float]) -> float:
    return sum(measures(confusion(labels, classify(features, thresholds))))


def _arrays(table: pd.DataFrame) -> tuple[Float[np.ndarray, "map feature"], Labels]:
    return table[list(FEATURES)].to_numpy(float), _indices(table["label"])


def _indices(labels: pd.Series) -> Labels:
    return labels.map({name: index for index, name in enumerate(CLASSES)}).to_numpy(int)


SEGMENT, SHORT_PAIR, SHORT_TEXT = "segment", "short pair", "short text"
SHORT = 24  # tokens of each text of a short input, about a sentence
COPIES = 3  # segments for each head, besides one short input
PER_SHEET = 12  # large enough to see a column that is one token wide


def sample_maps(source: Source, *, copies: int = COPIES, seed: int = 0) -> pd.DataFrame:
    """Return maps in random order: every head in ``copies`` segments and one short input.

    Columns: map (from 1, the only name that a map has on a sheet), source ("segment", or
    "short pair" and "short text", cut to the first `SHORT` tokens), example (its index in the
    store), layer, head (from 1) and half ("fit" or "held-out", half of the maps each).
    """
    generator = np.random.default_rng(seed)
    heads = head_rows(source.layers, source.heads)
    short = heads.assign(source=np.resize([SHORT_PAIR, SHORT_TEXT], len(heads)))
    table = pd.concat([heads.assign(source=SEGMENT)] * copies + [short], ignore_index=True)
    table["example"] = generator.choice(len(source), len(table), replace=len(source) < len(table))
    table = table.iloc[generator.permutation(len(table))].reset_index(drop=True)
    table["map"] = table.index + 1
    table["half"] = np.where(generator.permutation(len(table)) % 2 == 0, "held-out", "fit")
    return table[["map", "source", "example", "layer", "head", "half"]]


def read_maps(encoder: Encoder, source: Source, rows: pd.DataFrame) -> Iterator[DrawnMap]:
    """Yield the map of each row of `sample_maps`; the model computes it, stored or not."""
    for row in rows.itertuples():
        record = _cut(source.record(row.example), row.source, source)
        maps = shard_tensors(encoder, [record], 0, level="token")["attention/000000"]
        weights = maps[row.layer - 1, row.head - 1].astype(np.float32)
        yield DrawnMap(str(row.map), weights, *_masks(record, source))


def draw_sheets(
    study: Study, folder: Path, rows: pd.DataFrame | None = None, *, seed: int = 0
) -> pd.DataFrame:
    """Write contact sheets and a ``pattern_labels.csv`` to fill in; return its table.

    ``rows`` are the maps to draw, those of `sample_maps` by default; with those of
    `read_labels` and the default study, someone else can label
    the same maps.
    """
    source = study.segment_store()
    chosen = sample_maps(source, seed=seed) if rows is None else rows
    rows = chosen.drop(columns=list(FEATURES), errors="ignore").assign(label="", second_label="")
    for number, start in enumerate(range(0, len(rows), PER_SHEET), 1):
        part = rows.iloc[start : start + PER_SHEET]
        sheet = contact_sheet(list(read_maps(study.encoder, source, part)), f"Sheet {number}")
        save_figure(sheet, folder, f"sheet-{number:02d}")
    rows.to_csv(folder / "pattern_labels.csv", index=False)
    return rows


def label_features(encoder: Encoder, source: Source, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `sample_maps`, labelled or not, with the features of their maps."""
    features = [
        map_features(drawn.weights[None, None], drawn.special, drawn.segment)[0, 0]
        for drawn in read_maps(encoder, source, rows)
    ]
    values = pd.DataFrame(features, columns=list(FEATURES), index=rows.index).round(5)
    return rows.drop(columns=list(FEATURES), errors="ignore").join(values)


def _masks(
    record: Record, source: Source
) -> tuple[Bool[np.ndarray, " token"], Int[np.ndarray, " token"]]:
    """Return which tokens are special, and which of the two texts each belongs to."""
    names = [token for token in source.special_tokens.values() if token is not None]
    segment = (np.arange(len(record["tokens"])) >= record["second"]).astype(int)
    return np.isin(record["tokens"], names), segment


def _cut(record: Record, kind: str, source: Source) -> Record:
    """Return the record of a short input: the first tokens of both texts, or of the first."""
    if kind == SEGMENT:
        return record
    special, segment = _masks(record, source)
    rank = np.zeros(len(special), int)
    for text in (0, 1):
        ordinary = ~special & (segment == text)
        rank[ordinary] = np.arange(ordinary.sum())
    keep = rank < SHORT
    if kind == SHORT_TEXT:
        keep &= segment == 0
    tokens = [token for token, kept in zip(record["tokens"], keep, strict=True) if kept]
    return {"tokens": tokens, "second": int(keep[: record["second"]].sum())}
