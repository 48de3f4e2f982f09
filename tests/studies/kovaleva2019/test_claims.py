"""The claims of Kovaleva et al., measured on made-up tables."""

import numpy as np
import pandas as pd
import pytest

from helpers.claims.engine import check_claims
from helpers.claims.tables import NotMeasurable
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import Estimate, exact, mean_interval, wilson_proportion
from helpers.studies.kovaleva2019 import claims
from helpers.studies.kovaleva2019.fine_tuning import TOKEN_TYPES
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN, published_values

TASKS = ("a", "b")
LAYERS = 6
HEADS = 4


def made_up_tables():
    """Make the tables of a run with two learned tasks, whose measures are `EXPECTED`."""
    return {
        "pattern_shares": pattern_shares(),
        "fine_tuning": accuracies(),
        "semantic_links": semantic_links(),
        "finetuning_similarity": similarities(),
        "token_features": token_features(),
        "disabling": disabling(),
    }


def pattern_shares():
    rows = []
    for task in TASKS:
        for weights in ("pretrained", "fine-tuned"):
            for pattern, share in (("vertical", 0.3), (SPECIAL_COLUMN, 0.6), (ANY_COLUMN, 0.5)):
                rows.append((task, weights, pattern, share + 0.1 * (task == "b")))
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
    return table.assign(accuracy_low=accuracy - 2, accuracy_high=accuracy + 1, learned=True)


def semantic_links():
    """Make a table in which two heads are significant."""
    table = head_rows(LAYERS, HEADS).assign(p_holm=0.05)
    table.loc[[3, 7], "p_holm"] = 0.04
    return table


def similarities():
    """Make maps less similar from layer to layer, except layer 3 in task b."""
    heads = head_rows(LAYERS, HEADS)
    falling = heads.assign(similarity=1 - heads["layer"] / 20)
    low_in_layer_3 = falling.copy()
    low_in_layer_3.loc[heads["layer"] == 3, "similarity"] = 0.72
    return pd.concat([falling.assign(task="a"), low_in_layer_3.assign(task="b")])


def token_features():
    """Make a row per head of both fine-tuned models, and one for uniform attention."""
    columns = [*TOKEN_TYPES, *(f"from_cls_{name}" for name in TOKEN_TYPES)]
    table = pd.DataFrame(0.1, index=range(2 * HEADS + 1), columns=columns)
    table["task"] = [*np.repeat(TASKS, HEADS), "none"]
    table["weights"] = ["fine-tuned"] * 2 * HEADS + ["uniform"]
    is_a = table["task"] == "a"
    is_b = table["task"] == "b"
    table.loc[is_a | is_b, "cls"] = 0.3
    table.loc[is_a | is_b, "sep"] = 0.4
    table.loc[is_a, "noun"] = 0.2
    table.loc[is_b, "noun"] = [0.24, 0.26, 0.24, 0.26]
    table.loc[is_a, "from_cls_sep"] = 0.5
    table.loc[is_b, "from_cls_verb"] = [0.5, 0.7, 0.5, 0.7]
    first_head_of_b = table.index[is_b][0]
    table.loc[first_head_of_b, "from_cls_sep"] = np.nan
    return table


def disabling():
    """Make a significant gain for one head of each task, and for one layer."""
    heads = head_rows(LAYERS, HEADS)
    heads = heads.assign(change=-0.1, p_value=0.9, removable=heads["layer"] > 1)
    heads.loc[5, ["change", "p_value"]] = (3.0, 0.05 / 25)  # significant among 24 heads
    heads.loc[6, ["change", "p_value"]] = (3.0, 0.05 / 23)  # not significant
    layers = head_rows(LAYERS, 1).assign(head=0, change=2.5, p_value=0.9, removable=True)
    layers.loc[layers["layer"] == 3, "p_value"] = 0.05 / 13  # significant among 12 layers
    table = pd.concat([heads, layers])
    return pd.concat([table.assign(task=task) for task in TASKS])


EXPECTED = {  # measure -> its estimate
    claims.smallest_share_of_columns: Estimate(0.5, 0.48, 0.53),
    claims.smallest_share_of_special_columns: Estimate(0.6, 0.58, 0.63),
    claims.count_linked_heads: exact(2),
    claims.share_of_linked_heads: wilson_proportion(2, 24),
    claims.last_layers_change_most: exact(-0.02),
    claims.gain_of_pretraining: Estimate(15, 12, 18),
    claims.special_over_words: mean_interval([1.1, 0.9, 1.1, 0.9]),
    claims.sep_from_cls: mean_interval([-6, -4, -6]),
    claims.count_heads_with_gain: exact(2),
    claims.share_of_removable_heads: wilson_proportion(20, 24),
    claims.largest_gain_without_layer: Estimate(2.5),
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


def test_every_measure_has_an_expected_value():
    assert [claim.measure for claim in claims.CLAIMS] == list(EXPECTED)


@pytest.mark.parametrize("extend", [dict, with_unlearned_task])
@pytest.mark.parametrize("measure", EXPECTED)
def test_measure_uses_only_the_tasks_that_are_learned(measure, extend):
    estimate = measure(extend(made_up_tables())).columns("value")
    assert estimate == pytest.approx(EXPECTED[measure].columns("value"), nan_ok=True)


def test_paper_values_are_those_that_the_notebook_shows():
    in_notebook = published_values()
    in_claims = {claim.paper for claim in claims.CLAIMS}
    for name in ("heads with frame-semantic links", "largest gain without a layer"):
        assert in_notebook[name] in in_claims


def test_claims_of_tasks_that_are_not_learned_are_not_measured():
    tables = made_up_tables()
    learned = check_claims(tables, claims.CLAIMS)
    assert (learned["verdict"] == "supported").sum() == 8
    tables["fine_tuning"]["learned"] = False
    not_learned = check_claims(tables, claims.CLAIMS)
    measured = not_learned[not_learned["verdict"] != "not measured"]
    assert set(measured["section"]) == {"Kovaleva et al. 4.2"}


@pytest.mark.parametrize(("layers", "last"), [(2, 1), (6, 1), (12, 2), (24, 4)])
def test_last_layers_change_most_compares_the_last_sixth(layers, last):
    table = head_rows(layers, 2).assign(task="a", similarity=[0.9, 1.0] * layers)
    table.loc[table["layer"] > layers - last, "similarity"] -= 0.5
    learned = pd.DataFrame({"task": ["a"], "start": ["pretrained"], "learned": [True]})
    tables = {"finetuning_similarity": table, "fine_tuning": learned}
    estimate = claims.last_layers_change_most(tables)
    assert estimate.value == pytest.approx(-0.5)
    assert estimate.low < -0.5 < estimate.high
    table.loc[table["layer"] == layers - last, "similarity"] = (0.4, 0.3)  # the layer before them
    assert claims.last_layers_change_most(tables).value == pytest.approx(0.1)


def test_gain_without_a_layer_of_one_training_run_supports_nothing():
    checked = check_claims(made_up_tables(), claims.CLAIMS).set_index("claim")
    row = checked.loc["In some task, a whole layer can be disabled with a gain"]
    assert row["value"] == 2.5
    assert row["verdict"] == "inconclusive"


def test_last_layers_change_most_of_one_layer_is_not_measurable():
    tables = made_up_tables()
    tables["finetuning_similarity"] = tables["finetuning_similarity"].query("layer == 1")
    with pytest.raises(NotMeasurable):
        claims.last_layers_change_most(tables)


def test_gain_of_pretraining_without_random_weights_is_not_measurable():
    tables = made_up_tables()
    tables["fine_tuning"] = tables["fine_tuning"].query("start == 'pretrained'")
    with pytest.raises(NotMeasurable):
        claims.gain_of_pretraining(tables)


def test_special_over_words_without_special_tokens_is_not_measurable():
    tables = made_up_tables()
    tables["token_features"]["cls"] = np.nan
    with pytest.raises(NotMeasurable):
        claims.special_over_words(tables)
