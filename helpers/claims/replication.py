"""Every number of the paper next to a run's, for a run of the paper's own model (BERT-base).

``paper_numbers.csv`` lists the numbers of the paper's text, Figure 1 and Tables 1 to 3.  Each is
compared with a tolerance that the size of this run's sample gives.  The columns of the file:

- ``section``, ``quantity``, ``source``: where the number stands in the paper, and what it is;
- ``annotation``: the corpus that it presumes;
- ``measure``: the comparison (`COMPARISONS`), with the ``table``, the ``column`` and the ``place``
  (layers, a head, a relation, a system and a type of mention, or a probe) of the run's number;
- ``paper``: what the paper prints; ``expected``: the number that the run's is compared with;
- ``correction``: why the two differ.

Tables 1 to 3 stand in ``helpers/metrics/paper_table*.csv``, too, as tables that a run's are shown
beside.  A test compares the two.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.claims.tables import NotMeasurable, Tables, rows_of, rows_where, with_bounds
from helpers.metrics.paper_heads import COREFERENCE
from helpers.metrics.reference import COMPARED

PENN_TREEBANK = "Penn Treebank (Stanford Dependencies)"
CONLL_2012 = "CoNLL-2012"
SAME_HEAD = "same head and within tolerance"
OTHER_HEAD = "another head"
WITHIN = "within tolerance"
OUTSIDE = "outside"
NOT_MEASURED = "not measured"
HALF = 0.5  # the share from which the paper counts heads and layers
Z = 1.96  # standard errors on either side of a 95% interval
COLUMNS = (
    "section", "quantity", "source", "annotation", "paper", "run", "tolerance", "outcome", "note",
)  # fmt: skip

Row = dict[str, object]  # some columns of the table


def replication_table(tables: Tables) -> pd.DataFrame:
    """Compare the numbers of the paper with those of a run of its model.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of the run by name, ``paper_heads`` among them (`Study.paper_heads`).

    Returns
    -------
    DataFrame
        A row for each number, with the columns `COLUMNS`.  ``tolerance`` is the largest difference
        that counts as equal: the width of a 95% interval of the difference of two samples of this
        run's size, plus the rounding of the printed number.  ``outcome`` is "same head
        and within tolerance", "within tolerance", "another head" or "outside".  It is "needs Penn
        Treebank (Stanford Dependencies)" or "needs CoNLL-2012" if the run's corpus has another
        annotation, and "not measured" if the run lacks the table.
    """
    used_instead = _used_instead(tables)
    path = Path(__file__).with_name("paper_numbers.csv")
    rows = []
    for number in pd.read_csv(path, dtype=str, keep_default_na=False).itertuples():
        row = {"run": "", "tolerance": np.nan, "outcome": NOT_MEASURED, "note": ""}
        with suppress(NotMeasurable):
            row |= COMPARISONS[number.measure](tables, number)
            notes = [row["note"], number.correction]
            used = used_instead.get(number.annotation)
            if used:
                row["outcome"] = f"needs {number.annotation}"
                notes.insert(0, f"used: {used}")
            row["note"] = "; ".join(filter(None, notes))
        rows.append(number._asdict() | row)
    return pd.DataFrame(rows, columns=COLUMNS)


def summarise_replication(table: pd.DataFrame) -> pd.DataFrame:
    """Count the outcomes of `replication_table` by source.

    Parameters
    ----------
    table : DataFrame
        What `replication_table` returns.

    Returns
    -------
    DataFrame
        A row for each source in the paper, a column for each outcome.
    """
    return pd.crosstab(table["source"], table["outcome"])


def _used_instead(tables: Tables) -> dict[str, str]:
    """Name the corpora that stand in for the paper's, by the annotation that they lack."""
    if "paper_heads" not in tables:
        return {}
    heads = tables["paper_heads"]
    is_coreference = heads["relation"].str.startswith(COREFERENCE)
    annotation = np.where(is_coreference, CONLL_2012, PENN_TREEBANK)
    return heads["used_instead"].astype(object).fillna("").groupby(annotation).first().to_dict()


def _compare_layers_over_half(tables: Tables, number: Any) -> Row:
    """List the layers of the heads, or the layers on average, that give over half of attention.

    Heads or layers whose interval has a half in it may be on either side.  The list is within
    tolerance if the paper's is one of those that this leaves open.
    """
    columns = with_bounds(number.column)
    shares = rows_of(tables, number.table, *columns).set_index("layer")[columns]
    if number.measure == "layers over half":
        shares = shares.groupby("layer").mean()
    is_over_half = shares > HALF
    counts = is_over_half.groupby("layer").sum()
    in_paper = pd.Series(number.expected.split(), dtype=int).value_counts()
    in_paper = in_paper.reindex(counts.index, fill_value=0)
    name, low, high = columns
    return {
        "run": " ".join(map(str, shares.index[is_over_half[name]])),
        "outcome": _within(in_paper.between(counts[low], counts[high]).all()),
    }


def _compare_mean(tables: Tables, number: Any) -> Row:
    """Compare the mean over layers of a quantity of heads; its place is the first and last layer.

    A lower limit may be exceeded.
    """
    first, last = map(int, number.place.split())
    columns = with_bounds(number.column)
    rows = rows_of(tables, number.table, *columns)
    value, low, high = rows.loc[rows["layer"].between(first, last), columns].mean()
    is_limit = number.measure == "lower limit"
    compared = min(value, float(number.expected)) if is_limit else value
    return _compare_interval(compared, low, high, number) | {"run": f"{value:.3g}"}


def _compare_behaviour(tables: Tables, number: Any) -> Row:
    """Compare what a head of Figure 1 does; its place is its name."""
    layer, head = map(int, number.place.split("-"))
    rows = rows_of(tables, number.table, number.column)
    behaviour = rows_where(rows, layer=layer, head=head).iloc[0][number.column]
    return {"run": behaviour, "outcome": _within(behaviour == number.expected)}


def _compare_head(tables: Tables, number: Any) -> Row:
    """Compare the accuracy of the paper's head; it has to be the best one here, too."""
    head = rows_where(rows_of(tables, number.table), relation=number.place).iloc[0]
    row = _compare_share(head[number.column], head["count"], number)
    outcome = SAME_HEAD if row["outcome"] == WITHIN else OUTSIDE
    note = f"rank {head['rank']:.0f}"
    if head["rank"] > 1:
        outcome = OTHER_HEAD
        note += f"; best: {head['best_head']}, {head['best_accuracy']:.1f}"
    run = f"{head['paper_head']}, {row['run']}"
    return row | {"run": run, "outcome": outcome, "note": note}


def _compare_offset(tables: Tables, number: Any) -> Row:
    """Compare the accuracy of the paper's fixed offset; it has to be the best one here, too."""
    head = rows_where(rows_of(tables, number.table), relation=number.place).iloc[0]
    row = _compare_share(head[number.column], head["count"], number)
    row["run"] = f"{head['paper_offset']:+.0f}, {row['run']}"
    if head["best_offset"] != head["paper_offset"]:
        row |= {"outcome": OUTSIDE, "note": f"best: {head['best_offset']:+.0f}"}
    return row


def _compare_rule(tables: Tables, number: Any) -> Row:
    """Compare the accuracy of a rule for coreference; its place is the rule and a mention type."""
    system, mention_type = number.place.split(", ")
    scores = rows_of(tables, number.table, "system", "type", "n", number.column)
    rule = rows_where(scores, system=system, type=mention_type).iloc[0]
    return _compare_share(rule[number.column], rule["n"], number)


def _compare_probe(tables: Tables, number: Any) -> Row:
    """Compare the attachment score of a probe."""
    name, low, high = with_bounds(number.column)
    scores = rows_where(rows_of(tables, number.table, "probe", low), probe=number.place)
    score = scores[scores["metric"].isin(COMPARED)].iloc[0]
    return _compare_interval(score[name], score[low], score[high], number)


def _compare_share(accuracy: float, count: float, number: Any) -> Row:
    """Compare percentages of two samples of ``count`` cases."""
    share = float(number.expected) / 100
    return _compare(accuracy, 100 * Z * np.sqrt(2 * share * (1 - share) / count), number)


def _compare_interval(value: float, low: float, high: float, number: Any) -> Row:
    """Compare numbers of two samples, of which one has a known 95% interval."""
    return _compare(value, np.sqrt(2) * (high - low) / 2, number)


def _compare(value: float, spread: float, number: Any) -> Row:
    """Compare a number with a printed one, which is rounded to its last digit."""
    decimals = len(number.expected.partition(".")[2])
    tolerance = spread + 0.5 * 10.0**-decimals
    return {
        "run": f"{value:.1f}",
        "tolerance": tolerance,
        "outcome": _within(abs(value - float(number.expected)) <= tolerance),
    }


def _within(agrees: bool) -> str:
    """Name the outcome of a comparison."""
    return WITHIN if agrees else OUTSIDE


COMPARISONS = {
    "heads over half": _compare_layers_over_half,
    "layers over half": _compare_layers_over_half,
    "mean": _compare_mean,
    "lower limit": _compare_mean,
    "behaviour": _compare_behaviour,
    "head": _compare_head,
    "offset": _compare_offset,
    "rule": _compare_rule,
    "probe": _compare_probe,
}  # by the name of the measure
