"""Every number of the paper next to a run's, for a run of the paper's own model (BERT-base).

The numbers are those of ``helpers/metrics/paper.toml``.  Each is compared with a tolerance that the
size of this run's sample gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from beyond.claims.paper_heads import COREFERENCE
from beyond.pages.run_folder import Tables, rows_of
from helpers.metrics.reference import COMPARED, printed_numbers

WITHIN = "within tolerance"
OUTSIDE = "outside"
NOT_MEASURED = "not measured"
OTHER_HEAD = "another head"
OTHER_CORPUS = "on another corpus"
HEAD = "head"  # the row of Table 2 that is an attention head; the others are rules
NEURAL_SYSTEM = "neural coreference"  # of another paper; a run has none
Z = 1.96  # standard errors on either side of a 95% interval
COLUMNS = ("source", "quantity", "paper", "run", "tolerance", "outcome", "note")
# The table and the column of each number in the text, and the layers whose mean it is; without
# layers, the number is a list of the layers in which a column is over half.
IN_TEXT = {
    "sep-to-sep": ("token_types", "sep_to_sep", 6, 10),
    "entropy-from-cls": ("entropy", "entropy_from_cls", 12, 12),
    "previous-over-half": ("relative_position", "previous"),
    "next-over-half": ("relative_position", "next"),
    "sep-over-half": ("token_types", "sep"),
}

Row = dict[str, Any]  # some columns of the table


def replication_table(tables: Tables) -> pd.DataFrame:
    """Compare the numbers of the paper with those of a run of its model.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The tables of the run by name, with ``paper_heads``
        (`beyond.claims.paper_heads.score_paper_heads`).

    Returns
    -------
    DataFrame
        A row for each number, with the columns `COLUMNS`.  ``tolerance`` is the largest difference
        that counts as equal: the width of a 95% interval of the difference of two samples of this
        run's size, plus the rounding of the printed number.  ``outcome`` is "within tolerance",
        "another head", "outside" or "not measured", or "on another corpus" if the run's treebank
        or documents are not annotated like the paper's.
    """
    rows = [*section_3(tables), *figure_1(tables), *table_1(tables), *table_2(tables)]
    rows = [{"outcome": NOT_MEASURED, "note": "", **row} for row in [*rows, *table_3(tables)]]
    table = pd.DataFrame(rows, columns=COLUMNS)
    heads = tables["paper_heads"]
    is_coreference = heads["relation"].str.startswith(COREFERENCE)
    for sources, used in (
        (("Table 1", "Table 3"), heads.loc[~is_coreference, "used_instead"].max()),
        (("Table 2",), heads.loc[is_coreference, "used_instead"].max()),
    ):
        if isinstance(used, str) and used:
            is_other = table["source"].isin(sources) & (table["outcome"] != NOT_MEASURED)
            table.loc[is_other, ["outcome", "note"]] = [OTHER_CORPUS, f"used: {used}"]
    return table


def section_3(tables: Tables) -> Iterator[Row]:
    """Compare the numbers in the text of section 3."""
    printed = printed_numbers()["text"]
    for name, (table, column, *layers) in IN_TEXT.items():
        paper = printed[name]["value"]
        heads = rows_of(tables, table)
        section = f"section {printed[name]['section']}"
        row = {"source": section, "quantity": printed[name]["quantity"], "paper": paper}
        if not layers:
            row["paper"] = " ".join(map(str, paper))
            if column in heads:
                row |= layers_over_half(heads, column, pd.Series(paper))
        elif column in heads:
            bounds = [column, f"{column}_low", f"{column}_high"]
            value, low, high = heads.loc[heads["layer"].between(*layers), bounds].mean()
            compared = min(value, paper) if name == "sep-to-sep" else value  # a lower limit
            row |= compare(compared, np.sqrt(2) * (high - low) / 2, paper) | {"run": value}
        yield row


def layers_over_half(heads: pd.DataFrame, column: str, paper_layers: pd.Series) -> Row:
    """List the layers of the heads ([SEP]: the layers) that give over half of their attention.

    The list is within tolerance if the paper's is one of those that the intervals leave open.
    """
    bounds = [column, f"{column}_low", f"{column}_high"]
    shares = heads.set_index("layer")[bounds]
    if column == "sep":
        shares = shares.groupby("layer").mean()
    is_over_half = shares > printed_numbers()["text"]["over-half"]
    counts = is_over_half.groupby("layer").sum()
    in_paper = paper_layers.value_counts().reindex(counts.index, fill_value=0)
    agrees = in_paper.between(counts[f"{column}_low"], counts[f"{column}_high"]).all()
    layers = shares.index[is_over_half[column]]
    return {"run": " ".join(map(str, layers)), "outcome": WITHIN if agrees else OUTSIDE}


def figure_1(tables: Tables) -> Iterator[Row]:
    """Compare what the heads of Figure 1 do most."""
    heads = rows_of(tables, "head_positions")
    for label, behaviour in printed_numbers()["figure1"].items():
        row = {"source": "Figure 1", "quantity": f"behaviour of head {label}", "paper": behaviour}
        if len(heads):
            layer, head = map(int, label.split("-"))
            is_head = (heads["layer"] == layer) & (heads["head"] == head)
            row["run"] = heads.loc[is_head, "behaviour"].iloc[0]
            row["outcome"] = WITHIN if row["run"] == behaviour else OUTSIDE
        yield row


def table_1(tables: Tables) -> Iterator[Row]:
    """Compare the heads and the fixed offsets of Table 1, with their accuracies."""
    heads = tables["paper_heads"].set_index("relation")
    for relation, printed in printed_numbers()["table1"].items():
        # The authors' notebook corrects a slip of the table.
        accuracy = printed.get("notebook_accuracy", printed["accuracy"])
        baseline = printed.get("notebook_baseline", printed["baseline"])
        quantity = f"{relation}: accuracy of head {printed['head']} (%)"
        row = {"source": "Table 1", "quantity": quantity, "paper": accuracy}
        offset = f"{relation}: accuracy of the offset {printed['baseline_offset']:+d} (%)"
        offset_row = {"source": "Table 1", "quantity": offset, "paper": baseline}
        if relation in heads.index:
            head = heads.loc[relation]
            row |= compare_head(head, accuracy)
            offset_row |= compare_share(head["offset_accuracy"], head["count"], baseline)
            if head["best_offset"] != head["paper_offset"]:
                offset_row |= {"outcome": OUTSIDE, "note": f"best: {head['best_offset']:+.0f}"}
        yield row
        yield offset_row


def table_2(tables: Tables) -> Iterator[Row]:
    """Compare the accuracies of Table 2: those of rules and of an attention head."""
    heads = tables["paper_heads"].set_index("relation")
    rules = rows_of(tables, "coreference")
    for system, by_type in printed_numbers()["table2"].items():
        for mention_type, accuracy in by_type.items():
            if system == NEURAL_SYSTEM:
                continue
            quantity = f"{system}, {mention_type} mentions: accuracy (%)"
            row = {"source": "Table 2", "quantity": quantity, "paper": accuracy}
            name = f"{COREFERENCE}, {mention_type}"
            if system == HEAD and name in heads.index:
                row |= compare_head(heads.loc[name], accuracy)
            elif system != HEAD and len(rules):
                is_rule = (rules["system"] == system) & (rules["type"] == mention_type)
                for rule in rules[is_rule].head(1).to_dict("records"):
                    row |= compare_share(rule["accuracy"], rule["n"], accuracy)
            yield row


def table_3(tables: Tables) -> Iterator[Row]:
    """Compare the attachment scores of Table 3."""
    probes = rows_of(tables, "probes")
    for probe, score in printed_numbers()["table3"].items():
        row = {"source": "Table 3", "quantity": f"{probe}: attachment score (%)", "paper": score}
        if len(probes):
            is_probe = (probes["probe"] == probe) & probes["metric"].isin(COMPARED)
            for score_row in probes[is_probe].head(1).to_dict("records"):
                spread = np.sqrt(2) * (score_row["value_high"] - score_row["value_low"]) / 2
                row |= compare(score_row["value"], spread, score)
        yield row


def compare_head(head: pd.Series, paper: float) -> Row:
    """Compare the accuracy of the paper's head; it has to be the best one here, too."""
    row = compare_share(head["accuracy"], head["count"], paper)
    if head["rank"] > 1:
        best = f"rank {head['rank']:.0f}; best: {head['best_head']}, {head['best_accuracy']:.1f}"
        row |= {"outcome": OTHER_HEAD, "note": best}
    return row


def compare_share(accuracy: float, count: float, paper: float) -> Row:
    """Compare percentages of two samples of ``count`` cases."""
    share = paper / 100
    return compare(accuracy, 100 * Z * np.sqrt(2 * share * (1 - share) / count), paper)


def compare(value: float, spread: float, paper: float) -> Row:
    """Compare a number with a printed one, which is rounded to its last digit."""
    decimals = len(str(paper).partition(".")[2])
    tolerance = spread + 0.5 * 10.0**-decimals
    outcome = WITHIN if abs(value - paper) <= tolerance else OUTSIDE
    return {"run": value, "tolerance": tolerance, "outcome": outcome}
