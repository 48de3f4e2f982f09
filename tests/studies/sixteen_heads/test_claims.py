"""Claims on tables made up so that they hold, then so that some do not."""

import pandas as pd
import pytest

from helpers.analysis.paper import check_claims
from helpers.studies.sixteen_heads.claims import pruning_claims

SHARES = range(0, 101, 10)


def pruning(by_importance, single, random):
    """Accuracy at each tenth, of random orders at every other; a loss of two points is none.

    Heads mean nothing for the other task, which no claim may count.
    """
    curves = {"importance": by_importance, "single ablation": single, "random": random}
    columns = ["task", "order", "pruned", "accuracy", "change", "p_value"]
    rows = [("other", order, share, 50, 1, 0.5) for order in curves for share in SHARES]
    for task, more in (("a task", 0), ("a second", 0.2)):
        for order, curve in curves.items():
            for share in SHARES if order != "random" else SHARES[::2]:
                loss = curve(share)
                accuracy = 90 - loss + more * (order == "importance")
                rows.append((task, order, share, accuracy, -loss, 0.01 if loss > 2 else 0.6))
    return pd.DataFrame(rows, columns=columns).assign(draw=0)


def translation(cross):
    slopes = {"encoder": 0.2, "decoder": 0.3, "cross": cross}
    rows = [(kind, 1 - s / 100, 80 - s * slope) for kind, slope in slopes.items() for s in SHARES]
    return pd.DataFrame(rows, columns=["kind", "kept", "bleu"])


def of_task(**columns):
    """A table of the task, with a row of the other one at the end that would change the result."""
    table = pd.DataFrame({"task": "a task", **columns})
    return pd.concat([table, table.iloc[-1:].assign(task="other")], ignore_index=True)


def across(correlation, low):
    return pd.DataFrame(
        {"task": ["a task", "a second", "a task", "other"],
         "correlation": [correlation, 0.2, -1, -1], "ci_low": [low, 0.1, -1, -1], "ci_high": 0.8,
         "set": ["other articles", "other articles", "a treebank", "other articles"]}
    )  # fmt: skip


def seeds(removable, prunable):
    """Two tasks, of which the mean is taken, in three seeds; and one that does not count."""
    shifts = {"a task": 2, "a second": -4, "other": 90}
    rows = [
        (task, seed, removable + shift + seed, prunable + shift + seed)
        for task, shift in shifts.items() for seed in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "seed", "removable", "prunable"])


GOOD = {
    "pruning_seeds": seeds(75, 40),
    "one_head": of_task(removable=[True] * 9 + [False]),
    "cross_data": across(0.6, 0.1),
    "pruning": pruning(lambda s: (s > 40) * s, lambda s: (s > 20) * s, lambda s: s),
    "translation_pruning": translation(0.7),
}
EXPECTED = {  # what these tables measure, by hand
    "Most heads can be removed alone": 75,
    "Most layers can do with one head": 0.9,
    "Heads that matter on one data set matter on another": 0.4,
    "A fifth of the heads or more can be pruned by importance": 40,
    "Importance orders heads better than their ablation alone does": 10.1,
    "Importance orders heads better than chance does": 15.1,
    "Cross-attention needs its heads most": -32,
}


def test_every_claim_measures_what_it_says():
    found = check_claims(GOOD, pruning_claims()).set_index("claim")
    assert found["here"].to_dict() == pytest.approx(EXPECTED)
    assert (found["holds"] == "yes").all()
    assert found["paper_value"].dropna().tolist() == pytest.approx([100 * 88 / 96, 0.68, 40])


def test_what_does_not_hold_is_said_and_without_its_table_a_claim_is_not_measured():
    bad = {
        "pruning": pruning(lambda s: s, lambda s: (s > 20) * s, lambda s: s / 2),
        "cross_data": across(-0.8, -0.9).assign(ci_high=-0.1),
        "translation_pruning": translation(0.25),
    }
    found = check_claims(bad, pruning_claims()).set_index("claim")
    measured = found[found["holds"] != "not measured"]
    assert (measured["holds"] == "no").all()
    assert measured["here"].tolist() == pytest.approx([-0.3, -4.9, -24.9, 4])
