"""The claims of Michel et al., measured on made-up tables that support or contradict them."""

import pandas as pd
import pytest

from helpers.claims.engine import check_claims
from helpers.studies.michel2019 import claims
from helpers.studies.michel2019.summaries import (
    ALL_HEADS,
    HALVES,
    OTHER_CORPUS,
    WITHOUT_OUTLIERS,
)


def pruning(single, random):
    """Make the lead of importance over two orders in two tasks, and a task that needs no heads."""
    rows = [
        ("other", "single ablation", 0, 100, -9, -1, 0.5),
        ("other", "random", 0, 100, -9, -1, 0.5),
        ("a task", "single ablation", 0, 100, single, -30, 0.01),
        ("a task", "random", 0, 60, random, -9, 0.01),
        ("a second", "single ablation", 0, 100, single + 0.2, -30, 0.01),
        ("a second", "random", 0, 60, random + 0.2, -9, 0.01),
    ]
    columns = ["task", "order", "draw", "pruned", "lead", "change", "p_value"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(lead_low=table["lead"] - 0.5, lead_high=table["lead"] + 0.5)


def removable(yes, no):
    """Make rows of a task, and one row of a task that would change the result if it counted."""
    table = pd.DataFrame({"task": "a task", "removable": [True] * yes + [False] * no})
    return pd.concat([table, table.iloc[-1:].assign(task="other")], ignore_index=True)


def correlations(correlation, low, selections=(ALL_HEADS, WITHOUT_OUTLIERS)):
    """Make correlations of two tasks over halves of the articles, and over another corpus."""
    rows = []
    for test_sets, added in ((HALVES, 0), (OTHER_CORPUS, 0.1)):
        for heads in selections:
            rows.append(("a task", test_sets, heads, correlation + added, low + added))
            rows.append(("a second", test_sets, heads, correlation + added + 0.05, low + added))
    table = pd.DataFrame(rows, columns=["task", "set", "heads", "correlation", "correlation_low"])
    table["correlation_high"] = 2 * table["correlation"] - table["correlation_low"]
    for name in ("correlation", "correlation_low", "correlation_high"):
        table[f"rank_{name}"] = table[name] / 2
    return table


def seed_intervals(fifth, two_fifths):
    """Make the changes of two tasks, and of one that does not count."""
    rows = []
    for task, added in (("a task", 0), ("a second", 0.7), ("other", -40)):
        for pruned, change in ((20, fifth), (40, two_fifths)):
            mean = change + added
            rows.append((task, pruned, mean, mean - 0.5, mean + 0.5))
    return pd.DataFrame(rows, columns=["task", "pruned", "change", "change_low", "change_high"])


@pytest.fixture
def supporting():
    """Make tables that support every claim."""
    return {
        "ablation": removable(yes=17, no=3),
        "seed_intervals": seed_intervals(fifth=-0.5, two_fifths=-1.2),
        "one_head": removable(yes=9, no=1),
        "cross_data": correlations(0.6, low=0.3),
        "pruning": pruning(single=2, random=15),
    }


@pytest.fixture
def contradicting():
    """Make tables that contradict the claims that they measure."""
    return {
        "pruning": pruning(single=-1, random=-30),
        "cross_data": correlations(-0.8, low=-0.9, selections=[ALL_HEADS]),
        "seed_intervals": seed_intervals(fifth=-3.4, two_fifths=-9),
    }


EXPECTED = {  # measure -> the value of `supporting`, in the worst of the tasks
    claims.share_of_removable_heads: 17 / 20,
    claims.share_of_layers_with_one_head: 0.9,
    claims.correlation_of_halves: 0.6,
    claims.correlation_without_outliers: 0.6,
    claims.rank_correlation_of_halves: 0.3,
    claims.correlation_with_other_corpus: 0.7,
    claims.change_without_a_fifth: -0.5,
    claims.change_without_two_fifths: -1.2,
    claims.lead_over_single_ablation: 2,
    claims.lead_over_random_order: 15,
}
CONTRADICTED = {  # measure -> the value of `contradicting`
    claims.correlation_of_halves: -0.8,
    claims.rank_correlation_of_halves: -0.4,
    claims.correlation_with_other_corpus: -0.7,
    claims.change_without_a_fifth: -3.4,
    claims.change_without_two_fifths: -9,
    claims.lead_over_single_ablation: -1,
    claims.lead_over_random_order: -30,
}


def checked_claim(tables, measure):
    """Find the row of the claim that a function measures."""
    (statement,) = [claim.statement for claim in claims.CLAIMS if claim.measure is measure]
    return check_claims(tables, claims.CLAIMS).set_index("claim").loc[statement]


def test_every_measure_has_an_expected_value():
    assert [claim.measure for claim in claims.CLAIMS] == list(EXPECTED)


@pytest.mark.parametrize("measure", EXPECTED)
def test_measure_is_the_worst_of_the_tasks_that_count(supporting, measure):
    assert measure(supporting).value == pytest.approx(EXPECTED[measure])


def test_supporting_tables_support_every_claim(supporting):
    checked = check_claims(supporting, claims.CLAIMS)
    assert set(checked["verdict"]) == {"supported"}
    assert checked["paper_value"].dropna().tolist() == pytest.approx([88 / 96, 0.68])


@pytest.mark.parametrize("measure", CONTRADICTED)
def test_contradicting_tables_contradict_a_claim(contradicting, measure):
    assert measure(contradicting).value == pytest.approx(CONTRADICTED[measure])
    assert checked_claim(contradicting, measure)["verdict"] == "not supported"


def test_claims_without_their_tables_are_not_measured(contradicting):
    checked = check_claims(contradicting, claims.CLAIMS)
    measured = checked[checked["verdict"] != "not measured"]
    assert len(measured) == len(CONTRADICTED)


@pytest.mark.parametrize(
    ("measure", "control", "due_to_training"),
    [
        (claims.correlation_of_halves, 0, "yes"),
        (claims.correlation_without_outliers, 0, "yes"),
        (claims.rank_correlation_of_halves, 0.3, "inconclusive"),
        (claims.correlation_with_other_corpus, 0.1, None),
    ],
)
def test_claims_are_compared_with_the_control(supporting, measure, control, due_to_training):
    cross_data = supporting["cross_data"].copy()
    cross_data[["correlation", "correlation_low", "correlation_high"]] -= 0.6
    control_tables = {
        "random_cross_data": cross_data,
        "random_pruning": supporting["pruning"].copy(),
    }
    row = checked_claim({**supporting, **control_tables}, measure)
    assert row["control"] == pytest.approx(control)
    if due_to_training is not None:
        assert row["due_to_training"] == due_to_training


@pytest.mark.parametrize(
    "measure", [claims.share_of_layers_with_one_head, claims.change_without_a_fifth]
)
def test_claims_that_are_not_about_training_have_no_verdict_on_it(supporting, measure):
    control_tables = {
        "random_cross_data": supporting["cross_data"].copy(),
        "random_pruning": supporting["pruning"].copy(),
    }
    row = checked_claim({**supporting, **control_tables}, measure)
    assert row["due_to_training"] == ""
