"""How claims are declared and tested, on measures by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from beyond.claims.claim import Claim
from beyond.claims.engine import (
    EXPLORATORY,
    INCONCLUSIVE,
    NOT_MEASURED,
    NOT_SUPPORTED,
    SHUFFLED_PASSES,
    SUPPORTED,
    UNDEFINED,
    UNSEEN,
    check_claims,
)
from beyond.claims.section3 import over_layers
from beyond.claims.tables import NotMeasurable
from helpers.metrics.statistics import Estimate, exact, p_value


def declare(measure, claim_id="a", family="a paper", **fields):
    """Declare a claim with a measure."""
    return Claim(
        id=claim_id,
        family=family,
        section="3",
        statement="A",
        measure=measure,
        how_measured="how",
        unit="share",
        **fields,
    )


def declare_estimates(estimates, family="a paper"):
    """Declare a claim for each estimate: that it is above zero."""
    claims = []
    for number, estimate in enumerate(estimates):
        claim_id = f"{family}-{number}"
        claims.append(declare(lambda tables, it=estimate: it, claim_id, family, above=0))
    return claims


def number(tables):
    """Measure the table "number", which stands for an estimate."""
    if "number" not in tables:
        raise NotMeasurable("number")
    return tables["number"]


def check_one(measured, about_training=True, controls=(), **threshold):
    """Check a claim whose measure is the table "number" of the run and of each control."""
    claim = declare(number, about_training=about_training, **threshold)
    return check_claims({"number": measured, **dict(controls)}, [claim]).iloc[0]


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (Estimate(3, 2, 4), SUPPORTED, NOT_SUPPORTED),
        (Estimate(0.2, 0, 0.5), NOT_SUPPORTED, SUPPORTED),
        (Estimate(1, 0, 2), INCONCLUSIVE, INCONCLUSIVE),
        (Estimate(3), INCONCLUSIVE, INCONCLUSIVE),  # trained once: no interval
        (Estimate(3, 3, 3), INCONCLUSIVE, INCONCLUSIVE),  # no width, but not exact
        (exact(0.9), NOT_SUPPORTED, SUPPORTED),
        (exact(1), NOT_SUPPORTED, NOT_SUPPORTED),
        (exact(1.1), SUPPORTED, NOT_SUPPORTED),
        (exact(np.nan), "not measured", "not measured"),
    ],
)
def test_check_claims_compares_with_the_threshold(measured, above, below):
    assert check_one(measured, above=1)["verdict"] == above
    assert check_one(measured, below=1)["verdict"] == below


@pytest.mark.parametrize("returned", [1.5, 3, np.float64(2), (1, 0, 2)])
def test_check_claims_refuses_a_number_that_is_no_estimate(returned):
    claim = declare(lambda tables: returned, above=0)
    with pytest.raises(TypeError, match=r"the measure of the claim a returned .*exact"):
        check_claims({}, [claim])


def test_check_claims_does_not_measure_a_claim_without_its_threshold():
    def threshold(tables):
        raise NotMeasurable("the run has no such table")

    row = check_one(Estimate(3, 2, 4), above=threshold)
    assert row["verdict"] == NOT_MEASURED
    assert np.isnan(row["value"])
    assert row["reason"] == "the run has no such table"


def test_check_claims_says_why_a_claim_is_not_measured():
    claim = declare(number, above=0)
    assert check_claims({}, [claim]).loc[0, "reason"] == "number"
    undefined = check_claims({"number": Estimate(np.nan)}, [claim])
    assert undefined.loc[0, ["verdict", "reason"]].tolist() == [NOT_MEASURED, UNDEFINED]
    assert check_claims({"number": Estimate(1)}, [claim]).loc[0, "reason"] == ""


def test_check_claims_without_claims_is_an_empty_table():
    assert len(check_claims({}, [])) == 0


SMALL = Estimate(1, 0, 2)
LARGE = Estimate(9, 8, 10)
SIMILAR = Estimate(4.9, 4, 5.8)


@pytest.mark.parametrize(
    ("random", "entropy_matched", "expected"),
    [(SMALL, SMALL, "yes"), (SMALL, SIMILAR, INCONCLUSIVE), (SMALL, LARGE, "no"),
     (SIMILAR, LARGE, "no"), (SMALL, None, "yes"), (None, SIMILAR, INCONCLUSIVE), (None, None, "")],
)  # fmt: skip
def test_check_claims_compares_with_every_control(random, entropy_matched, expected):
    controls = {}
    mirrored = {}
    for name, control in (("random_number", random), ("entropy_matched_number", entropy_matched)):
        if control is not None:
            controls[name] = control
            mirrored[name] = Estimate(-control.value, -control.low, -control.high)
    row = check_one(Estimate(5, 4, 6), controls=controls, above=2)
    assert row["verdict"] == "supported"
    assert row["due_to_training"] == expected
    for column, control in (("control", random), ("entropy_matched_control", entropy_matched)):
        value = control.value if control is not None else np.nan
        assert row[column] == pytest.approx(value, nan_ok=True)
    below = check_one(Estimate(-5, -4, -6), controls=mirrored, below=-2)
    assert below["due_to_training"] == expected


def test_check_claims_has_no_answer_where_a_claim_is_not_about_training():
    controls = {"random_number": SMALL}
    row = check_one(Estimate(5, 4, 6), controls=controls, about_training=False, above=2)
    assert row["due_to_training"] == ""


def test_p_values_are_adjusted_within_a_family():
    larger = Estimate(1.1, 0, 2)
    smaller = Estimate(1.3, 0.1, 2, df=20)
    first = declare_estimates([larger, smaller], "Kovaleva et al.")
    second = declare_estimates([larger], "Kobayashi et al.")  # the same letter is another family
    adjusted = check_claims({}, first + second)["p_adjusted"].to_list()
    p_larger = p_value(larger)
    p_smaller = p_value(smaller)
    assert adjusted == pytest.approx([max(p_larger, 2 * p_smaller), 2 * p_smaller, p_larger])


def test_p_values_are_not_adjusted_for_a_claim_without_interval():
    measured = Estimate(1.3, 0.1, 2)
    claims = declare_estimates([Estimate(3), measured])
    adjusted = check_claims({}, claims)["p_adjusted"].to_list()
    assert adjusted == pytest.approx([np.nan, p_value(measured)], nan_ok=True)


def test_adjusted_interval_and_p_agree_with_the_verdict():
    """The adjusted interval leaves the threshold out where p is below 5%, and only there."""
    rng = np.random.default_rng(0)
    estimates = []
    for value in rng.normal(0, 3, 40):
        estimates.append(Estimate(value, value - 1, value + 1.5, df=rng.integers(2, 50)))
    table = check_claims({}, declare_estimates(estimates))
    is_excluded = (table["adjusted_low"] > 0) | (table["adjusted_high"] < 0)
    is_decided = table["verdict"] != INCONCLUSIVE
    assert is_excluded.equals(is_decided)
    assert is_decided.equals(table["p_adjusted"] < 0.05)
    assert 0 < is_decided.sum() < 40
    assert (table["adjusted_low"] <= table["value_low"]).all()
    assert (np.sign(table["turns_at"]) == np.sign(table["value"]))[is_decided].all()


def test_an_exact_number_is_compared_without_a_test():
    row = check_one(exact(0.75, 8), above=0.5, about_training=False)
    assert (row["verdict"], row["turns_at"], row["cases"]) == ("supported", 0.75, 8)
    assert np.isnan([row["p_adjusted"], row["adjusted_low"]]).all()


def test_a_number_with_a_test_of_its_own_is_judged_by_it():
    decided = check_one(Estimate(0.8, own_p=0.001), about_training=False, above=0.5)
    assert (decided["verdict"], decided["p_adjusted"]) == (SUPPORTED, 0.001)
    undecided = check_one(Estimate(0.8, own_p=0.4), about_training=False, above=0.5)
    assert undecided["verdict"] == INCONCLUSIVE


def test_a_counted_p_value_is_shown_without_an_adjusted_interval():
    counted = Estimate(0.8, 0.4, 1.2, df=4, own_p=0.001)
    row = check_one(counted, about_training=False, above=0.5)
    assert np.isnan([row["adjusted_low"], row["adjusted_high"], row["turns_at"]]).all()


def test_the_adjusted_interval_of_a_share_stays_within_its_limits():
    shares = [Estimate(0.9, 0.7, 0.99, df=4)] * 20
    claims = []
    for number, share in enumerate(shares):
        claims.append(declare(lambda tables, it=share: it, f"a-{number}", above=0.1))
    outside = check_claims({}, claims)
    assert (outside["adjusted_high"] > 1).all()
    claims = [replace(claim, limits=(0.0, 1.0)) for claim in claims]
    within = check_claims({}, claims)
    assert (within["adjusted_high"] < 1).all() and (within["adjusted_low"] > 0).all()


def untested(paper=np.nan, **fields):
    """Check a decided claim and one with little power or an exploratory one, in one family."""
    measured = Estimate(5, 3, 7, df=17)
    first = declare(lambda tables: measured, "first", above=0)
    second = declare(lambda tables: measured, "second", above=0, paper=paper, **fields)
    return check_claims({"random_x": pd.DataFrame()}, [first, second]).set_index("id")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"paper": 0.1}, UNSEEN), ({"is_exploratory": True}, EXPLORATORY)],
)
def test_a_claim_that_could_not_be_seen_or_is_exploratory_is_shown_and_not_tested(fields, reason):
    table = untested(**fields)
    second = table.loc["second"]
    assert (second["verdict"], second["reason"]) == (NOT_MEASURED, reason)
    assert (second["value"], second["value_low"], second["due_to_training"]) == (5, 3, "")
    assert np.isnan(second["p_adjusted"])
    alone = p_value(Estimate(5, 3, 7, df=17))
    assert table.loc["first", "p_adjusted"] == alone  # the family has one test
    assert untested().loc["first", "p_adjusted"] == 2 * alone


def test_power_does_not_depend_on_the_numbers_found():
    """Only the widths of intervals count, so that power can decide what is tested."""
    power = []
    for shift in (0, 1, 9):
        first = declare(lambda tables, by=shift: Estimate(by, by - 1, by + 1, df=9), "a", above=0)
        second = declare(lambda tables: Estimate(2, 1, 3, df=9), "b", above=0, paper=1.5)
        table = check_claims({}, [first, second]).set_index("id")
        power.append(table.loc["b", "power_at_paper"])
    assert power[0] == power[1] == power[2]
    assert 0.2 < power[0] < 0.9


def test_a_claim_about_random_weights_shows_no_control():
    row = check_one(Estimate(5, 4, 6), controls={"random_number": SMALL}, about_training=False,
                    above=2, shows_controls=False)  # fmt: skip
    assert np.isnan(row["control"])


def test_due_to_training_is_never_yes_without_the_number_of_a_control():
    row = check_one(Estimate(5, 4, 6), controls={"random_number": Estimate(np.nan)}, above=2)
    assert (row["verdict"], row["due_to_training"]) == (SUPPORTED, "")


def test_due_to_training_is_empty_unless_a_claim_is_supported():
    row = check_one(Estimate(5, 4, 6), controls={"random_number": SMALL}, above=9)
    assert (row["verdict"], row["due_to_training"]) == (NOT_SUPPORTED, "")
    assert row["control"] == 1


def article_averages(values):
    """Make the averages by article of a model with one layer, as they are read from a file."""
    articles = [str(number) for number in range(len(values))]
    if len(values) == 40:
        articles[-1] = "Zeno"  # the others' names are digits, which pandas reads as numbers
    else:
        articles = np.arange(len(values))
    return pd.DataFrame({"article": articles, "layer": 1, "examples": 1, "cls": values})


def test_model_and_control_are_compared_article_by_article():
    """Compare with a bootstrap by hand; the control lacks one of the articles."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0, 5, 40)
    of_model = difficulty + rng.normal(1, 0.5, 40)
    of_control = difficulty[:-1]
    types = pd.DataFrame({"layer": [1], "head": [1], "cls": [of_model.mean()]})
    tables = {
        "averages_by_article": article_averages(of_model),
        "random_averages_by_article": article_averages(of_control),
        "token_types": types,
        "random_token_types": types.assign(cls=of_control.mean()),
    }
    claim = declare(
        lambda tables: over_layers(tables, lambda values: values.mean(), "cls"),
        above=-3,
        about_training=True,
    )
    row = check_claims(tables, [claim]).iloc[0]
    resamples = rng.integers(0, 40, (4000, 40))
    in_control = resamples < 39
    control_sums = (of_control[np.minimum(resamples, 38)] * in_control).sum(axis=1)
    differences = of_model[resamples].mean(axis=1) - control_sums / in_control.sum(axis=1)
    assert (differences > 0).mean() > 0.99
    assert row["due_to_training"] == "yes"
    assert row["value_low"] < 0 < row["value_high"]  # articles differ more than the two models


@pytest.mark.parametrize(
    ("measured", "random", "shuffled", "threshold", "expected"),
    [
        (5, 1, 9, {"above": 2}, ("", SHUFFLED_PASSES)),
        (5, 1, 1.9, {"above": 2}, ("yes", "")),
        (-5, -1, -9, {"below": -2}, ("", SHUFFLED_PASSES)),
        (-5, -1, -1.9, {"below": -2}, ("yes", "")),
        (0.9, 0, 0.666667, {"above": 2 / 3}, ("yes", "")),  # two thirds, as a table has them
        (1, 0, 9, {"above": 2}, ("", "")),  # not supported: nothing is asked
    ],
)
def test_check_claims_says_nothing_of_training_where_shuffled_sentences_pass(
    measured, random, shuffled, threshold, expected
):
    measured, random, shuffled = [
        Estimate(value, value - 0.1, value + 0.1) for value in (measured, random, shuffled)
    ]
    controls = {"random_number": random, "shuffled_number": shuffled}
    row = check_one(measured, controls=controls, **threshold)
    assert row["shuffled_control"] == shuffled.value
    assert (row["due_to_training"], row["reason"]) == expected


def test_check_claims_gives_no_reason_where_a_claim_is_not_about_training():
    controls = {"random_number": SMALL, "shuffled_number": LARGE}
    row = check_one(Estimate(5, 4, 6), controls=controls, about_training=False, above=2)
    assert (row["shuffled_control"], row["reason"]) == (LARGE.value, "")
