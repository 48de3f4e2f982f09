"""Figures 1 and 5 show what the tables say, of what the model can do."""

import numpy as np
import pandas as pd
import pytest
from viewer_stores import word_store

from helpers.analysis.head_counts import count_heads
from helpers.analysis.heads import DIRECTIONS
from helpers.plots.showcase import pattern_panels, relation_panels

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_found_from_its_mark_is_right_in_the_figure_as_in_the_table(direction):
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.attention[:] = 0
    example.attention[0, 0, range(11), range(11)] = 1  # every word attends to itself but ...
    for query, key in ((2, 4), (3, 5)):  # Ann -> red, 's -> hat; positions count [CLS]
        if direction == DIRECTIONS[1]:
            query, key = key, query
        example.attention[0, 0, query, query] = 0
        example.attention[0, 0, query, key] = 1
    counts = count_heads(store.examples)
    assert counts.right[counts.rows("poss"), DIRECTIONS.index(direction)].item() == 1
    row = {"relation": "poss", "head": "1-1", "direction": direction, "accuracy": 100.0}
    (panel,) = relation_panels(store, pd.DataFrame([row]), {"poss": "poss"})
    assert panel.correct
    assert panel.gold == ([(2, 4)] if direction == DIRECTIONS[0] else [(4, 2)])


@pytest.mark.parametrize("cls", ["[CLS]", None])
def test_special_tokens_are_in_the_figure_where_they_get_the_attention(cls):
    store = word_store(POSSESSIVE, layers=1, heads=2)
    store.special_tokens = {"cls": cls, "sep": "[SEP]"}  # T5 has an end, but no beginning
    maps = store.examples[0].attention
    maps[:] = 0
    maps[0, :, range(11), range(11)] = 1
    maps[0, 1, 8] = 0
    maps[0, 1, 8, [6, 10]] = 0.4, 0.6  # hole -> has, and more to [SEP]
    row = {"relation": "dobj", "direction": DIRECTIONS[0], "accuracy": 100.0}
    for head, words in (("1-1", POSSESSIVE["words"]), ("1-2", [*POSSESSIVE["words"], "[SEP]"])):
        (panel,) = relation_panels(store, pd.DataFrame([row | {"head": head}]), {"dobj": "dobj"})
        assert panel.words == words
        assert panel.weights.shape == (len(words), len(words))
    assert panel.special == {9: "sep"}
    assert panel.correct and panel.gold == [(7, 5)]


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_that_cannot_look_ahead_is_shown_with_the_previous_token(causal):
    store = word_store(POSSESSIVE, layers=1, heads=2)
    if causal:
        store.examples[0].attention[:] = np.tril(store.examples[0].attention)
    heads = pd.DataFrame({
        "layer": 1, "head": [1, 2], "entropy": [2.0, 1.0], "previous": [0.1, 0.6],
        "next": [0.0, 0.0] if causal else [0.1, 0.4], "cls": [0.5, 0.1], "sep": np.nan,
        "punctuation": [0.0, 0.0],
    })  # fmt: skip
    titles = [panel.title for panel in pattern_panels(store, heads)]
    neighbour = "previous" if causal else "next"
    assert titles == ["1-1 · broad", f"1-2 · {neighbour} token", "1-1 · [CLS]"]


@pytest.mark.parametrize("times", [1, 3])  # 9 and 27 words; 8 to 16 are easy to read
def test_without_a_sentence_that_is_easy_to_read_the_nearest_in_length_is_shown(times):
    long = {name: value * times for name, value in POSSESSIVE.items() if name != "split"}
    longer = {name: value * 4 for name, value in POSSESSIVE.items() if name != "split"}
    store = word_store(longer, long, layers=1, heads=1)
    heads = pd.DataFrame({
        "layer": [1], "head": [1], "entropy": [2.0], "previous": [0.1], "next": [0.1],
        "cls": [0.1], "sep": [0.1], "punctuation": [0.1],
    })  # fmt: skip
    found = pattern_panels(store, heads)
    assert found and {panel.place.example for panel in found} == {1}
