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
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Tolerance:
    """The largest difference between two cells that counts as rounding.

    It is ``relative`` times the cell, plus ``of_largest`` times the largest number of the column
    (a difference of two large numbers may be close to zero), plus ``absolute``.  Most columns of
    ``tables`` have it, and all ``columns``, which are patterns of "table.column".
    """

    quantity: str
    unit: str
    relative: float = 0.0
    of_largest: float = 0.0
    absolute: float = 0.0
    tables: Sequence[str] = ()
    columns: Sequence[str] = ()

    def allowed(self, number: float, largest: float) -> float:
        """Compute by how much a number may differ in a column with this largest number."""
        return self.relative * abs(number) + self.of_largest * largest + self.absolute


TOLERANCES = {
    name: Tolerance(**fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}
# Tables of controls have the same names after one of these.
CONTROL_PREFIXES = ("random_", "entropy_matched_")
# Probes that are trained by gradient steps.  Their rows of a table have the tolerance for these.
TRAINED_PROBES = (
    "Structural probe", "Distances + GloVe", "Bilinear probe on hidden states",
    "Random-init bilinear probe", "Entropy-matched bilinear probe",
)  # fmt: skip
PROBE_COLUMNS = ("probe", "other", "model", "measure")
CLAIMS_OF_TRAINED = ("5", "Kovaleva", "Michel", "Niven")
# Choices of the best of several.  Another one may be best where the two are tied: the numbers of
# the row must then agree within their tolerance.
CHOICES = ("head", "direction", "relation", "chosen", "pattern", "removable")
TIED = "choices between equals"
TIED_SHARE = 1e-6  # of a tolerance: any number that differs is reported before a tied choice
NUMBER = re.compile(r"\d+(?:\.\d+)?")
HEAD = ["layer", "head"]
VERDICTS = ["verdict", "due_to_training"]


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
    for tolerance in TOLERANCES.values():
        if without_prefix(name) in tolerance.tables:
            return tolerance
    return TOLERANCES["counts"]


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
    if without_prefix(name) == "probe_heads":  # sorted by its numbers
        before = before.sort_values(HEAD, ignore_index=True)
        after = after.sort_values(HEAD, ignore_index=True)
    row_tolerances = _row_tolerances(before, name)
    differences = [TableDifference(name, "identical")]
    for column in before:
        tolerance = _column_tolerance(name, column)
        tolerances = [tolerance] * len(before) if tolerance else row_tolerances
        differences.append(_compare_columns(before[column], after[column], name, tolerances))
    worst = max(differences, key=lambda difference: difference.share_of_tolerance)
    verdicts = before.columns.intersection(VERDICTS)
    return replace(worst, verdicts_agree=before[verdicts].equals(after[verdicts]))


def read_for_comparison(content: bytes) -> pd.DataFrame:
    """Read the bytes of a table; only an empty field is a missing value."""
    return pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])


def without_prefix(name: str) -> str:
    """Take away the part of a table's name that says of which control it is."""
    for prefix in CONTROL_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _row_tolerances(table: pd.DataFrame, name: str) -> list[Tolerance]:
    """Find the tolerance of each row: claims and probes of one table are of different kinds."""
    usual = table_tolerance(name)
    is_trained = pd.Series(False, index=table.index)
    if name == "claims":
        is_trained = table["section"].astype(str).str.startswith(CLAIMS_OF_TRAINED)
    if usual in (TOLERANCES["linear"], TOLERANCES["averages"]):
        for column in table.columns.intersection(PROBE_COLUMNS):
            is_trained |= table[column].isin(TRAINED_PROBES)
    return [TOLERANCES["trained"] if trained else usual for trained in is_trained]


def _column_tolerance(name: str, column: str) -> Tolerance | None:
    """Find the tolerance of a column that has another than most of its table."""
    full_name = f"{without_prefix(name)}.{column}"
    for tolerance in TOLERANCES.values():
        if any(fnmatch(full_name, pattern) for pattern in tolerance.columns):
            return tolerance
    return None


def _compare_columns(
    before: pd.Series, after: pd.Series, name: str, row_tolerances: Sequence[Tolerance]
) -> TableDifference:
    """Find the cell of a column that uses most of its tolerance."""
    column = str(before.name)
    identical = TableDifference(name, "identical")
    tied = TableDifference(
        name, "rounding", quantity=TIED, column=column, share_of_tolerance=TIED_SHARE
    )
    exceeds = TableDifference(
        name, "exceeds", math.inf, "text", column=column, share_of_tolerance=math.inf
    )
    if before.equals(after):
        return identical
    if column == "baseline_offset" or (column == "title" and _titles_agree(before, after)):
        return tied
    if not {before.dtype.kind, after.dtype.kind} <= set("if"):  # integers and fractions
        return tied if column in CHOICES else exceeds
    old = before.to_numpy(float)
    differences = np.abs(old - after.to_numpy(float))
    if (before.isna() != after.isna()).any():
        return replace(exceeds, quantity="missing numbers")
    if not np.nansum(differences):
        return identical
    largest_number = float(np.nanmax(np.abs(old)))
    allowed = [
        tolerance.allowed(number, largest_number)
        for tolerance, number in zip(row_tolerances, old, strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(differences > 0, differences / allowed, 0.0)
    row = int(np.argmax(shares))
    tolerance = row_tolerances[row]
    scale = {"of the value": abs(old[row]), "of the largest weight": largest_number}
    return TableDifference(
        name,
        "exceeds" if shares[row] > 1 + 1e-9 else "rounding",
        float(differences[row]) / (scale.get(tolerance.unit, 1.0) or 1.0),
        tolerance.quantity,
        tolerance.unit,
        column,
        float(shares[row]),
    )


def _titles_agree(before: pd.Series, after: pd.Series) -> bool:
    """Say whether titles differ only in the last digit of a number."""
    for old, new in zip(before.astype(str), after.astype(str), strict=True):
        if NUMBER.sub("#", old) != NUMBER.sub("#", new):
            return False
        for old_number, new_number in zip(NUMBER.findall(old), NUMBER.findall(new), strict=True):
            if abs(int(old_number.replace(".", "")) - int(new_number.replace(".", ""))) > 1:
                return False
    return True
