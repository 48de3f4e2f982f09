"""How claims are tested, on cells by hand."""

import numpy as np
import pandas as pd
import pytest

from beyond.claims.claim import Claim
from beyond.claims.engine import SHUFFLED_PASSES, UNSEEN, check_claims
from beyond.claims.estimates import TestedEstimate, exact, p_value
from beyond.claims.tables import NotMeasurable

SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE = ("supported", "not supported", "inconclusive")
SMALL = TestedEstimate(1, 0, 2, df=30)
LARGE = TestedEstimate(9, 8, 10, df=30)
SIMILAR = TestedEstimate(4.9, 4, 5.8, df=30)
MEASURED = TestedEstimate(5, 4, 6, df=30)


def declare(name="a", family="a paper", **fields):
    """Declare a claim on the row of a table that has its name."""
    fields = {"table": "numbers", "where": {"name": name}} | fields
    words = dict.fromkeys(("section", "statement", "how_measured", "unit"), "")
    return Claim(id=name, family=family, **words, **fields)


def numbers(**estimates):
    """Make the table of some numbers of models: ``a=...`` or ``random__a=...``."""
    rows = []
    for key, estimate in estimates.items():
        model, _, name = key.rpartition("__")
        columns = estimate.columns("value", df=not estimate.is_exact)
        columns["value_p"] = estimate.own_p
        rows.append({"model": model.replace("_", "-") or "trained", "name": name, **columns})
    return {"numbers": pd.DataFrame(rows)}


def check_one(estimates, **fields):
    """Check a claim about training on the numbers of the model and of controls."""
    claim = declare(**({"about_training": True} | fields))
    return check_claims(numbers(**estimates), [claim]).iloc[0]


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (TestedEstimate(3, 2, 4, df=30), SUPPORTED, NOT_SUPPORTED),
        (TestedEstimate(1, 0, 2, df=30), INCONCLUSIVE, INCONCLUSIVE),
        (TestedEstimate(3), INCONCLUSIVE, INCONCLUSIVE),  # trained once: no interval
        (TestedEstimate(3, 3, 3, df=30), INCONCLUSIVE, INCONCLUSIVE),  # no width, but not exact
        (TestedEstimate(0.8, 0, 2, df=30, own_p=0.001), NOT_SUPPORTED, SUPPORTED),  # counted
        (exact(0.9), NOT_SUPPORTED, SUPPORTED),
        (exact(1), NOT_SUPPORTED, NOT_SUPPORTED),
    ],
)
def test_check_claims_compares_with_the_threshold(measured, above, below):
    assert check_one({"a": measured}, above=1)["verdict"] == above
    assert check_one({"a": measured}, below=1)["verdict"] == below


def test_claims_without_a_number_have_no_row_and_those_of_no_meaning_have_a_reason():
    def measure(tables):
        raise NotMeasurable("no task is learned")

    claims = [
        declare(above=0, only_if="value > 9"),
        declare("b", above=0),
        declare("c", above=0, table="other"),
        declare("d", table="", measure=measure, above=0),
    ]
    table = check_claims(numbers(a=MEASURED, b=TestedEstimate(np.nan)), claims)
    assert table[["id", "verdict", "reason"]].to_numpy().tolist() == [
        ["a", "not measured", UNSEEN],
        ["d", "not measured", "no task is learned"],
    ]


@pytest.mark.parametrize(
    ("paper", "verdict"),
    [(2.1, SUPPORTED), (1.9, "not measured"), (np.nan, SUPPORTED), (-1, SUPPORTED)],
)
def test_a_claim_is_tested_only_if_the_papers_number_could_be_seen(paper, verdict):
    """The interval is 2 wide; a paper's number short of the threshold says nothing of power."""
    claims = [declare(above=0, paper=paper), declare("b", above=0)]
    table = check_claims(numbers(a=MEASURED, b=MEASURED), claims).set_index("id")
    assert (table.loc["a", "verdict"], table.loc["a", "value"]) == (verdict, 5)
    n_tests = 1 if verdict == "not measured" else 2
    assert table.loc["b", "p_adjusted"] == pytest.approx(n_tests * p_value(MEASURED))


def test_p_values_are_adjusted_within_a_family():
    smaller = TestedEstimate(1.3, 0.1, 2, df=20)
    claims = [declare(name, above=0) for name in ("a", "b")]
    claims += [declare("c", "another", above=0), declare("d", "another", above=0)]
    table = check_claims(numbers(a=SMALL, b=smaller, c=SMALL, d=TestedEstimate(3)), claims)
    p = p_value(SMALL)
    expected = [max(p, 2 * p_value(smaller)), 2 * p_value(smaller), p, np.nan]
    assert table["p_adjusted"].to_list() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("random", "entropy_matched", "expected"),
    [(SMALL, SMALL, "yes"), (SMALL, SIMILAR, INCONCLUSIVE), (SMALL, LARGE, "no"),
     (SIMILAR, LARGE, "no"), (SMALL, None, "yes"), (None, SIMILAR, INCONCLUSIVE), (None, None, "")],
)  # fmt: skip
def test_check_claims_compares_with_every_control(random, entropy_matched, expected):
    estimates = {"a": MEASURED, "random__a": random, "entropy_matched__a": entropy_matched}
    estimates = {name: estimate for name, estimate in estimates.items() if estimate}
    mirrored = {
        name: TestedEstimate(-it.value, -it.high, -it.low, 30) for name, it in estimates.items()
    }
    for row, answer in (
        (check_one(estimates, above=2), expected),
        (check_one(mirrored, below=-2), expected),
        (check_one(estimates, above=2, about_training=False), ""),
        (check_one(estimates, above=9), ""),
    ):
        assert row["larger_than_in_controls"] == answer


@pytest.mark.parametrize(
    ("shuffled", "expected"), [(LARGE, ("", SHUFFLED_PASSES)), (SMALL, ("yes", ""))]
)
def test_check_claims_says_nothing_of_training_where_shuffled_sentences_pass(shuffled, expected):
    row = check_one({"a": MEASURED, "random__a": SMALL, "shuffled__a": shuffled}, above=2)
    assert row["shuffled_control"] == shuffled.value
    assert (row["larger_than_in_controls"], row["reason"]) == expected
