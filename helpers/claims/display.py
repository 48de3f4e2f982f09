"""Claims for readers: the four columns that every page and notebook shows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from helpers.claims.engine import INCONCLUSIVE, YES

LEAST_P = 0.001  # a smaller p-value is shown as smaller than this
LEAST_POWER = 0.5
UNSEEN = "inconclusive (could not have been seen here)"
THIS_MODEL = "this model [95% interval]"


def summarise_claims(claims: pd.DataFrame) -> pd.DataFrame:
    """Show claims in four columns.

    Parameters
    ----------
    claims : DataFrame
        A table of claims, as from `check_claims` or from ``claims.csv``.

    Returns
    -------
    DataFrame
        The columns claim, paper, this model and verdict, all of text.  The interval is the one that
        is adjusted for the number of claims, like the verdict.
    """
    rows = []
    for row in claims.to_dict("records"):
        rows.append(
            {
                "claim": row["claim"],
                "paper": _number(row, "paper_value"),
                THIS_MODEL: _number_with_interval(row),
                "verdict": shown_verdict(row),
            }
        )
    return pd.DataFrame(rows, columns=["claim", "paper", THIS_MODEL, "verdict"])


def claim_details(claims: pd.DataFrame) -> pd.DataFrame:
    """Show the rest of a table of claims: unadjusted intervals, thresholds, p-values and controls.

    Parameters
    ----------
    claims : DataFrame
        As for `summarise_claims`.

    Returns
    -------
    DataFrame
        One row per claim, all of text.
    """
    rows = []
    for row in claims.to_dict("records"):
        threshold = _number(row, "threshold")
        rows.append(
            {
                "claim": row["claim"],
                "how measured": row["how_measured"],
                "threshold": f"{threshold} ({row['threshold_source']})" if threshold else "",
                "the verdict turns at": _number(row, "turns_at"),
                "unadjusted interval": _interval(row, "value_low", "value_high"),
                "adjusted p": _p_value(row["p_adjusted"]),
                "random weights": _number(row, "control"),
                "random weights, entropy-matched": _number(row, "entropy_matched_control"),
                "power at the paper's number": _number({**row, "unit": ""}, "power_at_paper"),
            }
        )
    return pd.DataFrame(rows)


def shown_verdict(row: Mapping[Hashable, Any]) -> str:
    """Word the verdict of a claim's row; a test without power says that it has none."""
    if row["verdict"] == INCONCLUSIVE and row["power_at_paper"] < LEAST_POWER:
        return UNSEEN
    return row["verdict"] + (", due to training" if row["due_to_training"] == YES else "")


def _number(row: Mapping[Hashable, Any], column: str) -> str:
    """Word a number; a share of cases as "70 of 72 heads"."""
    value = row[column]
    if pd.isna(value):
        return ""
    if row["cases"] and row["unit"]:
        return f"{round(value * row['cases'])} of {row['cases']:.0f} {row['unit']}"
    return f"{value:.3g} {row['unit']}".strip()


def _interval(row: Mapping[Hashable, Any], low: str, high: str) -> str:
    """Word an interval; empty for a number without one."""
    if pd.isna(row[low]):
        return ""
    scale = row["cases"] if row["unit"] and row["cases"] else 1
    return f"[{row[low] * scale:.3g} to {row[high] * scale:.3g}]"


def _number_with_interval(row: Mapping[Hashable, Any]) -> str:
    """Word the number of a run and its adjusted interval."""
    return f"{_number(row, 'value')} {_interval(row, 'adjusted_low', 'adjusted_high')}".strip()


def _p_value(p: float) -> str:
    """Word a p-value."""
    if pd.isna(p):
        return ""
    return f"< {LEAST_P}" if p < LEAST_P else f"{p:.3f}"
