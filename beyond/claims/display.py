"""Claims for readers: the four columns that every page and notebook shows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from beyond.claims.engine import CONTROL_COLUMNS, INCONCLUSIVE

LEAST_P = 0.0001  # a smaller p-value is shown as smaller than this
LEAST_POWER = 0.5
LEAST_SHOWN = 0.0005  # a smaller number is shown as ZERO, not as a power of ten
ZERO = "0.000"
UNSEEN = "inconclusive (could not have been seen here)"
CAUSES = {
    "yes": "due to training",
    "no": "not due to training",
    "inconclusive": "unclear whether due to training",
}
SHARE_OF = "share of "  # the beginning of the unit of a share that is shown as a count of cases
# What stands behind a number, where it is not its unit.
UNIT_WORDS = {"share": "", "correlation": "", "similarity": "", "ratio": "times"}
THIS_MODEL = "this model [95% interval]"
DETAILS = {
    "claim": "claim",
    "how_measured": "how measured",
    "threshold": "threshold",
    "threshold_source": "whose",
    "turns_at": "the verdict turns at",
    "adjusted_low": "interval adjusted for the number of claims, from",
    "adjusted_high": "to",
    "p_adjusted": "adjusted p",
    "control": "random weights",
    "entropy_matched_control": "random weights, entropy-matched",
    "shuffled_control": "this model, on shuffled sentences",
    "power_at_paper": "power at the paper's number",
    "least_effect": "number that half of such runs would support",
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
        if _is_count_of_cases(row):
            low *= row["cases"]
            high *= row["cases"]
        if low < high:  # an exact number has none
            number += f" [{_rounded(low)} to {_rounded(high)}]"
        verdict = row["verdict"]
        if verdict == INCONCLUSIVE and row["power_at_paper"] < LEAST_POWER:
            verdict = UNSEEN
        elif isinstance(row["reason"], str) and row["reason"]:
            verdict += f": {row['reason']}"
        elif row["due_to_training"] in CAUSES:
            controls = [_number(row, column) for column in CONTROL_COLUMNS.values()]
            numbers = ", entropy-matched ".join(filter(None, controls))
            verdict += f", {CAUSES[row['due_to_training']]} (random weights: {numbers})"
        rows.append((row["claim"], _number(row, "paper_value"), number, verdict))
    return pd.DataFrame(rows, columns=["claim", "paper", THIS_MODEL, "verdict"])


def claim_details(claims: pd.DataFrame) -> pd.DataFrame:
    """Show the rest of a table of claims: thresholds, adjusted intervals, p-values and controls.

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
    """Word a number with its unit; a share of cases as "70 of 72 heads"."""
    value = row[column]
    if pd.isna(value):
        return ""
    unit = row["unit"]
    if _is_count_of_cases(row):
        cases = unit.removeprefix(SHARE_OF)
        return f"{round(value * row['cases'])} of {row['cases']:.0f} {cases}"
    return f"{_rounded(value)} {UNIT_WORDS.get(unit, unit)}".strip()


def _is_count_of_cases(row: Mapping[Hashable, Any]) -> bool:
    """Say whether a number is a share that is shown as a count."""
    return row["cases"] > 0 and row["unit"].startswith(SHARE_OF)


def _rounded(value: float) -> str:
    """Word a number with three digits, except a tiny one."""
    return ZERO if 0 < abs(value) < LEAST_SHOWN else f"{value:.3g}"
