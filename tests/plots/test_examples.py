"""Figures 1 and 5 draw the sentences and pairs that the tables name, in the right colours."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from viewer_stores import DOCUMENT, word_store

from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.surface import RELATIVE_POSITION
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
WORD_TYPES = ["cls", "other", "other", "punctuation", "sep"]
WEIGHTS = np.array([
    [0.0, 0.5, 0.0, 0.5, 0.0],
    [0.1, 0.2, 0.3, 0.4, 0.0],
    [0.0, 0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
])  # fmt: skip


def panel(title, gold=(), picked=()):
    location = examples.MapLocation(0, 1, 2)
    return Panel(title, WORDS, WORD_TYPES, WEIGHTS, location, gold, picked)


def test_fig1_draws_one_axes_per_panel_without_pairs():
    figure = examples.fig1_examples([panel("1-2 · [SEP]")] * 5)
    assert [axes.get_title("left") for axes in figure.axes] == ["1-2 · [SEP]"] * 5
    assert not any(axes.lines for axes in figure.axes)


def test_fig1_lines_are_as_dark_as_the_weights():
    axes, *_ = examples.fig1_examples([panel("1-2 · [SEP]")]).axes
    (lines,) = axes.collections
    colors = {}
    for segment, color in zip(lines.get_segments(), lines.get_colors(), strict=True):
        (_, query), (_, key) = segment
        colors[int(query), int(key)] = color
    assert colors.keys() == {tuple(pair) for pair in np.argwhere(WEIGHTS > 0).tolist()}
    for (query, key), color in colors.items():
        assert color[3] == pytest.approx(WEIGHTS[query, key])
        assert to_hex(color).upper() == TOKEN_COLORS[WORD_TYPES[key]].upper()


def drawn_pairs(axes):
    """List the drawn pairs as (query, key, is dashed, colour)."""
    return [(*line.get_ydata(), line.is_dashed(), line.get_color()) for line in axes.lines]


def test_fig5_draws_the_pair_of_a_success():
    right = panel("dobj · head 2-3", gold=[(1, 3)], picked=[(1, 3)])
    (axes,) = examples.fig5_heads([right]).axes
    assert axes.get_title("left") == "✓ dobj · head 2-3"
    assert drawn_pairs(axes) == [(1, 3, False, RIGHT)]


def test_fig5_draws_the_choice_and_the_missed_pair_of_a_failure():
    wrong = panel("dobj · head 2-3", gold=[(2, 1)], picked=[(2, 3)])
    (axes,) = examples.fig5_heads([wrong]).axes
    assert axes.get_title("left") == "✗ dobj · head 2-3"
    assert drawn_pairs(axes) == [(2, 3, False, WRONG), (2, 1, True, WRONG)]
    colored = [text.get_text() for text in axes.texts if text.get_color() == WRONG]
    # The query on the left; the right answer and the choice on the right.
    assert colored == [WORDS[2], WORDS[1], WORDS[3]]


def test_panel_table_has_the_location_of_each_panel():
    right = panel("dobj\nhead 2-3", gold=[(1, 3)], picked=[(1, 3)])
    assert examples.panel_table([right]).to_dict("records") == [
        {
            "title": "dobj · head 2-3",
            "example": 0,
            "layer": 1,
            "head": 2,
            "relation": "",
            "direction": "",
        }
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_possessor_found_from_its_mark_is_right_as_in_the_table(direction):
    store = word_store(POSSESSIVE, layers=1, heads=1)
    example = store.examples[0]
    example.stored_attention[:] = 0
    example.stored_attention[0, 0, range(11), range(11)] = 1  # every word attends to itself but ...
    # Ann -> red and 's -> hat, or the reverse; positions count [CLS]
    edges = ((2, 4), (3, 5)) if direction == DIRECTIONS[0] else ((4, 2), (5, 3))
    for query, key in edges:
        example.stored_attention[0, 0, query, query] = 0
        example.stored_attention[0, 0, query, key] = 1
    counts = count_heads(store.examples)
    assert counts.right[counts.rows("poss"), DIRECTIONS.index(direction)].item() == 1
    row = {"relation": "poss", "head": "1-1", "direction": direction, "accuracy": 100.0}
    (drawn,) = relation_panels(store, pd.DataFrame([row]), {"poss": "poss"})
    assert drawn.correct
    assert drawn.gold == ([(2, 4)] if direction == DIRECTIONS[0] else [(4, 2)])


@pytest.mark.parametrize(
    ("causal", "neighbour"), [(False, "next token 40%"), (True, "previous token 60%")]
)
def test_pattern_panels_of_a_causal_model_have_the_previous_token(causal, neighbour):
    store = word_store(POSSESSIVE, layers=1, heads=2)
    if causal:
        maps = np.tril(store.examples[0].attention)
        store.examples[0].stored_attention[:] = maps / maps.sum(axis=-1, keepdims=True)
    heads = pd.DataFrame({
        "layer": 1, "head": [1, 2], "entropy": [2.0, 1.0], "previous": [0.1, 0.6],
        "next": [0.0, 0.0] if causal else [0.1, 0.4], "cls": [0.5, 0.1], "sep": np.nan,
        "punctuation": [0.0, 0.0], "current": 0.0, "uniform": 2.2,
    })  # fmt: skip
    assert [panel.title for panel in pattern_panels(store, heads)] == [
        "1-1 attends broadly\n2.0 nats on average",
        f"1-2 to the previous token\n{neighbour} on average",
        "1-1 attends broadly\n[CLS] 50% on average",  # too little to count as a pattern
    ]


@pytest.fixture
def store_of_ann():
    """Make a store of one document in which every word attends to its first word, Ann."""
    store = word_store(DOCUMENT, layers=1, heads=1)
    store.examples[0].stored_attention[:] = 0
    store.examples[0].stored_attention[..., 1] = 1
    return store


def test_coreference_panels_draw_all_sentences_that_fit(store_of_ann):
    right, wrong = coreference_panels(store_of_ann, (0, 0), 50.0)
    assert right.words == wrong.words == DOCUMENT["words"]
    assert (right.gold, right.picked) == ([(4, 0)], [(4, 0)])
    assert (wrong.gold, wrong.picked) == ([(8, 2)], [(8, 0)])


def test_coreference_panels_need_the_antecedent_in_the_sentences_that_fit(
    store_of_ann, monkeypatch
):
    monkeypatch.setattr(examples, "MAX_WORDS", 8)  # only the second sentence fits
    assert coreference_panels(store_of_ann, (0, 0), 50.0) == []


def repeated(record, times):
    return {name: value * times for name, value in record.items() if name != "split"}


@pytest.mark.parametrize("times", [1, 3])  # 9 and 27 words, next to a sentence of 36
def test_pattern_panels_draw_the_sentence_closest_to_an_easy_length(times):
    longer = repeated(POSSESSIVE, 4)
    closest = repeated(POSSESSIVE, times)
    store = word_store(longer, closest, layers=1, heads=1)
    patterns = ("entropy", "uniform", *RELATIVE_POSITION, "cls", "sep", "punctuation")
    heads = pd.DataFrame([{"layer": 1, "head": 1, **dict.fromkeys(patterns, 0.1)}])
    panels = pattern_panels(store, heads)
    assert panels
    assert {panel.location.example for panel in panels} == {1}
