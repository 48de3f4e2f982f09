"""Figures of heads' and probes' scores show their tables, beside the paper's numbers."""

import numpy as np
import pandas as pd

from helpers.analysis.heads import DIRECTIONS
from helpers.plots import scores

PLAIN = "UAS without punctuation"


def test_relation_heat_map_names_and_frames_the_best_head():
    values = np.full((3, 4), 10.0)
    values[1, 2] = 76.4
    axes = scores.relation_heatmaps({("dobj", DIRECTIONS[0]): values}).axes[0]
    assert axes.get_title("left") == "dobj\n2-3: 76%, d → h"
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)


def test_coreference_bars_intervals_and_paper():
    systems = pd.DataFrame({
        "system": ["nearest", "head", "head"], "head": ["", "5-4", "5-4"],
        "candidates": ["mentions", "mentions", "words"], "accuracy": [40.0, 41, 42], "n": 100,
        "accuracy_low": [35.0, 36, 37], "accuracy_high": [47.0, 48, 49],
        "paper_accuracy": [27, 65, np.nan],
    })  # fmt: skip
    table = pd.concat([systems.assign(type=kind) for kind in ("all", "pronoun")])
    panels = scores.coreference_scores(table).axes
    assert [axes.get_title("left") for axes in panels] == ["all\nn = 100", "pronoun\nn = 100"]
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert names == ["nearest\namong mentions", "head\namong mentions", "head\namong words"]
    for axes in panels:
        assert [bar.get_width() for bar in axes.patches] == [40, 41, 42]
        assert [text.get_text() for text in axes.texts if "-" in text.get_text()] == ["5-4", "5-4"]
        *intervals, paper = axes.lines
        ends = [(line.get_xdata()[1], line.get_xdata()[-2]) for line in intervals]
        assert ends == [(35, 47), (36, 48), (37, 49)]
        np.testing.assert_array_equal(paper.get_xdata(), [27, 65, np.nan])


def test_probe_bars_tell_metrics_apart_and_bear_missing_intervals():
    rows = [
        ("right-branching", "UAS", 24.0, 23.0, 25.0, np.nan),
        ("right-branching", PLAIN, 26.0, 25.0, 27.0, 26.3),
        ("Attn", PLAIN, 54.0, 52.0, 55.0, 61.0),
        ("structural", "UUAS", 70.0, np.nan, np.nan, np.nan),
    ]
    columns = ["probe", "metric", "value", "value_low", "value_high", "paper_value"]
    table = pd.DataFrame(rows, columns=columns)
    figure = scores.probe_scores(table)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"right-branching ({PLAIN})", f"Attn ({PLAIN})", "structural (UUAS)"]
    assert [text.get_text() for text in axes.texts] == ["26.0", "54.0", "70.0"]
    one_metric = scores.probe_scores(table.query("metric != 'UUAS'")).axes[0]
    assert one_metric.get_yticklabels()[1].get_text() == "Attn"


def test_learning_curves_are_sorted_by_size():
    columns = {"n_train": [400, 100], "value": [50.0, 40.0]}
    table = pd.DataFrame({"probe": "Attn", "metric": PLAIN, **columns})
    table = table.assign(value_low=table["value"] - 1, value_high=table["value"] + 2)
    both = pd.concat([table, table.assign(metric="UAS", value=0)])
    (axes,) = scores.learning_curves(both).axes
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[100, 40], [400, 50]])
    (band,) = axes.collections
    assert {tuple(corner) for corner in band.get_paths()[0].vertices} == {
        (100, 39), (100, 42), (400, 49), (400, 52)
    }  # fmt: skip
