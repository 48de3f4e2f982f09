"""Every number of the paper next to a run's, for a run of the paper's own model (BERT-base).

The paper's numbers are those of Tables 1 to 3 (``helpers/metrics/paper*.csv``) and, from its text
and Figure 1, those of ``paper_numbers.csv``.  Each row is compared with a tolerance that the size
of this run's sample gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.claims.tables import NotMeasurable, Tables, rows_of, rows_where, with_bounds
from helpers.metrics.paper_heads import COREFERENCE
from helpers.metrics.reference import COMPARED, paper_table1, paper_table2, paper_table3

PENN_TREEBANK = "Penn Treebank (Stanford Dependencies)"
CONLL_2012 = "CoNLL-2012"
SAME_HEAD = "same head and within tolerance"
OTHER_HEAD = "another head"
WITHIN = "within tolerance"
OUTSIDE = "outside"
NOT_MEASURED = "not measured"
HALF = 0.5  # the share from which the paper counts heads and layers
Z = 1.96  # standard errors on either side of a 95% interval
NEURAL_SYSTEM = "neural coreference"  # in Table 2, of another paper; it is not part of this project
# The authors' notebook Syntax_Analysis.ipynb has other numbers than the printed Table 1.
SLIPS = {"auxpass": {"accuracy": 94.1, "baseline": 82.5}}
COLUMNS = (
    "section", "quantity", "source", "annotation", "paper", "run", "tolerance", "outcome", "note",
)  # fmt: skip

Row = dict[str, object]  # of the table, or some columns of it
Comparison = Callable[[Tables], Row]  # it raises `NotMeasurable` if the run lacks the number


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
    empty = dict.fromkeys(COLUMNS, "") | {"tolerance": np.nan, "outcome": NOT_MEASURED}
    rows = []
    for published, compare in (*_of_text(), *_of_table1(), *_of_table2(), *_of_table3()):
        row = empty | published
        with suppress(NotMeasurable):
            row |= compare(tables)
            used = used_instead.get(row["annotation"])
            if used:
                row["outcome"] = f"needs {row['annotation']}"
                row["note"] = f"used: {used}; {row['note']}".removesuffix("; ")
        rows.append(row)
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


def _of_text() -> Iterator[tuple[Row, Comparison]]:
    """Yield the numbers of ``paper_numbers.csv``: sections 3.1 to 3.3 and Figure 1."""
    comparisons = {
        "heads over half": _compare_layers_over_half,
        "layers over half": _compare_layers_over_half,
        "mean": _compare_mean,
        "lower limit": _compare_mean,
        "behaviour": _compare_behaviour,
    }
    path = Path(__file__).with_name("paper_numbers.csv")
    for number in pd.read_csv(path, dtype=str, keep_default_na=False).itertuples():
        yield number._asdict(), partial(comparisons[number.measure], number=number)


def _of_table1() -> Iterator[tuple[Row, Comparison]]:
    """Yield the heads and the fixed offsets of Table 1."""
    shared = {"section": "4.2", "source": "Table 1", "annotation": PENN_TREEBANK}
    for relation, printed in paper_table1().iterrows():
        right = {**printed, **SLIPS.get(relation, {})}
        for quantity, paper, compare, number in (
            ("head and accuracy", printed["head"], _compare_head, "accuracy"),
            (
                "best fixed offset and its accuracy",
                f"{printed['baseline_offset']:+d}",
                _compare_offset,
                "baseline",
            ),
        ):
            published = str(right[number])
            note = ""
            if relation in SLIPS:
                note = f"; compared with {published}, which the authors' notebook has"
            row = {
                "quantity": f"{relation}: {quantity} (%)",
                "paper": f"{paper}, {printed[number]}",
            }
            yield shared | row, partial(compare, relation=relation, published=published, note=note)


def _of_table2() -> Iterator[tuple[Row, Comparison]]:
    """Yield the accuracies of head 5-4 and of the rules of Table 2, for each type of mention."""
    shared = {"section": "4.3", "source": "Table 2", "annotation": CONLL_2012}
    accuracies = paper_table2().drop(index=NEURAL_SYSTEM).stack().dropna()
    for (system, mention_type), accuracy in accuracies.items():
        published = f"{accuracy:.0f}"
        quantity = f"{system}, {mention_type} mentions: accuracy (%)"
        if system == "head":
            relation = f"{COREFERENCE}, {mention_type}"
            compare = partial(_compare_head, relation=relation, published=published)
        else:
            where = {"system": system, "type": mention_type}
            compare = partial(_compare_rule, where=where, published=published)
        yield shared | {"quantity": quantity, "paper": published}, compare


def _of_table3() -> Iterator[tuple[Row, Comparison]]:
    """Yield the attachment scores of the probes of Table 3."""
    shared = {"section": "5", "source": "Table 3", "annotation": PENN_TREEBANK}
    for probe, score in paper_table3().items():
        published = f"{score:.0f}"
        row = {"quantity": f"{probe}: attachment score (%)", "paper": published}
        yield shared | row, partial(_compare_probe, probe=probe, published=published)


def _compare_layers_over_half(tables: Tables, number: Any) -> Row:
    """List the layers of the heads, or the layers on average, that give over half of attention.

    Heads or layers whose interval has a half in it may be on either side.  The list is within
    tolerance if the paper's is one of those that this leaves open.
    """
    name, *bounds = with_bounds(number.column)
    shares = rows_of(tables, number.table, name, *bounds).set_index("layer")[[name, *bounds]]
    if number.measure == "layers over half":
        shares = shares.groupby("layer").mean()
    is_over_half = shares > HALF
    counts = is_over_half.groupby("layer").sum()
    in_paper = pd.Series(number.paper.split(), dtype=int).value_counts()
    in_paper = in_paper.reindex(counts.index, fill_value=0)
    low, high = bounds
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
    compared = min(value, float(number.paper)) if is_limit else value
    comparison = _compare(compared, number.paper, _spread_of_interval(low, high))
    return comparison | {"run": f"{value:.3g}"}


def _compare_behaviour(tables: Tables, number: Any) -> Row:
    """Compare what a head of Figure 1 does; its place is its name."""
    layer, head = map(int, number.place.split("-"))
    rows = rows_of(tables, number.table, number.column)
    behaviour = rows_where(rows, layer=layer, head=head).iloc[0][number.column]
    return {"run": behaviour, "outcome": _within(behaviour == number.paper)}


def _compare_head(tables: Tables, relation: str, published: str, note: str = "") -> Row:
    """Compare the accuracy of the paper's head; it has to be the best one here, too."""
    head = rows_where(rows_of(tables, "paper_heads"), relation=relation).iloc[0]
    row = _compare(head["accuracy"], published, _spread_of_counts(published, head["count"]))
    outcome = SAME_HEAD if row["outcome"] == WITHIN else OUTSIDE
    rank = f"rank {head['rank']:.0f}"
    if head["rank"] > 1:
        outcome = OTHER_HEAD
        rank += f"; best: {head['best_head']}, {head['best_accuracy']:.1f}"
    run = f"{head['paper_head']}, {row['run']}"
    return row | {"run": run, "outcome": outcome, "note": rank + note}


def _compare_offset(tables: Tables, relation: str, published: str, note: str) -> Row:
    """Compare the accuracy of the paper's fixed offset; it has to be the best one here, too."""
    head = rows_where(rows_of(tables, "paper_heads"), relation=relation).iloc[0]
    spread = _spread_of_counts(published, head["count"])
    row = _compare(head["offset_accuracy"], published, spread)
    row["run"] = f"{head['paper_offset']:+.0f}, {row['run']}"
    if head["best_offset"] != head["paper_offset"]:
        row["outcome"] = OUTSIDE
        note = f"best: {head['best_offset']:+.0f}{note}"
    return row | {"note": note.removeprefix("; ")}


def _compare_rule(tables: Tables, where: Row, published: str) -> Row:
    """Compare the accuracy of a rule for coreference."""
    scores = rows_of(tables, "coreference", *where, "n", "accuracy")
    rule = rows_where(scores, **where).iloc[0]
    return _compare(rule["accuracy"], published, _spread_of_counts(published, rule["n"]))


def _compare_probe(tables: Tables, probe: str, published: str) -> Row:
    """Compare the attachment score of a probe."""
    scores = rows_where(rows_of(tables, "probes", "probe", "value_low"), probe=probe)
    score = scores[scores["metric"].isin(COMPARED)].iloc[0]
    spread = _spread_of_interval(score["value_low"], score["value_high"])
    return _compare(score["value"], published, spread)


def _compare(value: float, published: str, spread: float) -> Row:
    """Compare a number with a printed one, which is rounded to its last digit."""
    decimals = len(published.partition(".")[2])
    tolerance = spread + 0.5 * 10.0**-decimals
    return {
        "run": f"{value:.1f}",
        "tolerance": tolerance,
        "outcome": _within(abs(value - float(published)) <= tolerance),
    }


def _within(agrees: bool) -> str:
    """Name the outcome of a comparison."""
    return WITHIN if agrees else OUTSIDE


def _spread_of_counts(published: str, count: float) -> float:
    """Compute the largest difference, in percentage points, of two samples of ``count`` cases."""
    share = float(published) / 100
    return 100 * Z * np.sqrt(2 * share * (1 - share) / count)


def _spread_of_interval(low: float, high: float) -> float:
    """Compute the largest difference of two samples, of which one has a known 95% interval."""
    return np.sqrt(2) * (high - low) / 2
