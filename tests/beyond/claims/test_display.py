"""How claims are shown: four columns, counts, p-values, and verdicts without power."""

import numpy as np
import pytest

from beyond.claims.claim import Claim
from beyond.claims.display import THIS_MODEL, UNSEEN, claim_details, summarise_claims
from beyond.claims.engine import SHUFFLED_PASSES, check_claims
from beyond.claims.tables import NotMeasurable
from helpers.metrics.statistics import Estimate, exact


def declare(measure, unit="share", **fields):
    """Declare a claim with a measure."""
    return Claim(
        id="a",
        family="a paper",
        section="3",
        statement="A",
        measure=measure,
        how_measured="how",
        unit=unit,
        **fields,
    )


def shown(estimate, **fields):
    """Show a claim whose measure is an estimate."""
    claims = check_claims({}, [declare(lambda tables: estimate, **fields)])
    return summarise_claims(claims).iloc[0], claim_details(claims).iloc[0]


@pytest.mark.parametrize(
    ("estimate", "unit", "expected"),
    [
        (
            Estimate(7.3265, 5.6309, 9.1449),
            "percentage points",
            "7.33 percentage points [5.63 to 9.14]",
        ),
        (Estimate(0.5, 0.25, 0.75), "share", "0.5 [0.25 to 0.75]"),
        (Estimate(2, 1.5, 2.5), "ratio", "2 times [1.5 to 2.5]"),
        (exact(70 / 72, 72), "share of heads", "70 of 72 heads"),
        (Estimate(0.25, 0.125, 0.5, cases=8), "share of heads", "2 of 8 heads [1 to 4]"),
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
    assert row["adjusted p"] == "< 0.0001"
    _, row = shown(Estimate(1, 0, 2), above=0)
    assert row["adjusted p"] == "0.0500"


@pytest.mark.parametrize(
    ("paper", "expected"),
    [
        (0.5, "not measured: could not have been seen here"),
        (1.2, UNSEEN),
        (4, "inconclusive"),
    ],
)
def test_a_verdict_says_whether_the_test_had_power(paper, expected):
    row, details = shown(Estimate(1, -1, 2), above=0, paper=paper)
    assert row["verdict"] == expected
    assert row[THIS_MODEL].startswith("1 ")  # the number is shown in any case
    power = float(details["power at the paper's number"])
    assert {0.5: power < 0.2, 1.2: 0.2 < power < 0.5, 4: power > 0.9}[paper]


def test_the_source_of_a_threshold_is_shown():
    _, details = shown(Estimate(9, 8, 10), above=7, threshold_source="paper")
    assert (details["threshold"], details["whose"]) == ("7", "paper")
    assert details["the verdict turns at"] == "8"


def test_details_have_no_powers_of_ten():
    _, row = shown(Estimate(0.0003, 8e-06, 0.25), above=0)
    assert row["interval adjusted for the number of claims, from"] == "0.000"
    assert row["to"] == "0.25"
    assert row["threshold"] == "0"


def test_the_controls_stand_next_to_the_cause():
    claim = declare(lambda tables: tables["number"], above=0, about_training=True)
    tables = {"number": Estimate(9, 8, 10), "random_number": Estimate(1, 0.5, 1.5)}
    tables["entropy_matched_number"] = Estimate(8.9, 8, 10)
    claims = check_claims(tables, [claim])
    verdict = "supported, unclear whether due to training (random weights: 1, entropy-matched 8.9)"
    assert summarise_claims(claims)["verdict"].tolist() == [verdict]


def test_a_claim_that_is_not_measured_has_its_reason():
    def measure(tables):
        raise NotMeasurable("cannot occur under a causal mask")

    claims = check_claims({}, [declare(measure, above=0)])
    row = summarise_claims(claims).iloc[0]
    assert row["verdict"] == "not measured: cannot occur under a causal mask"


def test_a_claim_that_shuffled_sentences_pass_says_so():
    def measure(tables):
        return tables["number"]

    tables = {"number": Estimate(5, 4, 6), "shuffled_number": Estimate(9, 8, 10)}
    tables["random_number"] = Estimate(1, 0, 2)
    claims = check_claims(tables, [declare(measure, above=2, about_training=True)])
    assert summarise_claims(claims)["verdict"].tolist() == [f"supported: {SHUFFLED_PASSES}"]
