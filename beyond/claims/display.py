"""Claims for readers: the columns that every page shows."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from IPython.display import Markdown

VERDICTS = ("not supported", "inconclusive", "supported", "not measured")  # the news first
LEAST_SHOWN = 0.0005  # a smaller number is shown as 0
# What stands behind a number, where it is not its unit.
UNIT_WORDS = {"": "", "percent": "%", "correlation": "", "similarity": "", "ratio": " times"}
PERCENTAGES = ("%", " percentage points")


def claims_in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Write the rows of claims.csv as text.

    Parameters
    ----------
    table : DataFrame
        Rows of ``claims.csv``.

    Returns
    -------
    DataFrame
        The columns claim, paper, this model (with its interval), verdict, and note: the reason of
        a claim that is not measured, or the answer whether the number is larger than in controls.
    """
    rows = []
    for row in (
        table.astype({"reason": object}).fillna({"unit": "", "reason": ""}).to_dict("records")
    ):
        scale, unit = _scale_and_unit(row["unit"])
        number = "" if pd.isna(row["value"]) else _rounded(scale * row["value"], unit) + unit
        if row["value_low"] < row["value_high"]:  # an exact number has no interval
            low = _rounded(scale * row["value_low"], unit)
            high = _rounded(scale * row["value_high"], unit)
            number += f" ({low} to {high})"
        larger = row.get("larger_than_in_controls")
        answer = f"larger than in controls: {larger}" if isinstance(larger, str) else ""
        paper = _with_unit(scale * row["paper_value"], unit)
        rows.append((row["claim"], paper, number, row["verdict"], row["reason"] or answer))
    return pd.DataFrame(rows, columns=["claim", "paper", "this model", "verdict", "note"])


def verdict_list(table: pd.DataFrame, ids: Sequence[str]) -> Markdown:
    """Write a few claims as a list: each with its verdict, its number and what it was held against.

    Parameters
    ----------
    table : DataFrame
        As for `claims_in_words`.
    ids : sequence of str
        The claims to show; those that this run has no number for are left out.

    Returns
    -------
    Markdown
        One line for each claim.
    """
    is_shown = table["id"].isin(ids) & (table["verdict"] != "not measured")
    claims = table[is_shown].fillna({"unit": ""})
    lines = []
    numbers = claims_in_words(claims)["this model"]
    for row, number in zip(claims.to_dict("records"), numbers, strict=True):
        scale, unit = _scale_and_unit(row["unit"])
        words = [number, f"the threshold is {_with_unit(scale * row['threshold'], unit)}"]
        if pd.notna(row["control"]):
            words.append(f"random weights: {_rounded(scale * row['control'], unit)}{unit}")
        lines.append(f"- {row['claim']}: **{row['verdict']}**. {'; '.join(words)}.")
    return Markdown("\n".join(lines))


def _scale_and_unit(unit: str) -> tuple[int, str]:
    """Say by how much a number is multiplied to be shown, and what stands behind it."""
    if unit.startswith("share"):
        return 100, "%"
    return 1, UNIT_WORDS.get(unit, f" {unit}")


def _with_unit(number: float, unit: str) -> str:
    """Write a number that was given: the paper's, or a threshold."""
    return "" if pd.isna(number) else f"{number:.3g}{unit}"


def _rounded(number: float, unit: str) -> str:
    """Write a measured number: a percentage with one decimal, any other with three digits."""
    if unit in PERCENTAGES:
        return f"{number:.1f}"
    return f"{0 if abs(number) < LEAST_SHOWN else number:.3g}"
