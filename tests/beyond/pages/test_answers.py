"""The three sentences at the top of a report follow from the tables."""

import numpy as np
import pandas as pd
from made_up_runs import heads, run_like_the_paper
from plot_checks import BERT

from beyond.pages.answers import answers
from helpers.metrics.models import by_model


def test_answers_of_a_run_with_every_table():
    tables = run_like_the_paper()
    types = tables["token_types"]
    control = types.assign(cls=0.01, sep=0.02)
    tables["token_types"] = by_model({"trained": types, "random": control})
    where, relation, together = answers(tables, BERT)
    assert where == ("42% of its attention goes to [SEP], and in layer 4 70% (random weights: 2%).")
    assert relation.startswith("On texts that did not choose it, head ")
    assert together == (
        "All heads and word vectors together find the parent of 77% of the words (random weights: "
        "30%, distances and word vectors without a model: 58%)."
    )


def test_answers_names_the_first_token_of_a_model_without_special_tokens():
    shares = {"cls": np.nan, "sep": np.nan, "first": [0.1, 0.8]}
    table = pd.DataFrame({"layer": [1, 2], "head": 1, **shares})
    (sentence,) = answers({"token_types": table}, {"cls": None, "sep": None})
    assert sentence == "45% of its attention goes to the first token, and in layer 2 80%."


def test_answers_has_the_relation_with_the_largest_margin_and_both_rules():
    held_out = pd.DataFrame(
        {
            "relation": ["det", "dobj", "punct"],
            "head": ["3-9", "3-1", "1-1"],
            "dev_accuracy": [74.0, 73.0, 99.0],
            "baseline": [49.0, 40.0, 10.0],
            "margin": [25.0, 33.0, 89.0],  # punct is no relation of the paper's Table 1 in words
            "nearest_class": ["NOUN", "ADP", None],
            "nearest_side": ["right", "left", None],
            "nearest_accuracy": [80.0, 93.0, np.nan],
        }
    )
    (sentence,) = answers({"dependency_heads_held_out": held_out}, BERT)
    assert sentence == (
        "On texts that did not choose it, head 3-1 finds the verb of an object in 73% of the "
        "cases; a fixed distance would find 40%, and the nearest preposition on the left (knows "
        "the parts of speech) 93%."
    )
    without_tags = held_out.assign(nearest_class=None)
    (sentence,) = answers({"dependency_heads_held_out": without_tags}, BERT)
    assert sentence.endswith("a fixed distance would find 40%.")


def test_answers_without_tables_is_empty():
    assert answers({}, BERT) == []
    assert answers({"token_types": heads(cls=[0.1] * 6).iloc[:0]}, BERT) == []


def test_answers_of_later_papers():
    edges = pd.DataFrame(
        [
            ("trained", "2-5", "dropped", 5.2), ("trained", "2-5", "redistributed", 40.5),
            ("trained", "2-5", "constant", 0.3), ("trained", "1-6", "dropped", 99.0),
            ("random", "2-5", "dropped", 1.0), ("random", "2-5", "redistributed", 1.1),
            ("random", "2-5", "constant", 0.1),
        ],
        columns=["model", "layers", "change", "value"],
    ).assign(keys="cls", measure="sentence angle")  # fmt: skip
    special = pd.DataFrame({"token": ["special"] * 2, "attention": [0.3, 0.4], "norm": [0.1, 0]})
    inputs = pd.DataFrame(
        {"classifier": "encoder", "train": "original", "inputs": "warrants"}, [0, 1]
    )
    partial = inputs.assign(test=["original", "adversarial"], mean=[66.0, 34.0])
    tables = {"edges": edges, "special_tokens": special, "partial_inputs": partial}
    sink, moved, warrants = answers(tables, BERT)
    assert "by 5.2 degrees" in sink and "every query by 0.3 (random weights: 1, 1.1, 0.1)" in sink
    assert "35% of attention" in moved and "5% of what" in moved
    assert "66%" in warrants and "34%" in warrants
