"""How claims are shown: four columns, counts, p-values, and verdicts without power."""

import numpy as np
import pytest

from helpers.claims.display import THIS_MODEL, UNSEEN, claim_details, summarise_claims
from helpers.claims.engine import Family, check_claims
from helpers.metrics.statistics import Estimate, exact


def shown(estimate, **fields):
    """Show a claim whose measure is an estimate."""
    family = Family("a paper")
    family.claim("3", "A", how_measured="how", **fields)(lambda tables: estimate)
    claims = check_claims({}, family.claims)
    return summarise_claims(claims).iloc[0], claim_details(claims).iloc[0]


@pytest.mark.parametrize(
    ("estimate", "unit", "expected"),
    [
        (Estimate(7.3265, 5.6309, 9.1449), "points", "7.33 points [5.63 to 9.14]"),
        (exact(70 / 72, 72), "heads", "70 of 72 heads"),
        (Estimate(0.25, 0.125, 0.5, cases=8), "heads", "2 of 8 heads [1 to 4]"),
        (Estimate(0.5, -0.1, 1.2, cases=8), "heads", "4 of 8 heads [0 to 8]"),
        (Estimate(-5.85e-06, -1e-05, 0.002), "nats", "0.000 nats [0.000 to 0.002]"),
        (Estimate(np.nan), "nats", ""),
    ],
)
def test_numbers_have_intervals_and_units(estimate, unit, expected):
    row, _ = shown(estimate, above=0, unit=unit, paper=2.5)
    assert list(row.index) == ["claim", "paper", THIS_MODEL, "verdict"]
    assert row[THIS_MODEL] == expected


def test_small_p_values_are_bounds():
    _, row = shown(Estimate(9, 8, 10), above=0)
    assert row["adjusted p"] == "< 0.001"
    _, row = shown(Estimate(1, 0, 2), above=0)
    assert row["adjusted p"] == "0.050"


@pytest.mark.parametrize(("paper", "expected"), [(0.5, UNSEEN), (4, "inconclusive")])
def test_an_inconclusive_verdict_says_whether_the_test_had_power(paper, expected):
    row, details = shown(Estimate(1, -1, 2), above=0, paper=paper)
    assert row["verdict"] == expected
    power = float(details["power at the paper's number"])
    assert power < 0.2 if paper == 0.5 else power > 0.9


def test_the_source_of_a_threshold_is_shown():
    _, details = shown(Estimate(9, 8, 10), above=7, threshold_source="paper")
    assert (details["threshold"], details["whose"]) == ("7", "paper")
    assert details["the verdict turns at"] == "8"


def test_details_have_no_powers_of_ten():
    _, row = shown(Estimate(0.0003, 8e-06, 0.25), above=0)
    assert row["unadjusted interval from"] == "0.000"
    assert row["to"] == "0.25"
    assert row["threshold"] == "0"


def test_the_controls_stand_next_to_the_cause():
    family = Family("a paper")
    family.claim("3", "A", how_measured="", above=0, about_training=True)(
        lambda tables: tables["number"]
    )
    tables = {"number": Estimate(9, 8, 10), "random_number": Estimate(1, 0.5, 1.5)}
    tables["entropy_matched_number"] = Estimate(8.9, 8, 10)
    claims = check_claims(tables, family.claims)
    verdict = "supported, unclear whether due to training (random weights: 1, entropy-matched 8.9)"
    assert summarise_claims(claims)["verdict"].tolist() == [verdict]
