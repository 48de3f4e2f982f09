"""The three sentences at the top of a report follow from the tables."""

import numpy as np
import pandas as pd
from plot_checks import BERT

from beyond.pages.answers import answers


def assert_in(sentence, *parts):
    for part in parts:
        assert part in sentence, sentence


def test_answers_of_a_model_without_special_tokens_and_of_no_table():
    shares = {"cls": np.nan, "sep": np.nan, "first": [0.1, 0.8]}
    table = pd.DataFrame({"layer": [1, 2], "head": 1, **shares})
    (sentence,) = answers({"token_types": table}, {"cls": None, "sep": None})
    assert_in(sentence, "45% of", "the first token", "layer 2 80%")
    assert answers({}, BERT) == []
    assert answers({"token_types": table.iloc[:0]}, BERT) == []


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
