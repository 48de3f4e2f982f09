"""Tolerances: by how much the same code on the same inputs may differ between two processors.

A processor with other vector instructions adds numbers in another order.  Maps then differ by 1e-6,
which their storage in float16 turns into up to 5e-4 of a single weight.  How much of that a table
shows depends on how it is made, so that each kind of table has a tolerance of its own.  Each is at
most three times the largest difference that was measured between processors, or between the
instruction sets of one processor (tests/run/test_tolerances.py names each measurement).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.claims.engine import CONTROL_COLUMNS


@dataclass(frozen=True)
class Tolerance:
    """The largest difference between two cells that counts as rounding.

    It is ``relative`` times the cell, plus ``of_largest`` times the largest number of the column
    (a difference of two large numbers may be close to zero), plus ``absolute``.  Most columns of
    ``tables`` have it, and all ``columns``, which are patterns of "table.column".
    """

    quantity: str
    relative: float = 0.0
    of_largest: float = 0.0
    absolute: float = 0.0
    tables: Sequence[str] = ()
    columns: Sequence[str] = ()

    def allowed(self, numbers: Float[np.ndarray, " cell"]) -> Float[np.ndarray, " cell"]:
        """Compute by how much each number of a column may differ."""
        sizes = np.abs(numbers)
        return self.relative * sizes + self.of_largest * np.nanmax(sizes) + self.absolute


TOLERANCES = {
    name: Tolerance(**fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}
# Probes that are trained by gradient steps.  Their rows of a table have the tolerance for these.
TRAINED_PROBES = (
    "Structural probe", "Distances + GloVe", "Bilinear probe on hidden states",
    "Random-init bilinear probe", "Entropy-matched bilinear probe",
)  # fmt: skip
PROBE_COLUMNS = ("probe", "other", "model", "measure")
CLAIMS_OF_TRAINED = ("5", "Kovaleva", "Michel", "Niven")
# Choices of the best of several, and titles that name it.  Another one may be best where the two
# are tied: the numbers of the row must then agree within their tolerance.
CHOICES = (
    "head", "direction", "relation", "chosen", "pattern", "removable", "title", "baseline_offset",
)  # fmt: skip
HEAD = ["layer", "head"]
VERDICTS = ["verdict", "due_to_training"]


@dataclass(frozen=True)
class TableDifference:
    """How a table differs from the same table of before.

    ``status`` is "identical", "new", "rounding" or "different".  The others are about the cell
    that uses most of its tolerance: ``largest`` is its difference, ``quantity`` names its numbers.
    """

    name: str
    status: str
    quantity: str = ""
    largest: float = 0.0
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
        "different" if rows or columns differ, a text differs that is no choice between equals, a
        number is missing in one of the two, or a number differs by more than its tolerance.
    """
    verdicts = before.filter(VERDICTS)
    verdicts_agree = verdicts.empty or verdicts.equals(after.filter(VERDICTS))
    if list(before.columns) != list(after.columns) or len(before) != len(after):
        return TableDifference(
            name, "different", "rows or columns", math.inf, math.inf, verdicts_agree
        )
    if without_prefix(name) == "probe_heads":  # sorted by its numbers
        before = before.sort_values(HEAD, ignore_index=True)
        after = after.sort_values(HEAD, ignore_index=True)
    is_trained = _is_trained(before)
    worst = TableDifference(name, "identical")
    for rows, usual in ((~is_trained, table_tolerance(name)), (is_trained, TOLERANCES["trained"])):
        for column in before:
            tolerance = _column_tolerance(name, column, usual)
            difference = _compare_columns(
                before.loc[rows, column], after.loc[rows, column], tolerance
            )
            if difference and difference.share_of_tolerance >= worst.share_of_tolerance:
                worst = difference
    return replace(worst, name=name, verdicts_agree=verdicts_agree)


def without_prefix(name: str) -> str:
    """Take away the part of a table's name that says of which control it is."""
    for prefix in CONTROL_COLUMNS:
        name = name.removeprefix(prefix)
    return name


def _is_trained(table: pd.DataFrame) -> pd.Series:
    """Find the rows of claims and probes that depend on training by gradient steps."""
    is_trained = table[table.columns.intersection(PROBE_COLUMNS)].isin(TRAINED_PROBES).any(axis=1)
    if "section" in table:
        is_trained |= table["section"].astype(str).str.startswith(CLAIMS_OF_TRAINED)
    return is_trained


def _column_tolerance(name: str, column: str, usual: Tolerance) -> Tolerance:
    """Find the tolerance of a column; it is the usual one unless a pattern has the column."""
    full_name = f"{without_prefix(name)}.{column}"
    for tolerance in TOLERANCES.values():
        if any(fnmatch(full_name, pattern) for pattern in tolerance.columns):
            return tolerance
    return usual


def _compare_columns(
    before: pd.Series, after: pd.Series, tolerance: Tolerance
) -> TableDifference | None:
    """Find the cell of a column that uses most of its tolerance; None for identical columns."""
    column = str(before.name)
    if before.equals(after) or before.empty:
        return None
    if column in CHOICES:
        return TableDifference("", "rounding", "choices between equals")
    is_numeric = {before.dtype.kind, after.dtype.kind} <= set("if")  # integers and fractions
    if not is_numeric or (before.isna() != after.isna()).any():
        return TableDifference("", "different", column, math.inf, math.inf)
    old = before.to_numpy(float)
    differences = np.nan_to_num(np.abs(old - after.to_numpy(float)))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num(differences / tolerance.allowed(old), posinf=math.inf)
    row = int(np.argmax(shares))
    return TableDifference(
        "",
        "different" if shares[row] > 1 + 1e-9 else "rounding",
        tolerance.quantity,
        float(differences[row]),
        float(shares[row]),
    )
