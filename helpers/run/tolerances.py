"""Tolerances: by how much the same code on the same inputs may differ between two processors.

A processor with other vector instructions adds numbers in another order.  Maps then differ by 1e-6,
which their storage in float16 turns into up to 5e-4 of a single weight.  How much of that a table
shows depends on how it is made, so that each kind of table has a tolerance of its own.  Each is at
most three times the largest difference that was measured between processors, or between the
instruction sets of one processor (tests/run/test_tolerances.py names each measurement).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Tolerance:
    """The largest difference between two cells that counts as rounding.

    It is ``relative`` times the cell, plus ``of_largest`` times the largest number of the column
    (a difference of two large numbers may be close to zero), plus ``absolute``.
    """

    quantity: str
    relative: float = 0.0
    of_largest: float = 0.0
    absolute: float = 0.0
    unit: str = "of the value"


AVERAGES = Tolerance("averages", relative=2e-4, of_largest=7.5e-6)
COUNTS = Tolerance("counts", unit="percentage points")
LINEAR = Tolerance("linear probes", absolute=0.15, unit="percentage points")
WEIGHTS = Tolerance("weights of linear probes", of_largest=3e-3, unit="of the largest weight")
OPTIMIZER_STEPS = Tolerance("last steps of an optimizer", absolute=6.0, unit="steps")
OPTIMIZER_GRADIENT = Tolerance("last steps of an optimizer", absolute=6e-3, unit="of a gradient")
TRAINED = Tolerance("trained probes", absolute=2.0, unit="percentage points")
TRAINED_SHARES = Tolerance("trained probes", absolute=0.02, unit="of a share")
P_VALUES = Tolerance("p-values", absolute=3e-4, unit="of a p-value")

KINDS = (AVERAGES, COUNTS, LINEAR, WEIGHTS, TRAINED, TRAINED_SHARES, P_VALUES)

# Tables of controls have the same names after one of these.
CONTROL_PREFIXES = ("random_", "entropy_matched_")
TABLE_KINDS = {
    "averages_by_article": AVERAGES,
    "relative_position": AVERAGES,
    "token_types": AVERAGES,
    "gradients": AVERAGES,
    "entropy": AVERAGES,
    "no_op": AVERAGES,
    "head_cohesion": AVERAGES,
    "head_distances": AVERAGES,
    "head_positions": AVERAGES,
    "lens_shares": AVERAGES,
    "special_tokens": AVERAGES,
    "sinks": AVERAGES,
    "value_norms": AVERAGES,
    "edges": AVERAGES,
    "edge_ratios": AVERAGES,
    "edge_rows": AVERAGES,
    "attributions": AVERAGES,
    "claims": AVERAGES,
    "commonest_tokens": COUNTS,
    "split_words": COUNTS,
    "silver_quality": COUNTS,
    "dependency_heads": COUNTS,
    "dependency_heads_held_out": COUNTS,
    "each_head": COUNTS,
    "possessives": COUNTS,
    "special_candidates": COUNTS,
    "coreference": COUNTS,
    "coreference_held_out": COUNTS,
    "fig1_examples": COUNTS,
    "fig5_examples": COUNTS,
    "cues": COUNTS,
    "cue_rules": COUNTS,
    "probes": LINEAR,
    "probe_differences": LINEAR,
    "probe_seeds": LINEAR,
    "probe_heads": WEIGHTS,
    "probe_fits": WEIGHTS,
    "learning_curves": LINEAR,
    "structural_layers": TRAINED,
    "ablation": TRAINED,
    "cross_data": TRAINED,
    "disabling": TRAINED,
    "fine_tuning": TRAINED,
    "finetuning_similarity": TRAINED_SHARES,
    "importance": TRAINED_SHARES,
    "one_head": TRAINED,
    "partial_input_seeds": TRAINED,
    "partial_inputs": TRAINED,
    "pattern_confusion": TRAINED,
    "pattern_shares": TRAINED_SHARES,
    "pattern_trust": TRAINED,
    "patterns": TRAINED_SHARES,
    "pruning": TRAINED,
    "pruning_seeds": TRAINED,
    "seed_intervals": TRAINED,
    "semantic_links": AVERAGES,
    "token_features": TRAINED_SHARES,
}
# Columns that are of another kind than the rest of their table: table, column, kind.
COLUMN_KINDS = (
    ("*", "p_*", P_VALUES),
    ("*", "q_value", P_VALUES),
    ("probe_fits", "gradient", OPTIMIZER_GRADIENT),
    ("probe_fits", "passes", OPTIMIZER_STEPS),
    ("probe_fits", "l2", COUNTS),
    ("split_words", "share", AVERAGES),
)
# Probes that are trained by gradient steps.  Their rows of a table have the tolerance for these.
TRAINED_PROBES = ("Structural probe", "Distances + GloVe")
PROBE_COLUMNS = ("probe", "other", "model", "measure")
CLAIMS_OF_TRAINED = ("5", "Kovaleva", "Michel", "Niven")
# Choices of the best of several.  Another one may be best where the two are tied: the numbers of
# the row must then agree within their tolerance.
CHOICES = ("head", "direction", "relation", "chosen", "pattern", "removable")
NUMBERED_CHOICES = ("baseline_offset",)
TIED = "choices between equals"
TIED_SHARE = 1e-6  # of a tolerance: any number that differs is reported before a tied choice
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Rows are matched by these columns where a table is sorted by its numbers.
ROW_KEYS = {"probe_heads": ["layer", "head"]}
VERDICTS = ("verdict", "due_to_training")


@dataclass(frozen=True)
class TableDifference:
    """How a table differs from the same table of before.

    ``status`` is "identical", "rounding" or "exceeds".  The other fields are about the cell that
    uses most of its tolerance: ``largest`` is its difference, in ``unit``; ``quantity`` names the
    numbers of its column.
    """

    name: str
    status: str
    largest: float = 0.0
    quantity: str = ""
    unit: str = ""
    column: str = ""
    share_of_tolerance: float = 0.0
    verdicts_agree: bool = True


def table_tolerance(name: str) -> Tolerance:
    """Find the tolerance for most columns of a table; that for counts, if no kind is listed."""
    return TABLE_KINDS.get(without_prefix(name), COUNTS)


def compare_tables(before: pd.DataFrame, after: pd.DataFrame, name: str) -> TableDifference:
    """Compare a table with the same table of before, cell by cell.

    Parameters
    ----------
    before, after : pandas.DataFrame
        The table of an earlier run and that of this one.
    name : str
        The table's file name without ``.csv``, which says of which kind its numbers are.

    Returns
    -------
    TableDifference
        "exceeds" if rows or columns differ, a text differs that is no choice between equals, a
        number is missing in one of the two, or a number differs by more than its tolerance.
    """
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        return TableDifference(name, "exceeds", math.inf, column="rows or columns")
    keys = ROW_KEYS.get(without_prefix(name))
    if keys:
        before = before.sort_values(keys, ignore_index=True)
        after = after.sort_values(keys, ignore_index=True)
    verdicts_agree = all(
        _same_text(before[column], after[column]) for column in VERDICTS if column in before
    )
    worst = TableDifference(name, "identical", verdicts_agree=verdicts_agree)
    row_tolerances = _tolerances_of_rows(before, name)
    for column in before.columns:
        for difference in _column_differences(before[column], after[column], name, row_tolerances):
            if difference.share_of_tolerance > worst.share_of_tolerance:
                worst = replace(difference, verdicts_agree=verdicts_agree)
    return worst


def read_for_comparison(content: bytes) -> pd.DataFrame:
    """Read the bytes of a table; only an empty field is a missing value."""
    return pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])


def without_prefix(name: str) -> str:
    """Take away the part of a table's name that says of which control it is."""
    for prefix in CONTROL_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _tolerances_of_rows(table: pd.DataFrame, name: str) -> list[Tolerance]:
    """Find the tolerance of each row: claims and probes of one table are of different kinds."""
    usual = table_tolerance(name)
    tolerances = [usual] * len(table)
    if name == "claims" and "section" in table:
        for row, section in enumerate(table["section"].astype(str)):
            if section.startswith(CLAIMS_OF_TRAINED):
                tolerances[row] = TRAINED
    for column in PROBE_COLUMNS:
        if column in table and usual in (LINEAR, AVERAGES):
            for row, probe in enumerate(table[column]):
                if probe in TRAINED_PROBES:
                    tolerances[row] = TRAINED
    return tolerances


def _column_differences(
    before: pd.Series, after: pd.Series, name: str, row_tolerances: Sequence[Tolerance]
) -> Iterator[TableDifference]:
    """Yield by how much a column differs, once for each tolerance that its rows have."""
    column = str(before.name)
    if _same_text(before, after):
        return
    if not (_is_numeric(before) and _is_numeric(after)) or column in NUMBERED_CHOICES:
        if column in (*CHOICES, *NUMBERED_CHOICES) or _titles_agree(before, after, column):
            yield TableDifference(
                name, "rounding", quantity=TIED, column=column, share_of_tolerance=TIED_SHARE
            )
        else:
            yield TableDifference(
                name, "exceeds", math.inf, "text", column=column, share_of_tolerance=math.inf
            )
        return
    tolerance_of_column = _tolerance_of_column(name, column)
    if tolerance_of_column:
        row_tolerances = [tolerance_of_column] * len(before)
    for tolerance in dict.fromkeys(row_tolerances):
        rows = np.array([row_tolerance == tolerance for row_tolerance in row_tolerances])
        yield _largest_difference(before, after, rows, tolerance, name)


def _tolerance_of_column(name: str, column: str) -> Tolerance | None:
    for table_pattern, column_pattern, tolerance in COLUMN_KINDS:
        if fnmatch(without_prefix(name), table_pattern) and fnmatch(column, column_pattern):
            return tolerance
    return None


def _largest_difference(
    before: pd.Series, after: pd.Series, rows: np.ndarray, tolerance: Tolerance, name: str
) -> TableDifference:
    """Find the cell that uses most of a tolerance, among these rows of a column."""
    old = before.to_numpy(float)[rows]
    new = after.to_numpy(float)[rows]
    column = str(before.name)
    if (np.isnan(old) != np.isnan(new)).any():
        return TableDifference(
            name, "exceeds", math.inf, "missing numbers", column=column, share_of_tolerance=math.inf
        )
    present = ~np.isnan(old)
    old = old[present]
    new = new[present]
    differences = np.abs(old - new)
    if not differences.any():
        return TableDifference(name, "identical")
    largest_number = float(np.nanmax(np.abs(before.to_numpy(float))))
    allowed = (
        tolerance.relative * np.abs(old)
        + tolerance.of_largest * largest_number
        + tolerance.absolute
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(differences > 0, differences / allowed, 0.0)
    worst_row = int(np.argmax(shares))
    scale = {"of the value": abs(old[worst_row]), "of the largest weight": largest_number}
    largest = float(differences[worst_row]) / (scale.get(tolerance.unit, 1.0) or 1.0)
    status = "exceeds" if shares[worst_row] > 1 + 1e-9 else "rounding"
    return TableDifference(
        name, status, largest, tolerance.quantity, tolerance.unit, column, float(shares[worst_row])
    )


def _titles_agree(before: pd.Series, after: pd.Series, column: str) -> bool:
    """Say whether titles differ only in the last digit of a number."""
    if column != "title":
        return False
    for old, new in zip(before, after, strict=True):
        if NUMBER.sub("#", str(old)) != NUMBER.sub("#", str(new)):
            return False
        for number_before, number_after in zip(
            NUMBER.findall(str(old)), NUMBER.findall(str(new)), strict=True
        ):
            last_digit = 10.0 ** -len(number_before.partition(".")[2])
            if abs(float(number_before) - float(number_after)) > 1.001 * last_digit:
                return False
    return True


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _same_text(before: pd.Series, after: pd.Series) -> bool:
    return (
        before.astype(object)
        .where(before.notna(), None)
        .equals(after.astype(object).where(after.notna(), None))
    )
