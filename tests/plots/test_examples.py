"""Figures 1 and 5 show what the tables say, of what the model can do, in the right colours."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from viewer_stores import DOCUMENT, word_store

from helpers.analysis.head_counts import count_heads
from helpers.analysis.heads import DIRECTIONS
from helpers.analysis.surface import RELATIVE_POSITION
from helpers.plots import examples
from helpers.plots.examples import Panel, coreference_panels, pattern_panels, relation_panels
from helpers.plots.style import RIGHT, TOKEN_COLORS, WRONG

POSSESSIVE = {
    "words": ["old", "Ann", "'s", "red", "hat", "has", "a", "hole", "."],
    "heads": [2, 5, 2, 5, 6, 0, 8, 6, 6],
    "relations": ["amod", "poss", "case", "amod", "nsubj", "ROOT", "det", "dobj", "punct"],
    "split": "dev",
}
WORDS = ["[CLS]", "costs", "$", ".", "[SEP]"]
KINDS = ["cls", "other", "other", "punctuation", "sep"]
WEIGHTS = np.array([
    [0.0, 0.5, 0.0, 0.5, 0.0],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
])  # fmt: skip


def panel(title, gold=(), picked=()):
    return Panel(title, WORDS, KINDS, WEIGHTS, examples.Place(0, 1, 2), gold, picked)


def test_fig1_lines_are_as_dark_as_the_weights():
    figure = examples.fig1_examples([panel("1-2 · [SEP]")] * 5)
    assert [axes.get_title("left") for axes in figure.axes] == ["1-2 · [SEP]"] * 5
    assert not figure.axes[0].lines
    lines = figure.axes[0].collections[0]
    pairs = [(int(start[1]), int(end[1])) for start, end in lines.get_segments()]
    assert pairs == [tuple(pair) for pair in np.argwhere(WEIGHTS > 0)]
    np.testing.assert_allclose(lines.get_colors()[:, 3], [WEIGHTS[pair] for pair in pairs])
    colors = [to_hex(color).upper() for color in lines.get_colors()]
    assert colors == [TOKEN_COLORS[KINDS[key]].upper() for _, key in pairs]


def test_fig5_colors_the_pair_and_marks_failures():
    right = panel("dobj · head 2-3", gold=[(1, 3)], picked=[(1, 3)])
    wrong = panel("dobj · head 2-3", gold=[(2, 1)], picked=[(2, 3)])
    one, other = examples.fig5_heads([right, wrong]).axes
    titles = [axes.get_title("left") for axes in (one, other)]
    assert titles == ["✓ dobj · head 2-3", "✗ dobj · head 2-3"]

    def drawn(axes):
        return [(*line.get_ydata(), line.is_dashed(), line.get_color()) for line in axes.lines]

    assert drawn(one) == [(1, 3, False, RIGHT)]
    assert drawn(other) == [(2, 3, False, WRONG), (2, 1, True, WRONG)]
    colored = [i for i, text in enumerate(other.texts) if text.get_color() == WRONG]
    assert colored == [2, len(WORDS) + 1, len(WORDS) + 3]
    assert examples.places([right]).to_dict("records") == [
        {"title": right.title, "example": 0, "layer": 1, "head": 2, "relation": "", "direction": ""}
    ]


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
    (found,) = relation_panels(store, pd.DataFrame([row]), {"poss": "poss"})
    assert found.correct
    assert found.gold == ([(2, 4)] if direction == DIRECTIONS[0] else [(4, 2)])


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_that_cannot_look_ahead_is_shown_with_the_previous_token(causal):
    store = word_store(POSSESSIVE, layers=1, heads=2)
    if causal:
        store.examples[0].attention[:] = np.tril(store.examples[0].attention)
    heads = pd.DataFrame({
        "layer": 1, "head": [1, 2], "entropy": [2.0, 1.0], "previous": [0.1, 0.6],
        "next": [0.0, 0.0] if causal else [0.1, 0.4], "cls": [0.5, 0.1], "sep": np.nan,
        "punctuation": [0.0, 0.0], "current": 0.0, "uniform": 2.2,
    })  # fmt: skip
    titles = [found.title.split("\n") for found in pattern_panels(store, heads)]
    assert titles == [
        ["1-1 attends broadly", "2.0 nats on average"],
        [
            "1-2 to the previous token",
            f"{'previous token 60%' if causal else 'next token 40%'} on average",
        ],
        ["1-1 attends broadly", "[CLS] 50% on average"],  # too little to count as a pattern
    ]


def test_coreference_is_shown_in_whole_sentences(monkeypatch):
    store = word_store(DOCUMENT, layers=1, heads=1)
    store.examples[0].attention[:] = 0
    store.examples[0].attention[0, 0, 1 + np.arange(12), 1] = 1  # every word attends to Ann
    right, wrong = coreference_panels(store, (0, 0), 50.0)
    assert right.words == wrong.words == DOCUMENT["words"]
    assert (right.gold, right.picked) == ([(4, 0)], [(4, 0)])
    assert (wrong.gold, wrong.picked) == ([(8, 2)], [(8, 0)])
    monkeypatch.setattr(examples, "LONGEST", 8)  # the second sentence alone
    assert coreference_panels(store, (0, 0), 50.0) == []


@pytest.mark.parametrize("times", [1, 3])  # 9 and 27 words; 8 to 16 are easy to read
def test_without_a_sentence_that_is_easy_to_read_the_nearest_in_length_is_shown(times):
    long = {name: value * times for name, value in POSSESSIVE.items() if name != "split"}
    longer = {name: value * 4 for name, value in POSSESSIVE.items() if name != "split"}
    store = word_store(longer, long, layers=1, heads=1)
    patterns = ("entropy", "uniform", *RELATIVE_POSITION, "cls", "sep", "punctuation")
    found = pattern_panels(
        store, pd.DataFrame([{"layer": 1, "head": 1, **dict.fromkeys(patterns, 0.1)}])
    )
    assert found and {each.place.example for each in found} == {1}
