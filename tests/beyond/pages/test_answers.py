"""The three sentences at the top of a report follow from the tables."""

import numpy as np
import pandas as pd
from made_up_runs import heads, run_like_the_paper
from plot_checks import BERT

from beyond.pages.answers import answers
from helpers.metrics import by_model


def assert_in(sentence, *parts):
    for part in parts:
        assert part in sentence, sentence


def test_answers_of_a_run_with_every_table():
    tables = run_like_the_paper()
    types = tables["token_types"]
    control = types.assign(cls=0.01, sep=0.02)
    tables["token_types"] = by_model({"trained": types, "random": control})
    where, _, together = answers(tables, BERT)
    assert_in(where, "42% of", "[SEP]", "layer 4 70%", "random weights: 2%")
    assert_in(together, "word vectors", "77% of", "random weights: 30%", "without a model: 58%")


def test_answers_of_a_model_without_special_tokens_and_of_no_table():
    shares = {"cls": np.nan, "sep": np.nan, "first": [0.1, 0.8]}
    table = pd.DataFrame({"layer": [1, 2], "head": 1, **shares})
    (sentence,) = answers({"token_types": table}, {"cls": None, "sep": None})
    assert_in(sentence, "45% of", "the first token", "layer 2 80%")
    assert answers({}, BERT) == []
    assert answers({"token_types": heads(cls=[0.1] * 6).iloc[:0]}, BERT) == []


def test_answers_has_the_relation_with_the_largest_margin_and_both_rules():
    columns = {
        "relation": ["det", "dobj", "punct"],  # not in the paper's Table 1: punct
        "head": ["3-9", "3-1", "1-1"],
        "dev_accuracy": [74.0, 73.0, 99.0],
        "baseline": [49.0, 40.0, 10.0],
        "margin": [25.0, 33.0, 89.0],
        "nearest_class": ["NOUN", "ADP", None],
        "nearest_side": ["right", "left", None],
        "nearest_accuracy": [80.0, 93.0, np.nan],
    }
    held_out = pd.DataFrame(columns)
    (sentence,) = answers({"dependency_heads_held_out": held_out}, BERT)
    assert_in(sentence, "head 3-1", "verb of an object in 73%", "40%", "preposition", "left", "93%")
    (sentence,) = answers({"dependency_heads_held_out": held_out.assign(nearest_class=None)}, BERT)
    assert "nearest" not in sentence


def test_answers_of_later_papers():
    rows = [
        ("trained", "2-5", "dropped", 5.2), ("trained", "2-5", "redistributed", 40.5),
        ("trained", "2-5", "constant", 0.3), ("trained", "1-6", "dropped", 99.0),
        ("random", "2-5", "dropped", 1.0), ("random", "2-5", "redistributed", 1.1),
        ("random", "2-5", "constant", 0.1),
    ]  # fmt: skip
    edges = pd.DataFrame(rows, columns=["model", "layers", "change", "value"])
    edges = edges.assign(keys="cls", measure="sentence angle")
    special = pd.DataFrame({"token": "special", "attention": [0.3, 0.4], "norm": [0.1, 0]})
    warrants = {"classifier": "encoder", "train": "original", "inputs": "warrants"}
    partial = pd.DataFrame({"test": ["original", "adversarial"], "mean": [66.0, 34.0], **warrants})
    tables = {"edges": edges, "special_tokens": special, "partial_inputs": partial}
    sink, moved, read = answers(tables, BERT)
    assert_in(sink, "by 5.2 degrees", "every query by 0.3 (random weights: 1, 1.1, 0.1)")
    assert_in(moved, "35% of attention", "5% of what")
    assert_in(read, "66%", "34%")
    rows = [("margin", 0.61), ("margin at equal attention", -0.05)]
    correlations = pd.DataFrame(rows, columns=["predictor", "correlation"]).assign(measure="turns")
    pruned = [("a", 20, True), ("a", 40, True), ("a", 60, False), ("b", 20, False)]
    pruning = pd.DataFrame(pruned, columns=["task", "pruned", "removable"])
    tables = {"head_edge_correlations": correlations, "pruning": pruning.assign(order="importance")}
    used, without = answers(tables, BERT)
    assert_in(used, "0.61", "-0.05")
    assert_in(without, "40% of the heads for a")
    assert " b" not in without
