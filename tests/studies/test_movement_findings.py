"""Sentences of notebook 10: the numbers are those of the tables, and of what they have."""

import numpy as np
import pandas as pd

from helpers.run.findings import findings


def interval(value, name, low="low", high="high"):
    return {name: value, low: value - 1, high: value + 1}


def tables():
    special = pd.DataFrame(
        {"layer": ["1", "2", "all"], "attention": [0.2, 0.6, 0.4], "norm": [0.1, 0.06, 0.08],
         "ratio": [0.5, 0.1, 0.2]}
    )  # fmt: skip
    sinks = pd.DataFrame(
        {"layer": [1, 2], "attention_first": [0.1, 0.3], "norm_first": [0.1, 0.02],
         "value_first": [1.0, 0.04]}
    )  # fmt: skip
    relations = pd.DataFrame(
        {"relation": ["All", "a", "b", "mean"], "attention_accuracy": [50.0, 40, 60, 55],
         "norm_accuracy": [51.0, 60, 50, 57], "gain": [1.0, 20, -10, 2], "gain_low": 1.0,
         "gain_high": 3.0, "p_holm": [0.5, 0.01, 0.2, np.nan]}
    )  # fmt: skip
    leads = pd.DataFrame(
        [
            {"kind": kind, "probe": "Attn", "against": against, "p_value": 0.04}
            | interval(lead, "lead")
            for kind, lead in (("zero", 0.5), ("mean", 2.5))
            for against in ("layer", "matched")
        ]
    )
    costs = pd.DataFrame(
        {"kind": "zero", "layer": [1, 2], "head": [3, 4], "loss": 0.5, "loss_change": [0.1, 0.25]}
    )
    ranks = pd.DataFrame(
        [
            {"method": method, "effect": effect}
            | interval(value, "correlation", "correlation_low", "correlation_high")
            for effect, own in (("vector", (0.3, 0.7)), ("similarity", (0.6, 0.2)))
            for method, value in zip(("rollout", "gradient x attention"), own, strict=True)
        ]
    )
    return {
        "special_tokens": special, "sinks": sinks, "lens_relations": relations,
        "value_norms": pd.DataFrame({"same_token": [0.25, 0.75]}),
        "lens_mentions": relations.assign(relation=["all", "pronoun", "proper", "mean"]),
        "relation_heads_mean": leads, "removed_objective": costs, "attributions": ranks,
        "control_attributions": ranks.assign(correlation=0.11),
    }  # fmt: skip


def test_what_attention_moves_is_told_with_the_numbers_of_the_tables():
    said = " ".join(findings(tables(), {})["10"])
    for part in (
        "40.0% of the attention and 8.0% of what is moved",
        "0.10 (layer 2) to 0.50 (layer 1)",
        "most attention in layer 2, 30%, and 2% of what is moved there",
        "0.04 times as long",
        "for 50% of the queries",
        "55.0% of a relation through attention and 57.0% through the norm lens",
        "+2.0 (+1.0 to +3.0) points on average; 1 relations gain and 0 lose",
        "Antecedents: 50.0% and 51.0%.",
        "Attn probe, output zero: +0.5 (-0.5 to +1.5), p = 0.04; Attn probe, output its mean: +2.5",
        "head 2-4 most: its loss is 0.5 nats with it and 0.75 without",
        "a text's vector is told best by gradient x attention: rank correlation 0.70 (-0.30 to",
        "of two paragraphs is told best by rollout: rank correlation 0.60",
        "with random weights 0.11",
    ):
        assert part in said


def test_parts_that_a_run_does_not_have_are_not_spoken_of():
    own = {name: table for name, table in tables().items() if name != "sinks"}
    said = findings(own, {})["10"]
    assert said[0].startswith("A relation's loss without the head found for it")
    del own["relation_heads_mean"], own["attributions"]
    assert "10" not in findings(own, {})
    none = tables()["special_tokens"].assign(ratio=np.nan)
    assert "Special tokens" not in " ".join(findings(tables() | {"special_tokens": none}, {})["10"])
