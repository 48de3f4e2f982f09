"""The claims of notebooks 07 to 09, on committed tables that are changed, and by hand."""

import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from scipy.stats import t as student

from beyond.claims.engine import check_claims
from beyond.papers.argument_cues import claims as niven
from beyond.papers.dark_secrets import claims as kovaleva
from beyond.papers.sixteen_heads import claims as michel
from helpers.results import read_tables

OF_TASKS = [*kovaleva.CLAIMS, *michel.CLAIMS]


@pytest.fixture(scope="module")
def tables():
    return read_tables(committed_figures() / "minilm-later")


@pytest.mark.parametrize("value", [-1e3, 1e3])
@pytest.mark.parametrize(
    ("is_learned", "claims"), [(False, OF_TASKS), (True, michel.CLAIMS)], ids=["noise", "no need"]
)
def test_tasks_that_are_not_learned_or_need_no_heads_count_for_no_claim(
    tables, value, is_learned, claims
):
    extended = dict(tables)
    for name, table in tables.items():
        if "task" in table:
            added = table[table["task"] == "bigram shift"].assign(task="added")
            numbers = added.select_dtypes("number").columns.difference(["layer", "head", "pruned"])
            added[numbers] = value
            columns = {"learned": is_learned, "p_value": 1.0}
            added = added.assign(**{key: columns[key] for key in columns if key in added})
            extended[name] = pd.concat([table, added])
    checked = check_claims(extended, claims)
    assert len(checked) == len(claims) and (checked["verdict"] != "not measured").all()
    pd.testing.assert_frame_equal(checked, check_claims(tables, claims))


def test_claims_of_tasks_are_not_measured_if_none_is_learned(tables):
    unlearned = tables["fine_tuning"].assign(learned=False)
    checked = check_claims(tables | {"fine_tuning": unlearned}, OF_TASKS).set_index("id")
    measured = checked.index[checked["verdict"] != "not measured"]
    ending = ("-columns-in-text", "-links-some-head", "-links-few-heads")
    assert len(measured) == 3 and all(name.endswith(ending) for name in measured)


@pytest.mark.parametrize(
    ("removable", "high", "expected"),
    [(3, 0.0, (0.3, 0.3, 1.0)), (3, -3.0, (0.3, 0.3, 0.3)), (6, 0.0, (0.6, 0.6, 0.6))],
)
def test_layers_that_are_not_shown_to_lose_leave_the_claim_open(tables, removable, high, expected):
    one_head = pd.DataFrame({"task": "bigram shift", "removable": np.arange(10) < removable})
    changed = tables | {"one_head": one_head.assign(change_high=high)}
    estimate = michel.share_of_layers_with_one_head(changed)
    assert (estimate.low, estimate.value, estimate.high) == expected
    assert estimate.is_exact == (expected[2] < 1)


def with_bounds(rows, column, **columns_of_rows):
    """Make a table with intervals that have half-widths of 0.5."""
    columns = {column: rows, f"{column}_low": rows - 0.5, f"{column}_high": rows + 0.5}
    return pd.DataFrame(columns | columns_of_rows)


def test_changes_have_the_spread_of_examples_and_of_seeds_and_leads_that_of_a_choice(tables):
    tasks = {"task": "bigram shift", "pruned": 20, "examples": 800}
    seeds = with_bounds(np.array([-0.4, -0.3, -0.2]), "change", **tasks)
    without_heads = tables["pruning"].query("task == 'bigram shift' and pruned == 100")
    run = {"fine_tuning": tables["fine_tuning"], "pruning_seeds": seeds, "pruning": without_heads}
    change = michel.smallest_change(run, pruned=20)
    over_seeds = student.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (change.value, change.low) == pytest.approx((-0.3, -0.3 - np.hypot(over_seeds, 0.5)))
    assert 2 < change.df < 799
    leads = [michel.lead_over_random_order(tables), michel.lead_over_mean_random_order(tables)]
    one_more, mean = (lead.value - lead.low for lead in leads)
    assert one_more == pytest.approx(11**0.5 * mean)


def tables_of_means(*means, spread=0.1):
    """Make both tables of accuracies, with half-widths of 0.5, and with five seeds."""
    columns = ["classifier", "inputs", "test", "mean"]
    table = pd.DataFrame(means, columns=columns).assign(train="original", arguments=444)
    table = table.assign(mean_low=table["mean"] - 0.5, mean_high=table["mean"] + 0.5)
    by_seed = [table.assign(accuracy=table["mean"] + spread * (seed - 2)) for seed in range(5)]
    return {"partial_inputs": table, "partial_input_seeds": pd.concat(by_seed)}


@pytest.mark.parametrize(("spread", "verdict"), [(1.5, "inconclusive"), (0.1, "supported")])
def test_a_difference_of_means_combines_the_spreads_of_both(spread, verdict):
    """Student's t of five seeds at distances of one: 2.776 * sqrt(2.5 / 5)."""
    means = [
        ("encoder", "warrants", "original", 60),
        ("bag of vectors", "warrants", "original", 57),
    ]
    checked = check_claims(tables_of_means(*means, spread=spread), niven.CLAIMS).set_index("id")
    claim = checked.loc["niven-encoder-over-bag"]
    half_width = np.sqrt(2 * (0.25 + (2.77645 * spread) ** 2 * 0.5))
    assert claim["value_high"] - claim["value"] == pytest.approx(half_width, abs=1e-4)
    assert (claim["value"], claim["verdict"]) == (3, verdict)


@pytest.mark.parametrize(
    ("mean", "value", "verdict"),
    [(49.6, 0.4, "supported"), (51.5, 1.5, "inconclusive"), (44, 6, "not supported")],
)
def test_at_chance_needs_the_interval_within_two_points(mean, value, verdict):
    checked = check_claims(tables_of_means(("encoder", "all", "both", mean)), niven.CLAIMS)
    claim = checked.set_index("id").loc["niven-both-at-chance"]
    assert (claim["value"], claim["verdict"]) == (pytest.approx(value), verdict)


def test_no_claim_is_measured_on_a_planted_cue():
    tables = read_tables(committed_figures() / "minilm-arct-later")
    assert len(check_claims(tables, niven.CLAIMS)) == len(niven.CLAIMS)
    planted = {name: table.assign(corpus="arguments-sample") for name, table in tables.items()}
    assert check_claims(planted, niven.CLAIMS).empty
