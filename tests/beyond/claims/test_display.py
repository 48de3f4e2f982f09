"""How claims are shown: four columns, and the rest."""

import pandas as pd
import pytest

from beyond.claims.display import THIS_MODEL, claim_details, summarise_claims
from beyond.claims.engine import COLUMNS


def claims_table(**fields):
    """Make a table of one claim."""
    row = {"verdict": "supported", "reason": "", "larger_than_in_controls": "", "unit": "share"}
    numbers = dict.fromkeys(
        ("paper_value", "value", "value_low", "value_high", "threshold", "p_adjusted", "control",
         "entropy_matched_control", "shuffled_control"), float("nan")
    )  # fmt: skip
    return pd.DataFrame([row | numbers | fields], columns=COLUMNS)


@pytest.mark.parametrize(
    ("numbers", "unit", "expected"),
    [
        ((7.3265, 5.6309, 9.1449), "percentage points", "7.33 percentage points [5.63 to 9.14]"),
        ((0.5, 0.25, 0.75), "share", "0.5 [0.25 to 0.75]"),
        ((2, 1.5, 2.5), "ratio", "2 times [1.5 to 2.5]"),
        ((0.97, 0.97, 0.97), "of the heads", "0.97 of the heads"),
        ((-5.85e-06, -1e-05, 0.002), "nats", "0.000 nats [0.000 to 0.002]"),
        ((float("nan"),) * 3, "nats", ""),
    ],
)
def test_numbers_have_intervals_and_units(numbers, unit, expected):
    columns = dict(zip(("value", "value_low", "value_high"), numbers, strict=True))
    row = summarise_claims(claims_table(unit=unit, **columns)).iloc[0]
    assert list(row.index) == ["claim", "paper", THIS_MODEL, "verdict"]
    assert row[THIS_MODEL] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"verdict": "not measured", "reason": "no task is learned"},
         "not measured: no task is learned"),
        ({"larger_than_in_controls": "yes", "control": 1.0, "entropy_matched_control": 8.9},
         "supported, larger than in controls (random weights: 1, entropy-matched 8.9)"),
        ({"verdict": "inconclusive"}, "inconclusive"),
    ],
)  # fmt: skip
def test_a_verdict_has_its_reason_or_the_controls(fields, expected):
    assert summarise_claims(claims_table(**fields)).loc[0, "verdict"] == expected


def test_details_have_small_p_values_as_bounds_and_no_powers_of_ten():
    row = claim_details(claims_table(p_adjusted=1e-7, threshold=8e-6)).iloc[0]
    assert (row["adjusted p"], row["threshold"]) == ("< 0.0001", "0.000")
