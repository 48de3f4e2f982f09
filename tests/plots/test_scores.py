"""Figures of heads' and probes' scores show their tables and the paper's numbers."""

import numpy as np
import pandas as pd
from plot_checks import LONG_NAME, checked, intervals

from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.heads import DIRECTIONS
from helpers.plots import scores
from helpers.plots.style import title_of

WITHOUT_PUNCTUATION = "UAS without punctuation"


def test_relation_heatmaps_frame_the_best_head_and_count_good_ones():
    maps = {}
    for name, accuracy in {"All (9)": 75.0, "dobj (4)": 60.0, "prep (5)": 40.0}.items():
        maps[name, DIRECTIONS[0]] = np.full((3, 4), 10.0)
        maps[name, DIRECTIONS[0]][1, 2] = accuracy
    figure = scores.relation_heatmaps(maps, model=LONG_NAME, layer_numbers=[2, 4, 7])
    axes = figure.axes[0]
    assert "4-3: 75%" in axes.get_title("left")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "4", "7"]
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)
    assert "1 of 2" in title_of(figure)


def test_coreference_scores_draw_the_held_out_head_two_rules_and_the_paper():
    systems = pd.DataFrame({
        "system": ["nearest mention", "rule-based", "head", HELD_OUT, HELD_OUT],
        "head": ["", "", "5-4", "5-4", "5-4"],
        "candidates": ["earlier mentions", "earlier mentions", "mentions", "mentions", "words"],
        "accuracy": [40.0, 60, 41, 42, 43], "n": [100, 100, 100, 50, 50],
        "paper_accuracy": [27, 69, 65, np.nan, np.nan],
    })  # fmt: skip
    systems["accuracy_low"] = systems["accuracy"] + 8  # also beside its value
    systems["accuracy_high"] = systems["accuracy"] + 18
    types = ("all", "pronoun", "proper", "nominal")
    table = pd.concat([systems.assign(type=name) for name in types])
    figure = scores.coreference_scores(table, model=LONG_NAME)
    checked(figure)
    titles = [axes.get_title("left").partition(",")[0] for axes in figure.axes]
    assert titles == ["all", "pronoun", "proper", "nominal"]
    for axes in figure.axes:
        assert [bar.get_width() for bar in axes.patches] == [42, 60, 40]
        assert intervals(axes) == [(value + 8, value + 18) for value in (42, 60, 40)]
        assert axes.texts[0].get_text().split() == ["42", "5-4"]
        *_, paper = axes.lines
        np.testing.assert_array_equal(paper.get_xdata(), [np.nan, 69, 27])


def test_probe_scores_have_the_best_first_and_controls_last():
    rows = [
        ("right-branching", "UAS", 24.0, 23.0, 25.0, np.nan),
        ("right-branching", WITHOUT_PUNCTUATION, 26.0, 25.0, 27.0, 26.3),
        ("Attn", WITHOUT_PUNCTUATION, 54.0, 52.0, 55.0, 61.0),
        ("structural", "UUAS", 70.0, np.nan, np.nan, np.nan),  # has no interval
    ]
    columns = ["probe", "metric", "value", "value_low", "value_high", "paper_value"]
    table = pd.DataFrame(rows, columns=columns)
    figure = scores.probe_scores(table, model=LONG_NAME, lens="attention")
    checked(figure)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["structural, UUAS", "Attn", "right-branching"]  # the rarer metric is named
    assert [bar.get_width() for bar in axes.patches] == [70, 54, 26]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] == colors[1] != colors[2]
    assert "54%" in title_of(figure)


def distance_table(*relations):
    """Make a table like accuracy_by_distance.csv, without words at a distance of 3 to 5."""
    rows = []
    for shift, relation in enumerate(relations):
        for distance, accuracy in (("1", 60), ("2", 50), ("over 5", 10)):
            rows.append((relation, distance, 99, accuracy + shift, 1.0, 2.0))
    columns = ["relation", "distance", "count", "head", "offset", "nearest"]
    return pd.DataFrame(rows, columns=columns)


def test_accuracy_by_distance_draws_all_rules_once_and_two_for_each_relation():
    titles = {"every relation": "every relation", "dobj": "dobj: 3-1", "det": "det: 3-9"}
    table = distance_table("every relation", "det", "dobj")
    figure = scores.accuracy_by_distance(table, titles, model=LONG_NAME)
    checked(figure)
    first, *others = figure.axes
    assert [axes.get_title("left") for axes in others] == ["dobj: 3-1", "det: 3-9"]
    head, nearest, offset = first.lines
    assert head.get_xdata().tolist() == [0, 1, 3]  # no word at a distance of 3 to 5
    assert head.get_ydata().tolist() == [60, 50, 10]
    assert set(offset.get_ydata()) == {1} and set(nearest.get_ydata()) == {2}
    for axes, shift in zip(others, (2, 1), strict=True):
        values = [line.get_ydata().tolist() for line in axes.lines]
        assert values == [[60 + shift, 50 + shift, 10 + shift], [2, 2, 2]]
    without_tags = distance_table("every relation").assign(nearest=np.nan)
    figure = scores.accuracy_by_distance(without_tags, {"every relation": "every"}, model=LONG_NAME)
    checked(figure)
    assert len(figure.axes[0].lines) == 2
