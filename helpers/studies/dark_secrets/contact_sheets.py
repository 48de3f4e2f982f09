"""Attention maps to be labelled by eye: drawn at random, and shown on contact sheets.

The labels of ``pattern_labels.csv`` were given to the maps of `sample_maps` on the sheets of
`draw_sheets`.  To judge the pattern classes on another model, draw sheets of its maps, fill in
the label column (`patterns` says what the classes are), and give the file to `label_features` and
then to `pattern_labels.agreement`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from helpers.analysis.heads import head_rows
from helpers.data.records import Record
from helpers.model.encoder import Encoder
from helpers.plots.style import save_figure
from helpers.store.shards import shard_tensors
from helpers.store.store import Source
from helpers.studies.dark_secrets.maps import DrawnMap
from helpers.studies.dark_secrets.patterns import FEATURES, map_features
from helpers.studies.dark_secrets.plots import contact_sheet

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


def draw_sheets(encoder: Encoder, source: Source, rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write contact sheets and a ``pattern_labels.csv`` to fill in; return its table.

    ``rows`` are the maps to draw: those of `sample_maps`, or, for a second opinion on the default
    model, those of `pattern_labels.read_labels`.
    """
    rows = rows.drop(columns=list(FEATURES), errors="ignore").assign(label="", second_label="")
    for number, start in enumerate(range(0, len(rows), PER_SHEET), 1):
        part = rows.iloc[start : start + PER_SHEET]
        sheet = contact_sheet(list(read_maps(encoder, source, part)), f"Sheet {number}")
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
