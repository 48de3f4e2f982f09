"""Claims on tables made up so that they hold, then so that some do not."""

import pandas as pd
import pytest

from helpers.analysis.paper import check_claims
from helpers.studies.sixteen_heads.claims import pruning_claims
from helpers.studies.sixteen_heads.summaries import (
    ALL_HEADS,
    HALVES,
    OTHER_CORPUS,
    WITHOUT_OUTLIERS,
)

SHARES = range(0, 101, 10)


def pruning(single, random, lost=-30):
    """By how much importance is ahead, in two tasks; heads mean nothing for a third one."""
    columns = ["task", "order", "draw", "pruned", "lead", "change", "p_value"]
    rows = [("other", order, 0, 100, -9, -1, 0.5) for order in ("single ablation", "random")]
    for task, more in (("a task", 0), ("a second", 0.2)):
        rows.append((task, "single ablation", 0, 100, single + more, lost, 0.01))
        rows.append((task, "random", 0, 60, random + more, -9, 0.01))
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(lead_low=table["lead"] - 0.5, lead_high=table["lead"] + 0.5)


def translation(cross):
    slopes = {"encoder": 0.2, "decoder": 0.3, "cross": cross}
    rows = [(kind, 1 - s / 100, 80 - s * slope) for kind, slope in slopes.items() for s in SHARES]
    return pd.DataFrame(rows, columns=["kind", "kept", "bleu"])


def of_task(**columns):
    """A table of the task, with a row of the other one at the end that would change the result."""
    table = pd.DataFrame({"task": "a task", **columns})
    return pd.concat([table, table.iloc[-1:].assign(task="other")], ignore_index=True)


def across(correlation, low):
    """Correlations of two tasks over halves, of all heads and of the rest; of another corpus."""
    rows = [
        (task, where, heads, correlation + more, low + more)
        for where, more in ((HALVES, 0), (OTHER_CORPUS, 0.1))
        for heads in (ALL_HEADS, WITHOUT_OUTLIERS)
        for task in ("a task", "a second")
    ]
    table = pd.DataFrame(rows, columns=["task", "set", "heads", "correlation", "correlation_low"])
    table.loc[table["task"] == "a second", "correlation"] += 0.05
    table["correlation_high"] = 2 * table["correlation"] - table["correlation_low"]
    for name in ("correlation", "correlation_low", "correlation_high"):
        table[f"rank_{name}"] = table[name] / 2
    return table


def seeds(fifth, two_fifths):
    """What is lost in two tasks, and in one that does not count."""
    rows = [
        (task, share, change + more, change + more - 0.5, change + more + 0.5)
        for task, more in (("a task", 0), ("a second", 0.7), ("other", -40))
        for share, change in ((20, fifth), (40, two_fifths))
    ]
    return pd.DataFrame(rows, columns=["task", "pruned", "change", "ci_low", "ci_high"])


GOOD = {
    "ablation": of_task(removable=[True] * 17 + [False] * 3),
    "seed_intervals": seeds(-0.5, -1.2),
    "one_head": of_task(removable=[True] * 9 + [False]),
    "cross_data": across(0.6, 0.3),
    "pruning": pruning(2, 15),
    "translation_pruning": translation(0.7),
}
EXPECTED = {  # what these tables measure, by hand: the worst task's
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
    "cross-attention": -32,
}


def test_every_claim_measures_what_it_says():
    found = check_claims(GOOD, pruning_claims())
    assert found["here"].tolist() == pytest.approx(list(EXPECTED.values()))
    assert (found["holds"] == "yes").all()
    assert found["paper_value"].dropna().tolist() == pytest.approx([88 / 96, 0.68])
    control = {f"control_{name}": GOOD[name].copy() for name in ("cross_data", "pruning")}
    control["control_cross_data"][["correlation", "correlation_low", "correlation_high"]] -= 0.6
    table = check_claims(GOOD | control, pruning_claims())
    assert table["control"].iloc[2:6].tolist() == pytest.approx([0, 0, 0.3, 0.1])
    assert table["learned"].iloc[[1, 2, 4, 6]].tolist() == ["", "yes", "cannot be told", ""]


def test_what_does_not_hold_is_said_and_without_its_table_a_claim_is_not_measured():
    bad = {
        "pruning": pruning(-1, -30),
        "cross_data": across(-0.8, -0.9).query("heads == 'all'"),
        "seed_intervals": seeds(-3.4, -9),
    }
    found = check_claims(bad, pruning_claims())
    measured = found[found["holds"] != "not measured"]
    assert (measured["holds"] == "no").all()
    assert measured["here"].tolist() == pytest.approx([-0.8, -0.4, -0.7, -3.4, -9, -1, -30])
