"""The claims of Michel et al., measured on made-up tables that support or contradict them."""

from pathlib import Path

import pandas as pd
import pytest

from helpers.metrics.paper import check_claims
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


EXPECTED = {  # id of the claim -> the value of `supporting`, in the worst of the tasks
    "removable alone": 17 / 20,
    "layers with one head": 0.9,
    "transfer": 0.6,
    "transfer of the rest": 0.6,
    "transfer of ranks": 0.3,
    "other corpus": 0.7,
    "prunable": -0.5,
    "prunable as there": -1.2,
    "over single ablation": 2,
    "over random order": 15,
}
CONTRADICTED = {  # id of the claim -> the value of `contradicting`
    "transfer": -0.8,
    "transfer of ranks": -0.4,
    "other corpus": -0.7,
    "prunable": -3.4,
    "prunable as there": -9,
    "over single ablation": -1,
    "over random order": -30,
}


def value(measure, tables):
    """Measure a claim; the value without its interval."""
    measured = measure(tables)
    return getattr(measured, "value", measured)


def statement_of(claim_id):
    """Find the statement of a claim, which identifies its row."""
    table = pd.read_csv(Path(claims.__file__).with_name("claims.csv"))
    return table.set_index("id").loc[claim_id, "statement"]


def test_every_measure_has_an_expected_value():
    assert set(claims.MEASURES) == set(EXPECTED)


@pytest.mark.parametrize("claim", EXPECTED)
def test_measure_is_the_worst_of_the_tasks_that_count(supporting, claim):
    measured = value(claims.MEASURES[claim], supporting)
    assert measured == pytest.approx(EXPECTED[claim])


def test_supporting_tables_support_every_claim(supporting):
    checked = check_claims(supporting, claims.pruning_claims())
    assert (checked["verdict"] == "supported").all()
    assert checked["paper_value"].dropna().tolist() == pytest.approx([88 / 96, 0.68])


@pytest.mark.parametrize("claim", CONTRADICTED)
def test_contradicting_tables_contradict_a_claim(contradicting, claim):
    measured = value(claims.MEASURES[claim], contradicting)
    assert measured == pytest.approx(CONTRADICTED[claim])
    checked = check_claims(contradicting, claims.pruning_claims()).set_index("claim")
    assert checked.loc[statement_of(claim), "verdict"] == "not supported"


def test_claims_without_their_tables_are_not_measured(contradicting):
    checked = check_claims(contradicting, claims.pruning_claims())
    measured = checked[checked["verdict"] != "not measured"]
    assert len(measured) == len(CONTRADICTED)


@pytest.mark.parametrize(
    ("claim", "control", "due_to_training"),
    [
        ("transfer", 0, "yes"),
        ("transfer of the rest", 0, "yes"),
        ("transfer of ranks", 0.3, "inconclusive"),
        ("other corpus", 0.1, None),
    ],
)
def test_claims_are_compared_with_the_control(supporting, claim, control, due_to_training):
    cross_data = supporting["cross_data"].copy()
    cross_data[["correlation", "correlation_low", "correlation_high"]] -= 0.6
    control_tables = {
        "random_cross_data": cross_data,
        "random_pruning": supporting["pruning"].copy(),
    }
    checked = check_claims({**supporting, **control_tables}, claims.pruning_claims())
    row = checked.set_index("claim").loc[statement_of(claim)]
    assert row["control"] == pytest.approx(control)
    if due_to_training is not None:
        assert row["due_to_training"] == due_to_training


@pytest.mark.parametrize("claim", ["layers with one head", "prunable"])
def test_claims_that_are_not_about_training_have_no_verdict_on_it(supporting, claim):
    control_tables = {
        "random_cross_data": supporting["cross_data"].copy(),
        "random_pruning": supporting["pruning"].copy(),
    }
    checked = check_claims({**supporting, **control_tables}, claims.pruning_claims())
    assert checked.set_index("claim").loc[statement_of(claim), "due_to_training"] == ""
