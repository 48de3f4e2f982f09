"""Maps labelled by eye: the thresholds of `patterns` and how far to trust them.

``pattern_labels.csv`` has a row for each map: where it is from (source, example, layer, head), to
which half it belongs (drawn at random before it was labelled), its label, a second label where it
was labelled again, and its features.  Four maps of each of the default model's heads were drawn
first (drawn: "every head"); few of them were blocks, so that two more were drawn of the heads
that had some ("heads with blocks").  Who labelled saw the maps on `contact_sheets`, with numbers
for names, and no feature.  The thresholds are fitted on the half "fit"; the other half,
"held-out", is for `agreement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import resampled_sums
from helpers.studies.dark_secrets.patterns import CLASSES, FEATURES, THRESHOLDS, classify

HELD_OUT = "held-out"
CANDIDATES = 49  # values tried for a threshold: quantiles of its feature
STARTS = (0.2, 0.35, 0.5, 0.65, 0.8)  # quantiles from which the search sets out
RESAMPLES = 1000
SMALL_CLASS = 1e-9  # a class that a resample has no map of counts as not found

Labels = Int[np.ndarray, " map"]


@cache
def read_labels() -> pd.DataFrame:
    """Return the labelled maps (see the module)."""
    return pd.read_csv(Path(__file__).with_name("pattern_labels.csv"))


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
