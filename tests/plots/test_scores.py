"""Figures of heads' and probes' scores show their tables and the paper's numbers."""

import numpy as np
import pandas as pd
from plot_checks import LONG_NAME, check_figure, check_long_name, intervals

from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.heads import DIRECTIONS
from helpers.plots import scores

MODEL = "MiniLM, 6 layers of 12 heads"
WITHOUT_PUNCTUATION = "UAS without punctuation"


def test_relation_heatmaps_name_and_frame_the_best_head():
    values = np.full((3, 4), 10.0)
    values[1, 2] = 76.4
    axes = scores.relation_heatmaps({("dobj", DIRECTIONS[0]): values}, model=MODEL).axes[0]
    assert "2-3: 76%" in axes.get_title("left")
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)


def test_relation_heatmaps_count_the_relations_with_a_good_head():
    maps = {}
    for name, accuracy in {"All (9)": 75.0, "dobj (4)": 60.0, "prep (5)": 40.0}.items():
        maps[name, DIRECTIONS[0]] = np.full((3, 4), accuracy)
    figure = scores.relation_heatmaps(maps, model=MODEL)
    assert "1 of 2" in scores.style.title_of(figure)


def coreference_table():
    """Make a table like coreference.csv: the same scores for two types of mention."""
    systems = pd.DataFrame({
        "system": ["nearest mention", "rule-based", "head", HELD_OUT, HELD_OUT],
        "head": ["", "", "5-4", "5-4", "5-4"],
        "candidates": ["earlier mentions", "earlier mentions", "mentions", "mentions", "words"],
        "accuracy": [40.0, 60, 41, 42, 43], "n": [100, 100, 100, 50, 50],
        "accuracy_low": [35.0, 55, 36, 37, 38], "accuracy_high": [47.0, 66, 48, 49, 50],
        "paper_accuracy": [27, 69, 65, np.nan, np.nan],
    })  # fmt: skip
    return pd.concat([systems.assign(type="all"), systems.assign(type="pronoun")])


def test_coreference_scores_draw_the_held_out_head_two_rules_and_the_paper():
    figure = scores.coreference_scores(coreference_table(), model=MODEL)
    check_figure(figure)
    assert len(figure.axes) == 2
    for axes in figure.axes:
        assert [bar.get_width() for bar in axes.patches] == [42, 60, 40]
        assert intervals(axes) == [(37, 49), (55, 66), (35, 47)]
        assert axes.texts[0].get_text().split() == ["42", "5-4"]
        *_, paper = axes.lines
        np.testing.assert_array_equal(paper.get_xdata(), [np.nan, 69, 27])


def test_coreference_scores_draw_a_value_outside_its_interval_where_it_is():
    table = coreference_table().assign(accuracy_low=50.0, accuracy_high=60.0)
    for axes in scores.coreference_scores(table, model=MODEL).axes:
        assert [bar.get_width() for bar in axes.patches] == [42, 60, 40]
        assert intervals(axes) == [(50, 60)] * 3


def probe_table():
    """Make a table like probes.csv; one row has no interval."""
    rows = [
        ("right-branching", "UAS", 24.0, 23.0, 25.0, np.nan),
        ("right-branching", WITHOUT_PUNCTUATION, 26.0, 25.0, 27.0, 26.3),
        ("Attn", WITHOUT_PUNCTUATION, 54.0, 52.0, 55.0, 61.0),
        ("structural", "UUAS", 70.0, np.nan, np.nan, np.nan),
    ]
    columns = ["probe", "metric", "value", "value_low", "value_high", "paper_value"]
    return pd.DataFrame(rows, columns=columns)


def test_probe_scores_of_two_metrics_name_the_rarer():
    figure = scores.probe_scores(probe_table(), model=MODEL, lens="attention")
    check_figure(figure)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    # The best first, and controls and baselines last.
    assert names == ["structural, UUAS", "Attn", "right-branching"]
    assert [bar.get_width() for bar in axes.patches] == [70, 54, 26]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] == colors[1] != colors[2]
    assert "54%" in scores.style.title_of(figure)


def test_probe_scores_of_one_metric_name_the_probes_only():
    table = probe_table().query("metric != 'UUAS'")
    (axes,) = scores.probe_scores(table, model=MODEL, lens="attention").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Attn", "right-branching"]


def distance_table(relations=("every relation", "det", "dobj")):
    """Make a table like accuracy_by_distance.csv, without words at a distance of 3 to 5."""
    rows = []
    for shift, relation in enumerate(relations):
        for distance, accuracy in (("1", 60), ("2", 50), ("over 5", 10)):
            rows.append((relation, distance, 99, accuracy + shift, 1.0, 2.0))
    columns = ["relation", "distance", "count", "head", "offset", "nearest"]
    return pd.DataFrame(rows, columns=columns)


def test_accuracy_by_distance_draws_all_rules_once_and_two_for_each_relation():
    titles = {"every relation": "every relation", "dobj": "dobj: 3-1", "det": "det: 3-9"}
    figure = scores.accuracy_by_distance(distance_table(), titles, model=MODEL)
    check_figure(figure)
    first, *others = figure.axes
    assert [axes.get_title("left") for axes in others] == ["dobj: 3-1", "det: 3-9"]
    head, nearest, offset = first.lines
    assert head.get_xdata().tolist() == [0, 1, 3]  # no word at a distance of 3 to 5
    assert head.get_ydata().tolist() == [60, 50, 10]
    assert set(offset.get_ydata()) == {1} and set(nearest.get_ydata()) == {2}
    for axes, shift in zip(others, (2, 1), strict=True):
        assert [line.get_ydata().tolist() for line in axes.lines] == [
            [60 + shift, 50 + shift, 10 + shift], [2, 2, 2],
        ]  # fmt: skip


def test_accuracy_by_distance_of_one_relation_without_tags():
    table = distance_table(["every relation"]).assign(nearest=np.nan)
    figure = scores.accuracy_by_distance(table, {"every relation": "every"}, model=MODEL)
    check_figure(figure)
    assert len(figure.axes[0].lines) == 2


def test_a_long_name_of_a_model_stays_on_the_page():
    check_long_name(scores.coreference_scores(coreference_table(), model=LONG_NAME))
    check_long_name(scores.probe_scores(probe_table(), model=LONG_NAME, lens="norm"))
    titles = {"every relation": "every relation", "det": "det"}
    check_long_name(scores.accuracy_by_distance(distance_table(), titles, model=LONG_NAME))
