"""How often attention heads show each of five patterns (Kovaleva et al. 2019, section 4.1).

These are the patterns of Figures 1 and 2 of the paper:

- vertical: every token attends to a few tokens, mostly special tokens.  The map has columns that
  are clearly darker than their surroundings over most of the rows;
- diagonal: each token attends to itself or to its neighbours.  The map has a dark line or band that
  follows the main diagonal over most of its length;
- vertical + diagonal: both;
- block: tokens attend within their own text or sentence.  The map has squares (or triangles) on the
  diagonal, which are its most striking feature even if columns cross them;
- heterogeneous: none of these.

A support vector machine predicts the pattern of a map from ten numbers (`FEATURES`).  They are the
best of 96 on the labelled maps, so their score on these maps is somewhat optimistic.

One annotator labelled the maps by eye, from images without names, in two passes and two orders; a
third pass settled the maps whose two labels differ.  ``pattern_labels.csv`` has one row per map,
with these three labels; ``pattern_features.safetensors`` has the features in the same order.  The
first 648 are one map per head of two models, for one input of each source.  The last 118 are two
more maps of heads whose map was a block or heterogeneous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from beyond.papers.common.fine_tune import FineTuningRun, concat_with_keys
from beyond.papers.common.tasks import FINE_TUNED, PRETRAINED, Pair
from beyond.papers.common.threads import thread_map
from beyond.papers.dark_secrets import CODE
from beyond.papers.dark_secrets.maps import (
    Map,
    Maps,
    PerHead,
    TextMaps,
    shaded,
    text_maps,
)
from helpers.cache import cached
from helpers.data.records import Corpus, Segment, evenly_spaced
from helpers.metrics.heads import head_label, head_rows
from helpers.model.loading import Model
from helpers.progress import batch_threads

CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
WITH_COLUMN = ["vertical", "vertical + diagonal"]
ANY_COLUMN = "vertical, with or without diagonal"
SPECIAL_COLUMN = "of these, the darkest column is a special token"
FEATURES = (
    "column share", "first column", "diagonal", "second diagonal", "main diagonal", "far", "square",
    "rows alike", "far rows alike", "length",
)  # fmt: skip
MAX_OFFSET = 3  # of a diagonal from the main diagonal, in tokens
BLOCK_DISTANCE = 1 / 8  # share of the input: cells nearer to the diagonal do not count as a block
SVM_C = 5  # the inverse regularisation strength of the support vector machine
FOLDS = 5
PAPER_F1 = 86  # percent, section 4.1: a convolutional network on its authors' labels
TYPICAL_TOKENS = 24  # of an input whose map is drawn, so that a column is wide enough to see
PATTERN_EXAMPLES = 100  # examples of a task, or segments of the text, whose maps are classified
TEXT = "none (segments of the text)"  # the value of the column ``task`` for the segments


def map_features(
    attention: Maps, special: Bool[np.ndarray, " key"]
) -> Float[np.ndarray, "layer head feature"]:
    """Compute the `FEATURES` of each head's map.

    The first is computed from attention weights, the others from the shades of `shaded` (except
    "length").  Special tokens are left out of all but the first two and "length".

    Parameters
    ----------
    attention
        Maps of one input.
    special
        Which tokens are special tokens; they separate the texts.

    Returns
    -------
    array of shape (layer, head, feature)
        - column share: the largest mean attention that a token receives;
        - first column: the median shade of the first column;
        - diagonal, second diagonal: the largest and the second largest mean shade of the diagonals
          within `MAX_OFFSET` of the main one;
        - main diagonal: the mean shade of the main diagonal;
        - far: the mean shade further than `MAX_OFFSET` away from it;
        - square: the mean shade within a text, further than `BLOCK_DISTANCE` away from the main
          diagonal, minus the mean shade between texts; 0 with a single text;
        - rows alike: the mean correlation of neighbouring rows;
        - far rows alike: that of rows half of the tokens apart;
        - length: the logarithm of the number of tokens, because the others depend on it.
    """
    length = attention.shape[-1]
    maps = np.asarray(attention, np.float32)
    shades = shaded(maps)
    ordinary = np.flatnonzero(~special)
    ordinary_shades = shades[..., ordinary, :][..., ordinary]
    count = len(ordinary)
    reach = min(MAX_OFFSET, count - 1)
    diagonals = []
    for offset in range(-reach, reach + 1):
        diagonals.append(np.diagonal(ordinary_shades, offset, -2, -1).mean(axis=-1))
    darkest_first = np.sort(diagonals, axis=0)[::-1]
    position = np.arange(count)
    distance = np.abs(position - position[:, None])
    text = special.cumsum()[ordinary]  # special tokens before each token: the number of its text
    is_same_text = text[:, None] == text
    if is_same_text.all():
        square = np.zeros(attention.shape[:2])
    else:
        within = _masked_mean(ordinary_shades, is_same_text & (distance > length * BLOCK_DISTANCE))
        between = _masked_mean(ordinary_shades, ~is_same_text)
        square = within - between
    unit_rows = ordinary_shades - ordinary_shades.mean(axis=-1, keepdims=True)
    unit_rows /= np.maximum(np.linalg.norm(unit_rows, axis=-1, keepdims=True), 1e-4)
    features = {
        "column share": maps.mean(axis=-2).max(axis=-1),
        "first column": np.median(shades[..., 0], axis=-1),
        "diagonal": darkest_first[0],
        "second diagonal": darkest_first[min(1, 2 * reach)],
        "main diagonal": diagonals[reach],
        "far": _masked_mean(ordinary_shades, distance > MAX_OFFSET),
        "square": square,
        "rows alike": _row_correlation(unit_rows, 1),
        "far rows alike": _row_correlation(unit_rows, max(1, count // 2)),
        "length": np.full(attention.shape[:2], np.log(length)),
    }
    values = [features[name] for name in FEATURES]
    return np.stack(values, axis=-1).astype(np.float32)


@cache
def labelled_maps() -> tuple[pd.DataFrame, Float[np.ndarray, "map feature"]]:
    """Read the labels of the labelled maps (see the module) and their `FEATURES`."""
    folder = Path(__file__).parent
    features = load_file(folder / "pattern_features.safetensors")["features"]
    return pd.read_csv(folder / "pattern_labels.csv"), features


@cache
def pattern_classifier() -> Pipeline:
    """Fit the support vector machine to all labelled maps."""
    labels, features = labelled_maps()
    machine = SVC(C=SVM_C, class_weight="balanced", break_ties=True)
    return make_pipeline(StandardScaler(), machine).fit(features, labels["settled"])


@cache
def out_of_fold_predictions() -> np.ndarray:
    """Predict the class of each labelled map from the maps of other heads.

    Heads are assigned to `FOLDS` folds at random, so that all maps of a head are in one fold.
    """
    labels, features = labelled_maps()
    head = labels.groupby(["model", "layer", "head"]).ngroup()
    fold_of_head = np.random.default_rng(0).permutation(head.max() + 1) % FOLDS
    split = PredefinedSplit(fold_of_head[head])
    unfitted = clone(pattern_classifier())
    return cross_val_predict(unfitted, features, labels["settled"], cv=split)


def trust_table() -> pd.DataFrame:
    """Measure how well the classes are predicted, and how well the annotator's passes agree.

    Returns
    -------
    pandas.DataFrame
        One row per measure.  Columns: measure, percent, and paper (the F1 of the paper's network
        on the paper's labels, percent).
    """
    table, _ = labelled_maps()
    labels = table["settled"]
    predicted = out_of_fold_predictions()
    most_frequent = labels.value_counts(normalize=True).max()
    kappa = cohen_kappa_score(table["pass1"], table["pass2"])
    rows = [
        ("accuracy", 100 * accuracy_score(labels, predicted), np.nan),
        ("macro F1", 100 * f1_score(labels, predicted, average="macro"), PAPER_F1),
        ("accuracy of the most frequent label", 100 * most_frequent, np.nan),
        ("kappa of the two passes", 100 * kappa, np.nan),
    ]
    return pd.DataFrame(rows, columns=["measure", "percent", "paper"])


def pattern_counts(examples: Iterable[TextMaps]) -> pd.DataFrame:
    """Compute how often each head shows each pattern.

    Parameters
    ----------
    examples
        Maps, from `text_maps`.

    Returns
    -------
    pandas.DataFrame
        One row per head.  Columns: layer, head, the share (0-1) of each class, and
        `SPECIAL_COLUMN` (the share of maps with a column whose darkest column is a special token).
    """
    features = []
    darkest_is_special = []
    for example in examples:
        features.append(map_features(*example))
        darkest = example.attention.mean(axis=-2).argmax(axis=-1)  # [layer, head]
        darkest_is_special.append(example.special[darkest])
    predicted = pattern_classifier().predict(np.reshape(features, (-1, len(FEATURES))))
    predicted = predicted.reshape(np.shape(darkest_is_special))  # [map, layer, head]
    shares = {name: (predicted == name).mean(axis=0) for name in CLASSES}
    has_column = np.isin(predicted, WITH_COLUMN)
    shares[SPECIAL_COLUMN] = (has_column & darkest_is_special).mean(axis=0)
    return head_rows(*predicted.shape[1:], **shares)


def spread_segments(corpus: Corpus[Segment]) -> list[Pair]:
    """Select `PATTERN_EXAMPLES` segments of a text, spread evenly over it.

    Parameters
    ----------
    corpus
        The segments of the text.

    Returns
    -------
    list of Pair
        Their two paragraphs, without a meaningful label.
    """
    segments = evenly_spaced(corpus.records(), PATTERN_EXAMPLES)
    return [Pair((segment.first, segment.second), 0) for segment in segments]


def pattern_table(
    encoder: Model, segments: Sequence[Pair], runs: Sequence[FineTuningRun], *, max_tokens: int
) -> pd.DataFrame:
    """Compute how often each head shows each pattern, on each task and on segments of a text.

    Parameters
    ----------
    encoder
        The model before fine-tuning.
    segments
        From `spread_segments`.
    runs
        Fine-tuned models, one per task.
    max_tokens
        The longest segment; tasks have their own limit.

    Returns
    -------
    pandas.DataFrame
        Columns: task (`TEXT` for ``segments``), weights (`PRETRAINED` or `FINE_TUNED`), and those
        of `pattern_counts`.
    """

    def compute() -> pd.DataFrame:
        maps = {(TEXT, PRETRAINED): text_maps(encoder, segments, max_tokens=max_tokens)}
        for run in runs:
            examples = run.task.test[:PATTERN_EXAMPLES]
            longest = run.recipe.max_tokens
            models = {PRETRAINED: run.encoder, FINE_TUNED: run.fine_tuned_encoder()}
            for weights, model in models.items():
                maps[run.task.name, weights] = text_maps(model, examples, max_tokens=longest)
        threads = batch_threads(encoder.model.device)
        tables = thread_map(
            pattern_counts, list(maps.values()), label="maps", unit="model", threads=threads
        )
        return concat_with_keys(dict(zip(maps, tables, strict=True)), "task", "weights")

    run_names = [run.folder.name for run in runs]
    inputs = {
        "model": encoder.key,
        "runs": run_names,
        "segments": segments,
        "max_tokens": max_tokens,
    }
    return cached("patterns", compute, inputs=inputs, code=CODE)


def share_table(table: pd.DataFrame) -> pd.DataFrame:
    """Average the share of each pattern over all heads.

    Parameters
    ----------
    table
        From `pattern_table`.

    Returns
    -------
    pandas.DataFrame
        One row per task, weights and pattern: the classes; `ANY_COLUMN`, a share of all maps; and
        `SPECIAL_COLUMN`, a share of the maps with a column (NaN if there are none).  Columns: task,
        weights, pattern and share (0-1).
    """
    table = table.assign(**{ANY_COLUMN: table[WITH_COLUMN].sum(axis=1)})
    names = [*CLASSES, ANY_COLUMN, SPECIAL_COLUMN]
    tables = {}
    for key, heads in table.groupby(["task", "weights"], sort=False):
        shares = heads[names].mean()
        with_column = shares[ANY_COLUMN]
        shares[SPECIAL_COLUMN] = shares[SPECIAL_COLUMN] / with_column if with_column else np.nan
        tables[key] = shares.rename_axis("pattern").rename("share").reset_index()
    return concat_with_keys(tables, "task", "weights")


def typical_maps(encoder: Model, example: Pair) -> dict[str, Map]:
    """Find the clearest map of each pattern: the one with its largest decision value.

    Parameters
    ----------
    encoder
        The model.
    example
        The input of the maps; at most `TYPICAL_TOKENS` tokens of it are read.

    Returns
    -------
    dict of str to array
        One map per pattern, by the name of the pattern and the head, such as "diagonal (3-1)".  A
        pattern is left out if even this map has another one.
    """
    (maps,) = text_maps(encoder, [example], max_tokens=TYPICAL_TOKENS)
    classifier = pattern_classifier()
    values = classifier.decision_function(map_features(*maps).reshape(-1, len(FEATURES)))
    typical = {}
    for column, name in enumerate(classifier.classes_):
        clearest = values[:, column].argmax()
        if values[clearest].argmax() == column:
            layer, head = divmod(clearest, encoder.heads)
            typical[f"{name} ({head_label(layer, head)})"] = maps.attention[layer, head]
    return typical


def _masked_mean(maps: Maps, mask: Bool[np.ndarray, "query key"]) -> PerHead:
    """Average each map over the cells of a mask; 0 if the mask is empty."""
    return maps[..., mask].sum(axis=-1) / max(1, mask.sum())


def _row_correlation(unit_rows: Maps, step: int) -> PerHead:
    """Average the products of centred unit rows that are ``step`` apart; 0 if there are none."""
    products = (unit_rows[..., step:, :] * unit_rows[..., :-step, :]).sum(axis=-1)
    return products.sum(axis=-1) / max(1, products.shape[-1])
