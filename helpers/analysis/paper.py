"""The papers' own numbers, all from one file: ``paper.csv`` says where each stands."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

UAS_WITHOUT_PUNCTUATION = "UAS without punctuation"
UUAS = "UUAS"
COMPARED = (UAS_WITHOUT_PUNCTUATION, UUAS)  # what Table 3 is in, of the metrics of section 5


@cache
def _numbers() -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name("paper.csv"))


def _rows(table: str) -> pd.DataFrame:
    return _numbers()[_numbers()["table"] == table]


@cache
def values_of(paper: str) -> dict[str, float]:
    """Return the numbers by name that the paper's "text" or "Table 3" states, or another paper.

    "Kovaleva", "Michel" and "Niven" are the others.  Those of Table 3 (Penn Treebank, without
    punctuation) are percentages by probe: UAS or UUAS.
    """
    rows = _rows(paper)
    return dict(zip(rows["row"], rows["value"].astype(float), strict=True))


def paper_values() -> dict[str, float]:
    """Return the values stated in the paper's text, by name."""
    return values_of("text")


@cache
def paper_table1() -> pd.DataFrame:
    """Return Table 1 (BERT-base uncased, WSJ, Stanford Dependencies): accuracies in percent.

    Indexed by relation; columns head, accuracy, baseline, baseline_offset.  The figures are as
    printed, also where the authors' notebook has others (auxpass: 94.1 against 82.5).
    """
    table = _table("Table 1")
    return table.astype({"accuracy": float, "baseline": float, "baseline_offset": int})


@cache
def paper_table2() -> pd.DataFrame:
    """Return Table 2 (CoNLL-2012) in percent: a row per system, a column per mention type.

    The paper calls the neural system (Wiseman et al. 2015) only roughly comparable: its documents
    are whole and its mentions its own.
    """
    return _table("Table 2").astype(float)


def _table(name: str) -> pd.DataFrame:
    rows = _rows(name)
    wide = rows.pivot(index="row", columns="column", values="value")
    return wide.loc[rows["row"].unique(), rows["column"].unique()].rename_axis(None, axis=1)
