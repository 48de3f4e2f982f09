"""The claims of Kovaleva et al., measured on made-up tables."""

import pandas as pd
import pytest
from scipy.stats import norm

from beyond.claims.engine import check_claims
from beyond.claims.estimates import TestedEstimate, difference, exact
from beyond.claims.tables import MissingCell
from beyond.papers.dark_secrets import claims
from beyond.papers.dark_secrets.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT
from helpers.metrics.heads import head_rows

MEASURES = {claim.id: claim.measure for claim in claims.CLAIMS}
TASKS = ("a", "b")
LAYERS = 6
HEADS = 4


def made_up_tables():
    """Make the tables of a run with two learned tasks, whose measures are `EXPECTED`."""
    return {
        "pattern_shares": pattern_shares(),
        "fine_tuning": accuracies(),
        "semantic_links": semantic_links(),
    }


def pattern_shares():
    rows = []
    for task in TASKS:
        for weights in ("pretrained", "fine-tuned"):
            for pattern, share in (("vertical", 0.3), (SPECIAL_COLUMN, 0.6), (ANY_COLUMN, 0.5)):
                rows.append((task, weights, pattern, share + 0.1 * (task == "b")))
    rows.append((TEXT, "pretrained", ANY_COLUMN, 0.2))
    table = pd.DataFrame(rows, columns=["task", "weights", "pattern", "share"])
    return table.assign(share_low=table["share"] - 0.02, share_high=table["share"] + 0.03)


def accuracies():
    rows = [
        ("a", "pretrained", 80.0),
        ("b", "pretrained", 70.0),
        ("a", "random", 60.0),
        ("b", "random", 55.0),
    ]
    table = pd.DataFrame(rows, columns=["task", "start", "accuracy"])
    accuracy = table["accuracy"]
    bounds = {"accuracy_low": accuracy - 2, "accuracy_high": accuracy + 1}
    return table.assign(**bounds, learned=True, test=2000)


def semantic_links():
    """Make a table in which two heads attend along links."""
    table = head_rows(LAYERS, HEADS).assign(difference=0.05)
    table.loc[3, "difference"] = 0.06
    table.loc[7, "difference"] = 0.2
    table["difference_low"] = table["difference"] - 0.01
    table["difference_high"] = table["difference"] + 0.01
    return table


def bonferroni(count):
    return norm.isf(0.025 / count) / norm.isf(0.025)


LEAD = difference(TestedEstimate(80, 78, 81), TestedEstimate(60, 58, 61))
EXPECTED = {
    "kovaleva-columns-in-tasks": exact(0.5),
    "kovaleva-columns-in-text": exact(0.2),
    "kovaleva-columns-are-special": exact(0.6),
    "kovaleva-links-some-head": TestedEstimate(0.2, 0.2 - 0.01 * bonferroni(24), 0.21),
    "kovaleva-links-few-heads": exact(2 / 24),
    "kovaleva-random-weights-nearly-as-well": LEAD,
}


def with_unlearned_task(tables):
    """Add a task that is not learned, with other numbers, to each table."""
    extended = {}
    for name, table in tables.items():
        if "task" in table:
            noise = table[table["task"] == "a"].assign(task="noise")
            numbers = noise.select_dtypes("number").columns.difference(["layer", "head"])
            noise[numbers] = 1.0
            table = pd.concat([table, noise])
        extended[name] = table
    accuracy = extended["fine_tuning"]
    accuracy["learned"] = accuracy["task"] != "noise"
    return extended


@pytest.mark.parametrize("extend", [dict, with_unlearned_task])
@pytest.mark.parametrize(("claim_id", "expected"), EXPECTED.items())
def test_measure_uses_only_the_tasks_that_are_learned(claim_id, expected, extend):
    estimate = MEASURES[claim_id](extend(made_up_tables())).columns("value")
    assert estimate == pytest.approx(expected.columns("value"), nan_ok=True)


def test_claims_of_tasks_that_are_not_learned_are_not_measured():
    tables = made_up_tables()
    tables["fine_tuning"]["learned"] = False
    checked = check_claims(tables, claims.CLAIMS).set_index("id")
    is_measured = checked["verdict"] != "not measured"
    assert set(checked.index[is_measured]) == {
        "kovaleva-columns-in-text", "kovaleva-links-some-head", "kovaleva-links-few-heads",
    }  # fmt: skip
    reasons = checked.loc[~is_measured, "reason"]
    assert set(reasons) == {"no task is learned beyond what its words give away"}


def test_gain_of_pretraining_without_random_weights_is_not_measurable():
    tables = made_up_tables()
    tables["fine_tuning"] = tables["fine_tuning"].query("start == 'pretrained'")
    with pytest.raises(MissingCell):
        claims.gain_of_pretraining(tables)
