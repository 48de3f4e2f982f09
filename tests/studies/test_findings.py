"""Sentences of notebooks 07 and 08: the numbers are those of the tables, and of what they have."""

import pandas as pd

from helpers.run.findings import findings

TASKS = ("a", "b")


def tables():
    accuracy = pd.DataFrame(
        [
            (task, start, value, value - 1, value + 1, 60.0, start == "pretrained" and value > 80)
            for task, value in (("a", 90.0), ("b", 61.0))
            for start, value in (("pretrained", value), ("random", value - 30))
        ],
        columns=["task", "start", "accuracy", "ci_low", "ci_high", "bag_of_words", "learned"],
    )
    places = [(task, layer, head) for task in TASKS for layer in (1, 2) for head in (0, 1, 2)]
    disabled = pd.DataFrame(places, columns=["task", "layer", "head"]).assign(
        change=0.0, p_value=0.9
    )
    disabled.loc[1, ["change", "p_value"]] = -4.0, 0.01
    disabled.loc[9, ["change", "p_value"]] = 2.5, 0.04  # b, layer 2 as a whole
    heads = disabled[disabled["head"] > 0].reset_index(drop=True)
    similarity = heads.assign(similarity=1 - heads["layer"] / 10)
    links = heads[heads["task"] == "a"].assign(
        linked=[0.1, 0.3, 0.1, 0.1], random=0.1, difference=[0, 0.2, 0, 0], ci_low=[-1, 0.1, -1, -1]
    )
    kinds = ["cls", "sep", "noun", "verb", "pronoun", "subject", "object", "negation"]
    features = pd.DataFrame(
        [{"weights": weights, **dict.fromkeys(kinds, 0.1), most: 0.4} for weights, most in
         (("pretrained", "cls"), ("fine-tuned", "verb"))]
        + [{"weights": "uniform", **dict.fromkeys(kinds, 0.1)}]
    )  # fmt: skip
    removable = heads.assign(removable=heads["change"] == 0)
    pruned = pd.DataFrame(
        {"task": "a", "order": "importance", "pruned": [0, 10, 20, 30, 100],
         "removable": [True, True, True, False, True]}
    )  # fmt: skip
    across = pd.DataFrame(
        {"task": ["a"], "set": ["other articles"], "correlation": [0.5], "ci_low": [0.3],
         "ci_high": [0.7]}
    )  # fmt: skip
    arguments = pd.DataFrame(
        {"relation": ["nsubj", "dobj"], "head": ["4-1", "3-2"], "task": "number",
         "loss_difference": [0.2, 0.01], "loss_ci_low": [0.1, -0.1], "loss_ci_high": [0.3, 0.1],
         "rank": [1, 5]}
    )  # fmt: skip
    seeds = pd.DataFrame(
        {"task": "a", "measure": ["removable", "correlation"], "seeds": 5, "mean": [70.0, 0.6],
         "ci_low": [60.0, 0.5], "ci_high": [80.0, 0.7]}
    )  # fmt: skip
    return {
        "seed_intervals": seeds, "fine_tuning": accuracy, "disabling": disabled,
        "finetuning_similarity": similarity,
        "semantic_links": links, "token_features": features, "ablation": removable,
        "pruning": pruned, "cross_data": across, "argument_heads": arguments,
    }  # fmt: skip


def test_what_fine_tuning_did_is_told_with_the_numbers_of_the_tables():
    said = " ".join(findings(tables(), {})["07"])
    for part in (
        "words give away: *a* (1 of 2 tasks)",
        "*B*: 61.0% (60.0 to 62.0), a bag of words 60.0%, from random weights 31.0%.",
        "*a* changes layer 2 most (mean cosine 0.80)",
        "head 1-2 stands out most: 0.30 against 0.10",
        "1 of 4 heads are above chance",
        "12% are a loss with p < 0.05; the largest is 4.0 points",
        "+2.5 points (*b*, layer 2, p = 0.04)",
        "[CLS] gets most before fine-tuning (4.0 times as much)",
        "a verb gets most after fine-tuning",
    ):
        assert part in said
    assert "*b* changes" not in said  # it is not learned


def test_what_pruning_did_is_told_with_the_numbers_of_the_tables():
    said = " ".join(findings(tables(), {})["08"])
    for part in (
        "*a* 3 of 4; *b* 4 of 4",
        "*a* 1-1 (-4.0 points)",
        "By importance 20% of the heads can go for *a*.",
        "(other articles, *a*): r = 0.50 (0.30 to 0.70)",
        "nsubj, 4-1, is missed more than the others",
        "dobj, 3-2, is not shown to be missed",
        "Over 5 seeds of *a* 70% of heads are removable alone (60 to 80)",
        "under another at 0.60.",
    ):
        assert part in said
    without = {name: table for name, table in tables().items() if name != "argument_heads"}
    assert "nsubj" not in " ".join(findings(without, {})["08"])
    assert "08" not in findings({"ablation": tables()["ablation"]}, {})
