"""The claims of Kovaleva et al., measured on tables whose numbers are known."""

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.heads import head_rows
from helpers.analysis.paper import NotMeasurable, check_claims, values_of
from helpers.analysis.statistics import mean_interval, share_of
from helpers.studies.dark_secrets import claims
from helpers.studies.dark_secrets.fine_tuning import TOKEN_TYPES
from helpers.studies.dark_secrets.patterns import ANY_COLUMN, SPECIAL_COLUMN

TASKS = ("a", "b")
LAYERS, HEADS = 6, 4


def one_run():
    """Return tables of two tasks that are learned, of the measures that `MEASURED` has."""
    heads = head_rows(LAYERS, HEADS)
    shares = pd.DataFrame(
        [
            (task, weights, pattern, share + 0.1 * (task == "b"))
            for task in TASKS
            for weights in ("pretrained", "fine-tuned")
            for pattern, share in (("vertical", 0.3), (SPECIAL_COLUMN, 0.6), (ANY_COLUMN, 0.5))
        ],
        columns=["task", "weights", "pattern", "share"],
    ).assign(ci_low=lambda own: own["share"] - 0.02, ci_high=lambda own: own["share"] + 0.03)
    starts = {"task": TASKS * 2, "start": np.repeat(["pretrained", "random"], 2)}
    accuracy = pd.DataFrame(starts | {"accuracy": [80.0, 70, 60, 55]}).assign(
        ci_low=lambda own: own["accuracy"] - 2, ci_high=lambda own: own["accuracy"] + 1
    )
    links = heads.assign(p_holm=0.05)
    links.loc[[3, 7], "p_holm"] = 0.04
    similarity = heads.assign(similarity=1 - heads["layer"] / 20)
    other = similarity.assign(similarity=similarity["similarity"].where(heads["layer"] != 3, 0.72))
    names = [rows + kind for rows in ("", "from_cls_") for kind in TOKEN_TYPES]
    features = pd.DataFrame(0.1, index=range(2 * HEADS + 1), columns=names)
    of_tasks = [(task, "fine-tuned") for task in np.repeat(TASKS, HEADS)]
    features[["task", "weights"]] = [*of_tasks, ("none", "uniform")]
    features.loc[:7, ["cls", "sep"]], features.loc[:3, "from_cls_sep"] = (0.3, 0.4), 0.5
    features.loc[:7, "noun"] = [0.2] * HEADS + [0.24, 0.26] * 2
    features.loc[4:7, "from_cls_verb"], features.loc[4, "from_cls_sep"] = [0.5, 0.7] * 2, np.nan
    disabled = heads.assign(change=-0.1, p_value=0.9, removable=heads["layer"] > 1)
    disabled.loc[5, ["change", "p_value"]] = 3.0, 0.05 / 25  # of 24 heads
    disabled.loc[6, ["change", "p_value"]] = 3.0, 0.05 / 23
    whole = disabled[::HEADS].assign(head=0, change=2.5, p_value=0.9, removable=True)
    whole.iloc[2, whole.columns.get_loc("p_value")] = 0.05 / 13  # of 12 layers, over the tasks
    disabled = pd.concat([disabled, whole])
    return {
        "pattern_shares": shares,
        "fine_tuning": accuracy.assign(learned=True),
        "semantic_links": links,
        "finetuning_similarity": pd.concat([similarity.assign(task="a"), other.assign(task="b")]),
        "token_features": features,
        "disabling": pd.concat([disabled.assign(task=task) for task in TASKS]),
    }  # fmt: skip


MEASURED = [  # the number of each claim, and the ends of its interval
    (0.5, 0.48, 0.53), (0.6, 0.58, 0.63), 2, share_of(2, 24), (-0.02, -0.02, -0.02), (15, 12, 18),
    mean_interval([1.1, 0.9] * 2), mean_interval([-6, -4, -6]), 2, share_of(20, 24), 2.5,
]  # fmt: skip


def with_noise(tables):
    """Return the tables with a task that is not learned, of which anything may be said."""
    found = {}
    for name, table in tables.items():
        if "task" in table:
            noise = table[table["task"] == "a"].assign(task="noise")
            numbers = noise.select_dtypes("number").columns.difference(["layer", "head"])
            table = pd.concat([table, noise.assign(**dict.fromkeys(numbers, 1.0))])
        found[name] = table
    found["fine_tuning"]["learned"] = found["fine_tuning"]["task"] != "noise"
    return found


@pytest.mark.parametrize("tables", [one_run(), with_noise(one_run())], ids=["all learned", "noise"])
def test_what_is_measured_of_the_tasks_that_are_learned(tables):
    for claim, expected in zip(claims.finetuning_claims(), MEASURED, strict=True):
        assert claim.measure(tables) == pytest.approx(expected), claim.statement


def test_the_papers_numbers_are_those_that_the_notebook_shows():
    shown = values_of("Kovaleva")
    found = {claim.paper for claim in claims.finetuning_claims()}
    names = "heads with frame-semantic links", "largest gain without a layer"
    assert {*map(shown.get, names)} <= found


def test_what_is_not_learned_is_not_measured():
    tables = one_run()
    assert (check_claims(tables, claims.finetuning_claims())["holds"] == "yes").sum() == 9
    tables["fine_tuning"]["learned"] = False
    table = check_claims(tables, claims.finetuning_claims())
    assert set(table.loc[table["holds"] != "not measured", "section"]) == {"Kovaleva et al. 4.2"}


@pytest.mark.parametrize(("layers", "last"), [(2, 1), (6, 1), (12, 2), (24, 4)])
def test_the_last_sixth_of_the_layers(layers, last):
    table = head_rows(layers, 2).assign(task="a", similarity=[0.9, 1.0] * layers)
    table.loc[table["layer"] > layers - last, "similarity"] -= 0.5
    learned = pd.DataFrame({"task": ["a"], "start": ["pretrained"], "learned": [True]})
    tables = {"finetuning_similarity": table, "fine_tuning": learned}
    found = claims.last_layers_change_most(tables)
    assert found.value == pytest.approx(-0.5) and found.low < -0.5 < found.high
    table.loc[table["layer"] == layers - last, "similarity"] = 0.4, 0.3  # the layer before them
    assert claims.last_layers_change_most(tables).value == pytest.approx(0.1)


def test_nothing_is_said_of_one_layer_or_without_random_weights_or_special_tokens():
    tables = one_run()
    tables["finetuning_similarity"] = tables["finetuning_similarity"].query("layer == 1")
    tables["fine_tuning"] = tables["fine_tuning"].query("start == 'pretrained'")
    tables["token_features"]["cls"] = np.nan
    for measure in "last_layers_change_most", "gain_of_pretraining", "special_over_words":
        with pytest.raises(NotMeasurable):
            getattr(claims, measure)(tables)
