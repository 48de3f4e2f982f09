"""The claims of Kovaleva et al.: each can hold, can fail, and can be out of reach."""

import copy

import numpy as np
import pandas as pd
import pytest

from helpers.analysis.claims import NotMeasurable, judge
from helpers.studies.dark_secrets.claims import finetuning_claims
from helpers.studies.dark_secrets.patterns import ANY_COLUMN

TASKS = ("a", "b", "c")
LAYERS, HEADS = 6, 4


def run_like_the_paper():
    layer, head = np.divmod(np.arange(LAYERS * HEADS), HEADS)
    heads = pd.DataFrame({"layer": layer + 1, "head": head + 1})
    patterns = [
        (task, weights, pattern, share, share - 0.02, share + 0.02)
        for task in TASKS
        for weights in ("pretrained", "fine-tuned")
        for pattern, share in (("vertical", 0.3), ("heterogeneous", 0.4), (ANY_COLUMN, 0.4))
    ]
    shares = ["task", "weights", "pattern", "share", "ci_low", "ci_high"]
    similarity = [
        heads.assign(task=task, similarity=1 - heads["layer"] / 20, similarity_random=1.0)
        for task in TASKS
    ]
    links = heads.assign(difference=0.01, p_holm=0.5)
    links.loc[3, ["difference", "p_holm"]] = 0.3, 0.01
    accuracy = [
        (task, start, value, value - 2, value + 2)
        for task in TASKS
        for start, value in (("pretrained", 80.0), ("random", 60.0))
    ]
    disabled = [
        heads.assign(task=task, change=-0.1, p_value=0.9, removable=True) for task in TASKS
    ] + [
        pd.DataFrame(
            {
                "task": task,
                "layer": range(1, 7),
                "head": 0,
                "change": -1.0,
                "p_value": 0.5,
                "removable": True,
            }
        )
        for task in TASKS
    ]
    disabled = pd.concat(disabled, ignore_index=True)
    best = (disabled["layer"] == 2) & (disabled["head"] == 2)
    disabled.loc[best, ["change", "p_value"]] = 3.0, 1e-6
    disabled.loc[disabled["task"].eq("b") & disabled["head"].gt(2), "change"] = 0.2
    without_layer = disabled["task"].eq("c") & disabled["head"].eq(0)
    disabled.loc[without_layer, ["change", "p_value"]] = 2.5, 0.05 / 20  # of 18 layers
    columns = ["task", "start", "accuracy", "ci_low", "ci_high"]
    kinds = dict.fromkeys(("noun", "verb", "pronoun", "subject", "object", "negation"), 0.1)
    kinds |= {f"from_cls_{name}": 0.1 for name in kinds}
    special = {"cls": 0.3, "sep": 0.4, "from_cls_cls": 0.2, "from_cls_sep": 0.5}
    features = pd.DataFrame(
        [{"task": task, "weights": "fine-tuned", **kinds, **special} for task in TASKS]
        + [{"task": "none", "weights": "uniform", **dict.fromkeys([*kinds, *special], 0.1)}]
    )
    return {
        "token_features": features,
        "pattern_shares": pd.DataFrame(patterns, columns=shares),
        "finetuning_similarity": pd.concat(similarity, ignore_index=True),
        "semantic_links": links,
        "fine_tuning": pd.DataFrame(accuracy, columns=columns).assign(learned=True),
        "disabling": disabled,
    }


def where(table, rows, **values):
    """Return a change of the rows of a table for which ``rows`` holds."""

    def change(tables):
        frame = tables[table]
        chosen = rows(frame)
        assert chosen.any()
        for name, value in values.items():
            frame.loc[chosen, name] = value

    return change


def all_rows(frame):
    return pd.Series(True, index=frame.index)


def single(frame):
    return frame["head"] > 0


# What makes each claim false, by the start of its statement, and the number then measured.
COUNTEREXAMPLES = {
    "The same few patterns": (
        where("pattern_shares", lambda t: (t["task"] == "b") & (t["pattern"] == "heterogeneous"),
              share=0.62, ci_low=0.6, ci_high=0.64), 0.62,
    ),
    "At least a third of the maps": (
        where("pattern_shares", lambda t: (t["task"] == "c") & (t["pattern"] == ANY_COLUMN),
              share=0.34, ci_low=0.3, ci_high=0.38), 0.34,  # the interval has a third in it
    ),
    "A few heads attend along": (where("semantic_links", all_rows, p_holm=0.05), 0),
    "Such heads are few": (
        where("semantic_links", lambda t: t["layer"] == 1, p_holm=0.04), 4 / 24,
    ),
    "Fine-tuning changes": (
        where("finetuning_similarity",
              lambda t: (t["layer"] == 3) & (t["task"] != "a"), similarity=0.1), 1 / 3,
    ),
    "Pretraining is what": (
        where("fine_tuning", lambda t: (t["task"] == "b") & (t["start"] == "random"),
              accuracy=81.0, ci_low=79.0, ci_high=83.0), -1,
    ),
    "Heads attend to [CLS]": (
        where("token_features", lambda t: t["task"] == "b", noun=0.4), 3.5 - 4,
    ),
    "In most tasks [CLS]": (
        where("token_features", lambda t: t["task"].isin(["a", "b"]), from_cls_verb=0.6), 1 / 3,
    ),
    "Some heads can be disabled with a gain": (
        where("disabling", single, p_value=0.05 / 20), 0,  # times 24 heads it is no longer small
    ),
    "Most heads can be disabled": (
        where("disabling", lambda t: single(t) & (t["layer"] > 2), removable=False), 1 / 3,
    ),
    "In some task, a whole layer": (
        where("disabling", lambda t: t["head"] == 0, p_value=0.05 / 17), 0,
    ),
}  # fmt: skip


def test_every_claim_has_its_counterexample_and_a_section():
    claims = finetuning_claims()
    assert len({claim.statement for claim in claims}) == len(claims) == len(COUNTEREXAMPLES)
    assert all(claim.section.startswith("Kovaleva et al. 4.") for claim in claims)
    for start in COUNTEREXAMPLES:
        assert sum(claim.statement.startswith(start) for claim in claims) == 1


@pytest.mark.parametrize("claim", finetuning_claims(), ids=lambda claim: claim.statement[:30])
def test_a_claim_holds_fails_and_can_be_out_of_reach(claim):
    tables = run_like_the_paper()
    assert judge(claim, tables).verdict == "yes"
    change, expected = next(
        value for start, value in COUNTEREXAMPLES.items() if claim.statement.startswith(start)
    )
    other = copy.deepcopy(tables)
    change(other)
    found = judge(claim, other)
    assert found.here == pytest.approx(expected)
    assert found.verdict != "yes"
    with pytest.raises(NotMeasurable):
        claim.measure({})


@pytest.mark.parametrize(("layers", "last"), [(1, None), (2, 1), (6, 1), (12, 2), (24, 4)])
def test_the_last_sixth_of_the_layers(layers, last):
    claim = next(c for c in finetuning_claims() if c.statement.startswith("Fine-tuning changes"))
    similarity = np.ones(layers)
    similarity[layers - (last or 1) :] = 0.5
    table = pd.DataFrame({"task": "a", "layer": range(1, layers + 1), "similarity": similarity})
    learned = pd.DataFrame({"task": ["a"], "start": ["pretrained"], "learned": [True]})
    tables = {"finetuning_similarity": table, "fine_tuning": learned}
    if last is None:
        with pytest.raises(NotMeasurable):
            claim.measure(tables)
        return
    assert claim.measure(tables) == 1
    table.loc[layers - last - 1, "similarity"] = 0.4  # the layer before them
    assert claim.measure(tables) == 0


def test_a_task_that_is_not_learned_counts_for_nothing():
    """What is shown of it may say anything: no claim may change."""
    expected = {c.statement: judge(c, run_like_the_paper()).here for c in finetuning_claims()}
    tables = run_like_the_paper()
    for name in ("pattern_shares", "finetuning_similarity", "fine_tuning", "disabling",
                 "token_features"):  # fmt: skip
        other = tables[name][tables[name]["task"] == "a"].assign(task="noise")
        tables[name] = pd.concat([tables[name], other], ignore_index=True)
    noise = where("fine_tuning", lambda t: t["task"] == "noise", learned=False, accuracy=50.0)
    noise(tables)
    where("pattern_shares", lambda t: t["task"] == "noise", share=0.9, ci_high=1.0)(tables)
    where("finetuning_similarity", lambda t: t["task"] == "noise", similarity=1.0)(tables)
    where("disabling", lambda t: t["task"] == "noise", change=-9.0, p_value=1e-9, removable=False)(
        tables
    )
    found = {claim.statement: judge(claim, tables).here for claim in finetuning_claims()}
    assert found == pytest.approx(expected)
    tables["fine_tuning"]["learned"] = False
    with pytest.raises(NotMeasurable, match="no task is learned"):
        finetuning_claims()[0].measure(tables)
