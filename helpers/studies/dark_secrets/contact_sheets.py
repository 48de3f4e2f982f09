"""Attention maps to be labelled by eye: drawn at random, and shown on contact sheets.

The labels of ``pattern_labels.csv`` were given to the maps of `sample_maps` on the sheets of
`draw_sheets`: twice, the second time in another order, under other numbers.  To judge the classes
on another model, draw sheets of its maps and add rows to the table (`pattern_labels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.analysis.heads import head_rows
from helpers.model.encoder import Encoder
from helpers.plots.style import DPI
from helpers.studies.dark_secrets.maps import DrawnMap, text_maps
from helpers.studies.dark_secrets.plots import contact_sheet
from helpers.studies.tasks import Pair
from helpers.study import Study

SOURCES = {"segment": 128, "task": 64, "sentence": 128}  # tokens that an input is cut to
PER_SHEET = 36

Texts = Mapping[str, Sequence[Pair]]  # by source


def label_texts(study: Study) -> dict[str, list[Pair]]:
    """Return the inputs of each source: a task's are the pairs of the segments, cut shorter."""
    pairs = [Pair(found.first, found.second, 0) for found in study.segment_corpus().records()]
    store = study.treebank_store()
    words = (store.record(number)["words"] for number in range(len(store)))
    return {
        "segment": pairs,
        "task": pairs,
        "sentence": [Pair(" ".join(found), None, 0) for found in words],
    }


def sample_maps(encoder: Encoder, texts: Texts, *, seed: int = 0) -> pd.DataFrame:
    """Return a map of every head in an input of each source: model, source, example, layer, head.

    ``example`` is the number of the input among ``texts`` (from 0), drawn anew for every map.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for source in SOURCES:
        rows = head_rows(encoder.layers, encoder.heads)
        rows.insert(0, "example", generator.integers(len(texts[source]), size=len(rows)))
        rows.insert(0, "source", source)
        parts.append(rows)
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "model", encoder.name)
    return table


def read_maps(encoder: Encoder, texts: Texts, rows: pd.DataFrame) -> Iterator[DrawnMap]:
    """Yield the map of each row of `sample_maps`, computed anew."""
    for row in rows.itertuples():
        pair = texts[row.source][row.example]
        longest = min(SOURCES[row.source], encoder.max_length)
        attention, special, segment = next(text_maps(encoder, [pair], max_tokens=longest))
        yield DrawnMap(str(row.Index), attention[row.layer - 1, row.head - 1], special, segment)


def draw_sheets(maps: Sequence[DrawnMap], folder: Path, *, seed: int) -> pd.DataFrame:
    """Write contact sheets of ``maps`` in an order drawn with ``seed``.

    Returns (and writes, as ``order.csv``) what is to be filled in: number (on the sheets), map
    (the place in ``maps``) and label.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(seed).permutation(len(maps))
    numbered = [
        DrawnMap(str(number), maps[place].weights, maps[place].special, maps[place].segment)
        for number, place in enumerate(order, 1)
    ]
    for sheet, start in enumerate(range(0, len(maps), PER_SHEET), 1):
        figure = contact_sheet(numbered[start : start + PER_SHEET], f"Sheet {sheet}")
        figure.savefig(folder / f"sheet-{sheet:02d}.png", dpi=DPI)
    table = pd.DataFrame({"number": np.arange(len(maps)) + 1, "map": order, "label": ""})
    table.to_csv(folder / "order.csv", index=False)
    return table
