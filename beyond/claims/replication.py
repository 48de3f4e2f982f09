"""Every number of the paper next to a run's, for a run of the paper's own model (BERT-base).

The numbers are those of ``helpers/metrics/paper.toml``: of the paper's text, Figure 1 and Tables 1
to 3.  Each is compared with a tolerance that the size of this run's sample gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from beyond.claims.paper_heads import COREFERENCE
from beyond.claims.tables import NotMeasurable, Tables, rows_of, rows_where, with_bounds
from helpers.metrics.reference import COMPARED, printed_numbers

PENN_TREEBANK = "Penn Treebank (Stanford Dependencies)"
CONLL_2012 = "CoNLL-2012"
SAME_HEAD = "same head and within tolerance"
OTHER_HEAD = "another head"
WITHIN = "within tolerance"
OUTSIDE = "outside"
NOT_MEASURED = "not measured"
Z = 1.96  # standard errors on either side of a 95% interval
CORRECTION = "compared with {}, which the authors' notebook has"
NEURAL_SYSTEM = "neural coreference"  # of another paper; a run has none
HEAD = "head"  # the row of Table 2 that is an attention head; the others are rules
# What a head of Figure 1 does, in words, by its behaviour in head_positions.csv.
BEHAVIOURS = {
    "broad": "attends broadly",
    "next": "attends to the next token",
    "sep": "attends to [SEP]",
    "punctuation": "attends to periods and commas",
}
COLUMNS = (
    "section", "quantity", "source", "annotation", "paper", "run", "tolerance", "outcome", "note",
)  # fmt: skip

Row = dict[str, object]  # some columns of the table


@dataclass(frozen=True)
class PaperNumber:
    """A number of the paper, and how a run's is compared with it.

    Parameters
    ----------
    section, source
        The section, and the table or figure, in which it stands.
    quantity
        What it is, in words.
    paper
        The number as printed.
    compare
        Function of a run's tables that returns columns of the table, or raises `NotMeasurable`.
    annotation
        The corpus that it presumes, if it does.
    correction
        The number that is compared in its place, and why.
    """

    section: str
    source: str
    quantity: str
    paper: str
    compare: Callable[[Tables], Row]
    annotation: str = ""
    correction: str = ""


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
    numbers = [*numbers_of_section_3(), *numbers_of_table_1()]
    numbers += [*numbers_of_table_2(), *numbers_of_table_3()]
    rows = []
    for number in numbers:
        row = {"run": "", "tolerance": np.nan, "outcome": NOT_MEASURED, "note": ""}
        with suppress(NotMeasurable):
            row |= number.compare(tables)
            notes = [row["note"], number.correction]
            used = used_instead.get(number.annotation)
            if used:
                row["outcome"] = f"needs {number.annotation}"
                notes.insert(0, f"used: {used}")
            row["note"] = "; ".join(filter(None, notes))
        rows.append(vars(number) | row)
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


# The numbers of the paper


def numbers_of_section_3() -> Iterator[PaperNumber]:
    """List the numbers in the text of section 3, and what the heads of Figure 1 do."""
    for name, compare in IN_TEXT.items():
        printed = printed_numbers()["text"][name]
        section = printed["section"]
        value = printed["value"]
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        compare_text = partial(compare, expected=text)
        yield PaperNumber(section, f"section {section}", printed["quantity"], text, compare_text)
    for head, behaviour in printed_numbers()["figure1"].items():
        compare = partial(compare_behaviour, head=head, expected=behaviour)
        quantity = f"head {head} {BEHAVIOURS[behaviour]}"
        yield PaperNumber("3", "Figure 1", quantity, behaviour, compare)


def numbers_of_table_1() -> Iterator[PaperNumber]:
    """List the heads and the fixed offsets of Table 1, with their accuracies."""
    for relation, row in printed_numbers()["table1"].items():
        offset = f"{row['baseline_offset']:+d}"
        for quantity, choice, column, compare in (
            ("head and accuracy", row["head"], "accuracy", compare_head),
            ("best fixed offset and its accuracy", offset, "baseline", compare_offset),
        ):
            printed = row[column]
            expected = row.get(f"notebook_{column}", printed)
            is_slip = expected != printed
            yield PaperNumber(
                section="4.2",
                source="Table 1",
                quantity=f"{relation}: {quantity} (%)",
                paper=f"{choice}, {printed}",
                compare=partial(compare, place=relation, expected=str(expected)),
                annotation=PENN_TREEBANK,
                correction=CORRECTION.format(expected) if is_slip else "",
            )


def numbers_of_table_2() -> Iterator[PaperNumber]:
    """List the accuracies of Table 2: those of rules and of an attention head."""
    for system, by_type in printed_numbers()["table2"].items():
        if system == NEURAL_SYSTEM:
            continue
        for mention_type, accuracy in by_type.items():
            compare = partial(compare_rule, system=system, mention_type=mention_type)
            if system == HEAD:
                compare = partial(compare_head, place=f"{COREFERENCE}, {mention_type}")
            quantity = f"{system}, {mention_type} mentions: accuracy (%)"
            text = str(accuracy)
            compare_text = partial(compare, expected=text)
            yield PaperNumber("4.3", "Table 2", quantity, text, compare_text, CONLL_2012)


def numbers_of_table_3() -> Iterator[PaperNumber]:
    """List the attachment scores of Table 3."""
    for probe, score in printed_numbers()["table3"].items():
        text = str(score)
        compare = partial(compare_probe, probe=probe, expected=text)
        quantity = f"{probe}: attachment score (%)"
        yield PaperNumber("5", "Table 3", quantity, text, compare, PENN_TREEBANK)


# How a run's number is compared with a printed one, ``expected``


def compare_layers_over_half(
    tables: Tables, *, table: str, column: str, expected: str, by_layer: bool = False
) -> Row:
    """List the layers of the heads, or the layers on average, that give over half of attention.

    Heads or layers whose interval has a half in it may be on either side.  The list is within
    tolerance if the paper's is one of those that this leaves open.
    """
    columns = with_bounds(column)
    shares = rows_of(tables, table, *columns).set_index("layer")[columns]
    if by_layer:
        shares = shares.groupby("layer").mean()
    is_over_half = shares > printed_numbers()["text"]["over-half"]
    counts = is_over_half.groupby("layer").sum()
    in_paper = pd.Series(expected.split(), dtype=int).value_counts()
    in_paper = in_paper.reindex(counts.index, fill_value=0)
    name, low, high = columns
    return {
        "run": " ".join(map(str, shares.index[is_over_half[name]])),
        "outcome": _within(in_paper.between(counts[low], counts[high]).all()),
    }


def compare_mean(
    tables: Tables,
    *,
    table: str,
    column: str,
    layers: tuple[int, int],
    expected: str,
    is_limit: bool = False,
) -> Row:
    """Compare the mean of a quantity of heads from a first to a last layer.

    A lower limit may be exceeded.
    """
    columns = with_bounds(column)
    rows = rows_of(tables, table, *columns)
    value, low, high = rows.loc[rows["layer"].between(*layers), columns].mean()
    compared = min(value, float(expected)) if is_limit else value
    return _compare_interval(compared, low, high, expected) | {"run": f"{value:.3g}"}


def compare_behaviour(tables: Tables, *, head: str, expected: str) -> Row:
    """Compare what a head does most."""
    layer, number = map(int, head.split("-"))
    rows = rows_of(tables, "head_positions", "layer", "head", "behaviour")
    behaviour = rows_where(rows, layer=layer, head=number)["behaviour"].iloc[0]
    return {"run": behaviour, "outcome": _within(behaviour == expected)}


def compare_head(tables: Tables, *, place: str, expected: str) -> Row:
    """Compare the accuracy of the paper's head; it has to be the best one here, too.

    The place is a relation, or "coreference" and a type of mention.
    """
    head = rows_where(rows_of(tables, "paper_heads"), relation=place).iloc[0]
    row = _compare_share(head["accuracy"], head["count"], expected)
    outcome = SAME_HEAD if row["outcome"] == WITHIN else OUTSIDE
    note = f"rank {head['rank']:.0f}"
    if head["rank"] > 1:
        outcome = OTHER_HEAD
        note += f"; best: {head['best_head']}, {head['best_accuracy']:.1f}"
    run = f"{head['paper_head']}, {row['run']}"
    return row | {"run": run, "outcome": outcome, "note": note}


def compare_offset(tables: Tables, *, place: str, expected: str) -> Row:
    """Compare the accuracy of the paper's fixed offset; it has to be the best one here, too."""
    head = rows_where(rows_of(tables, "paper_heads"), relation=place).iloc[0]
    row = _compare_share(head["offset_accuracy"], head["count"], expected)
    row["run"] = f"{head['paper_offset']:+.0f}, {row['run']}"
    if head["best_offset"] != head["paper_offset"]:
        row |= {"outcome": OUTSIDE, "note": f"best: {head['best_offset']:+.0f}"}
    return row


def compare_rule(tables: Tables, *, system: str, mention_type: str, expected: str) -> Row:
    """Compare the accuracy of a rule for coreference."""
    scores = rows_of(tables, "coreference", "system", "type", "n", "accuracy")
    rule = rows_where(scores, system=system, type=mention_type).iloc[0]
    return _compare_share(rule["accuracy"], rule["n"], expected)


def compare_probe(tables: Tables, *, probe: str, expected: str) -> Row:
    """Compare the attachment score of a probe."""
    columns = with_bounds("value")
    scores = rows_where(rows_of(tables, "probes", "probe", *columns), probe=probe)
    value, low, high = scores.loc[scores["metric"].isin(COMPARED), columns].iloc[0]
    return _compare_interval(value, low, high, expected)


def _compare_share(accuracy: float, count: float, expected: str) -> Row:
    """Compare percentages of two samples of ``count`` cases."""
    share = float(expected) / 100
    return _compare(accuracy, 100 * Z * np.sqrt(2 * share * (1 - share) / count), expected)


def _compare_interval(value: float, low: float, high: float, expected: str) -> Row:
    """Compare numbers of two samples, of which one has a known 95% interval."""
    return _compare(value, np.sqrt(2) * (high - low) / 2, expected)


def _compare(value: float, spread: float, expected: str) -> Row:
    """Compare a number with a printed one, which is rounded to its last digit."""
    decimals = len(expected.partition(".")[2])
    tolerance = spread + 0.5 * 10.0**-decimals
    return {
        "run": f"{value:.1f}",
        "tolerance": tolerance,
        "outcome": _within(abs(value - float(expected)) <= tolerance),
    }


def _within(agrees: bool) -> str:
    """Name the outcome of a comparison."""
    return WITHIN if agrees else OUTSIDE


# The comparison of each number in the text, by its name in paper.toml.
IN_TEXT: dict[str, Callable[..., Row]] = {
    "previous-over-half": partial(
        compare_layers_over_half, table="relative_position", column="previous"
    ),
    "next-over-half": partial(compare_layers_over_half, table="relative_position", column="next"),
    "sep-over-half": partial(
        compare_layers_over_half, table="token_types", column="sep", by_layer=True
    ),
    "sep-to-sep": partial(
        compare_mean, table="token_types", column="sep_to_sep", layers=(6, 10), is_limit=True
    ),
    "entropy-from-cls": partial(
        compare_mean, table="entropy", column="entropy_from_cls", layers=(12, 12)
    ),
}
