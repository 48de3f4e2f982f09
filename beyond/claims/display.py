"""Claims for readers: the columns that every page shows."""

from __future__ import annotations

import pandas as pd

VERDICTS = ("not supported", "inconclusive", "supported", "not measured")  # the news first
NUMBERS = ("value", "value_low", "value_high", "paper_value")  # of a claim
LEAST_SHOWN = 0.0005  # a smaller number is shown as 0
# What stands behind a number, where it is not its unit.
UNIT_WORDS = {"": "", "correlation": "", "similarity": "", "ratio": " times"}


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
    for row in table.fillna({"unit": "", "reason": ""}).to_dict("records"):
        scale = 100 if row["unit"].startswith("share") else 1
        unit = "%" if scale == 100 else UNIT_WORDS.get(row["unit"], f" {row['unit']}")
        numbers = {name: scale * row[name] for name in NUMBERS}
        number = _with_unit(numbers["value"], unit)
        if numbers["value_low"] < numbers["value_high"]:  # an exact number has no interval
            number += f" ({numbers['value_low']:.3g} to {numbers['value_high']:.3g})"
        larger = row.get("larger_than_in_controls")
        answer = f"larger than in controls: {larger}" if isinstance(larger, str) else ""
        paper = _with_unit(numbers["paper_value"], unit)
        rows.append((row["claim"], paper, number, row["verdict"], row["reason"] or answer))
    return pd.DataFrame(rows, columns=["claim", "paper", "this model", "verdict", "note"])


def _with_unit(number: float, unit: str) -> str:
    if pd.isna(number):
        return ""
    return f"{0 if abs(number) < LEAST_SHOWN else number:.3g}{unit}"
