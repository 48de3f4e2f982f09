"""Claims for readers: the four columns that every page shows, and the rest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

LEAST_P = 0.0001  # a smaller p-value is shown as smaller than this
LEAST_SHOWN = 0.0005  # a smaller number is shown as ZERO, not as a power of ten
ZERO = "0.000"
ANSWERS = {
    "yes": "larger than in controls",
    "no": "not larger than in controls",
    "inconclusive": "unclear whether larger than in controls",
}
# What stands behind a number, where it is not its unit.
UNIT_WORDS = {"share": "", "correlation": "", "ratio": "times"}
THIS_MODEL = "this model [95% interval]"
DETAILS = {
    "claim": "claim",
    "how_measured": "how measured",
    "threshold": "threshold",
    "threshold_source": "whose",
    "p_adjusted": "adjusted p",
    "control": "random weights",
    "entropy_matched_control": "random weights, entropy-matched",
    "shuffled_control": "this model, on shuffled sentences",
}  # headings by column


def summarise_claims(claims: pd.DataFrame) -> pd.DataFrame:
    """Show claims in four columns.

    Parameters
    ----------
    claims : DataFrame
        A table of claims, as from `check_claims` or from ``claims.csv``.

    Returns
    -------
    DataFrame
        The columns claim, paper, this model and verdict, all of text.  The interval is not
        adjusted for the number of claims, and the verdict is.  A verdict "not measured" has its
        reason, and so has a supported claim that says nothing about training.
    """
    rows = []
    for row in claims.to_dict("records"):
        number = _number(row, "value")
        low = row["value_low"]
        high = row["value_high"]
        if low < high:  # an exact number has none
            number += f" [{_rounded(low)} to {_rounded(high)}]"
        verdict = row["verdict"]
        if isinstance(row["reason"], str) and row["reason"]:
            verdict += f": {row['reason']}"
        elif row["larger_than_in_controls"] in ANSWERS:
            answer = ANSWERS[row["larger_than_in_controls"]]
            columns = ("control", "entropy_matched_control")
            controls = filter(None, [_number(row, column) for column in columns])
            verdict += f", {answer} (random weights: {', entropy-matched '.join(controls)})"
        rows.append((row["claim"], _number(row, "paper_value"), number, verdict))
    return pd.DataFrame(rows, columns=["claim", "paper", THIS_MODEL, "verdict"])


def claim_details(claims: pd.DataFrame) -> pd.DataFrame:
    """Show the rest of a table of claims: thresholds, p-values and controls.

    Parameters
    ----------
    claims : DataFrame
        As for `summarise_claims`.

    Returns
    -------
    DataFrame
        One row per claim, with the headings of `DETAILS`; all of text, or missing.
    """
    p = claims["p_adjusted"]
    text = p.map("{:.4f}".format, na_action="ignore").mask(p < LEAST_P, f"< {LEAST_P:.4f}")
    numbers = claims.select_dtypes("number").map(_rounded, na_action="ignore")
    displayed = claims.assign(**numbers).assign(p_adjusted=text)
    return displayed[list(DETAILS)].rename(columns=DETAILS)


def _number(row: Mapping[Hashable, Any], column: str) -> str:
    """Word a number with its unit."""
    value = row[column]
    if pd.isna(value):
        return ""
    return f"{_rounded(value)} {UNIT_WORDS.get(row['unit'], row['unit'])}".strip()


def _rounded(value: float) -> str:
    """Word a number with three digits, except a tiny one."""
    return ZERO if 0 < abs(value) < LEAST_SHOWN else f"{value:.3g}"
