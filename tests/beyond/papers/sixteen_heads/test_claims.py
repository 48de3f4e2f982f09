"""The claims of Michel et al., measured on made-up tables that support or contradict them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from beyond.claims.engine import check_claims
from beyond.papers.sixteen_heads import claims

MEASURES = {claim.id: claim.measure for claim in claims.CLAIMS}


def pruning(single, random):
    """Make leads of importance in two tasks, and one that needs no heads."""
    rows = [("other", "single ablation", 100, -9, -1, 0.5), ("other", "random", 100, -9, -1, 0.5)]
    for task, added in (("a task", 0), ("a second", 0.2)):
        rows += [
            (task, "single ablation", 100, single + added, -30, 0.01),
            (task, "random", 60, random + added, -9, 0.01),
            (task, "importance", 20, 0, -0.1, 0.5),
            (task, "importance", 40, 0, -0.2, 0.5),
        ]
    table = pd.DataFrame(rows, columns=["task", "order", "pruned", "lead", "change", "p_value"])
    table["examples"] = 800
    for column in ("lead", "change"):
        table[f"{column}_low"] = table[column] - 0.5
        table[f"{column}_high"] = table[column] + 0.5
    return table


def removable(yes, no):
    """Make rows of a task, and one row of a task that would change the result if it counted."""
    table = pd.DataFrame({"task": "a task", "removable": [True] * yes + [False] * no})
    table["change_high"] = 0.0
    return pd.concat([table, table.iloc[-1:].assign(task="other")], ignore_index=True)


def pruning_seeds(fifth, two_fifths):
    """Make the changes of one seed of a task, of three of a second, and of one that needs no heads.

    The mean of the second task is 0.2 above the change of the first.
    """
    rows = []
    for pruned, change in ((20, fifth), (40, two_fifths)):
        rows.append(("other", pruned, -30))
        rows.append(("a task", pruned, change))
        rows += [("a second", pruned, change + added) for added in (0.1, 0.2, 0.3)]
    table = pd.DataFrame(rows, columns=["task", "pruned", "change"]).assign(examples=800)
    return table.assign(change_low=table["change"] - 0.5, change_high=table["change"] + 0.5)


@pytest.fixture
def supporting():
    """Make tables that support every claim."""
    return {
        "ablation": removable(yes=17, no=3),
        "pruning_seeds": pruning_seeds(fifth=-0.5, two_fifths=-1.2),
        "one_head": removable(yes=19, no=1),
        "pruning": pruning(single=2, random=15),
    }


@pytest.fixture
def contradicting():
    """Make tables that contradict the claims that they measure."""
    return {
        "pruning": pruning(single=-1, random=-30),
        "pruning_seeds": pruning_seeds(fifth=-3.4, two_fifths=-9),
    }


EXPECTED = {  # the values of `supporting`, over all tasks or in the worst of them
    "michel-heads-removable": 17 / 20,
    "michel-one-head-enough": 0.95,
    "michel-prune-a-fifth": -0.5,
    "michel-prune-two-fifths": -1.2,
    "michel-importance-over-single-ablation": 2,
    "michel-importance-over-mean-random-order": 15,
    "michel-importance-over-random-order": 15,
}
CONTRADICTED = {  # the values of `contradicting`
    "michel-prune-a-fifth": -3.4,
    "michel-prune-two-fifths": -9,
    "michel-importance-over-single-ablation": -1,
    "michel-importance-over-mean-random-order": -30,
    "michel-importance-over-random-order": -30,
}


@pytest.mark.parametrize("claim_id", MEASURES)
def test_measure_is_the_worst_of_the_tasks_that_count(supporting, claim_id):
    measured = MEASURES[claim_id](supporting).value
    assert measured == pytest.approx(EXPECTED[claim_id])


def test_supporting_tables_support_every_claim(supporting):
    checked = check_claims(supporting, claims.CLAIMS)
    assert set(checked["verdict"]) == {"supported"}


@pytest.mark.parametrize("claim_id", CONTRADICTED)
def test_contradicting_tables_contradict_a_claim(contradicting, claim_id):
    checked = check_claims(contradicting, claims.CLAIMS).set_index("id").loc[claim_id]
    assert checked["value"] == pytest.approx(CONTRADICTED[claim_id])
    assert checked["verdict"] == "not supported"


def test_layers_that_are_not_shown_to_lose_leave_the_claim_open(supporting):
    supporting["one_head"] = removable(yes=3, no=7)
    estimate = claims.share_of_layers_with_one_head(supporting)
    assert (estimate.low, estimate.value, estimate.high) == (0.3, 0.3, 1)
    assert not estimate.is_exact
    checked = check_claims(supporting, claims.CLAIMS).set_index("id")
    assert checked.loc["michel-one-head-enough", "verdict"] == "inconclusive"
    supporting["one_head"]["change_high"] = -3.0
    assert claims.share_of_layers_with_one_head(supporting).is_exact


def test_change_with_several_seeds_has_the_spread_of_seeds_and_of_examples(supporting):
    by_seed = supporting["pruning_seeds"]
    supporting["pruning_seeds"] = by_seed[by_seed["task"] == "a second"]
    change = claims.smallest_change(supporting, pruned=20)
    assert change.value == pytest.approx(-0.3)
    over_seeds = student.ppf(0.975, 2) * 0.1 / 3**0.5
    assert change.low == pytest.approx(-0.3 - np.hypot(over_seeds, 0.5))
    assert 2 < change.df < 799


def test_change_of_a_task_with_one_seed_has_the_interval_over_examples(supporting):
    change = claims.smallest_change(supporting, pruned=20)
    assert (change.value, change.low) == pytest.approx((-0.5, -1))
    assert change.df == 799


def test_change_of_a_task_without_further_seeds_is_that_of_pruning(supporting):
    by_seed = supporting["pruning_seeds"]
    table = supporting["pruning"]
    is_task = (table["task"] == "a task") & (table["order"] == "importance")
    table.loc[is_task, ["change", "change_low", "change_high"]] = (-4.0, -5.0, -3.0)
    supporting["pruning_seeds"] = by_seed[by_seed["task"] == "a second"]
    assert claims.smallest_change(supporting, pruned=20).value == -4
    del supporting["pruning_seeds"]
    assert claims.smallest_change(supporting, pruned=40).value == -4


def test_mean_of_random_orders_has_the_narrower_interval(supporting):
    one_more = claims.lead_over_random_order(supporting)
    mean = claims.lead_over_mean_random_order(supporting)
    assert one_more.value - one_more.low == pytest.approx(11**0.5 * (mean.value - mean.low))
    assert one_more.df == mean.df == 9


def test_smallest_of_two_tasks_has_a_wider_upper_bound(supporting):
    lead = claims.lead_over_single_ablation(supporting)
    assert lead.value - lead.low == pytest.approx(0.5)
    assert lead.high - lead.value == pytest.approx(0.5 * 2.2414 / 1.96, abs=1e-4)
