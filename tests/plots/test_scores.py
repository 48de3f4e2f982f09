"""Figures of heads' and probes' scores show their tables and the paper's numbers."""

import numpy as np
import pandas as pd
from plot_checks import LONG_NAME, check_long_name, intervals

from helpers.metrics.heads import DIRECTIONS
from helpers.plots import scores

MODEL = "MiniLM, 6 layers of 12 heads"
WITHOUT_PUNCTUATION = "UAS without punctuation"


def test_relation_heatmaps_name_and_frame_the_best_head():
    values = np.full((3, 4), 10.0)
    values[1, 2] = 76.4
    axes = scores.relation_heatmaps({("dobj", DIRECTIONS[0]): values}, model=MODEL).axes[0]
    assert axes.get_title("left") == "dobj\n2-3: 76%, d → p"
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)


def test_relation_heatmaps_title_names_relations_only():
    maps = {}
    for name, accuracy in {"All, n = 9": 5.0, "dobj, n = 4": 60.0, "prep, n = 5": 40.0}.items():
        maps[name, DIRECTIONS[0]] = np.full((3, 4), accuracy)
    title = scores.relation_heatmaps(maps, model=MODEL).texts[0].get_text()
    assert " ".join(title.split()).endswith("finds 40% (prep) to 60% (dobj) of parents")


def coreference_table():
    """Make a table like coreference.csv: the same scores for two types of mention."""
    systems = pd.DataFrame({
        "system": ["nearest", "head", "head"], "head": ["", "5-4", "5-4"],
        "candidates": ["mentions", "mentions", "words"], "accuracy": [40.0, 41, 42], "n": 100,
        "accuracy_low": [35.0, 36, 37], "accuracy_high": [47.0, 48, 49],
        "paper_accuracy": [27, 65, np.nan],
    })  # fmt: skip
    return pd.concat([systems.assign(type="all"), systems.assign(type="pronoun")])


def test_coreference_scores_label_panels_and_bars():
    panels = scores.coreference_scores(coreference_table(), model=MODEL).axes
    assert [axes.get_title("left") for axes in panels] == ["all, n = 100", "pronoun, n = 100"]
    names = [label.get_text() for label in panels[0].get_yticklabels()]
    assert names == [
        "among mentions:", "nearest", "attention head", "among words:", "attention head",
    ]  # fmt: skip
    for axes in panels:
        texts = [text.get_text() for text in axes.texts]
        assert texts == ["40.0", "41.0  5-4", "42.0  5-4"]


def test_coreference_scores_draw_bars_intervals_and_paper():
    for axes in scores.coreference_scores(coreference_table(), model=MODEL).axes:
        assert [bar.get_width() for bar in axes.patches] == [40, 41, 42]
        assert intervals(axes) == [(35, 47), (36, 48), (37, 49)]
        *_, paper = axes.lines
        np.testing.assert_array_equal(paper.get_xdata(), [27, 65, np.nan])


def test_coreference_scores_draw_a_value_outside_its_interval_where_it_is():
    table = coreference_table().assign(accuracy_low=50.0, accuracy_high=60.0)
    for axes in scores.coreference_scores(table, model=MODEL).axes:
        assert [bar.get_width() for bar in axes.patches] == [40, 41, 42]
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
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    # The best first, and controls and baselines last.
    assert names == ["structural, UUAS", "Attn", "right-branching"]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["70.0", "54.0 (paper 61)", "26.0 (paper 26.3)"]
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] == colors[1] != colors[2]


def test_probe_scores_of_one_metric_name_the_probes_only():
    table = probe_table().query("metric != 'UUAS'")
    (axes,) = scores.probe_scores(table, model=MODEL, lens="attention").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Attn", "right-branching"]


def distance_table():
    """Make a table like accuracy_by_distance.csv, without words at a distance of 3 to 5."""
    rows = []
    for relation, shift in (("det", 0), ("dobj", 10), ("conj", 20)):
        for distance, accuracy in (("1", 60), ("2", 50), ("over 5", 10)):
            rows.append((relation, distance, 9, accuracy + shift, 1.0, 2.0))
    columns = ["relation", "distance", "count", "head", "offset", "nearest"]
    return pd.DataFrame(rows, columns=columns)


def test_accuracy_by_distance_draws_each_relation_of_the_titles():
    table = distance_table()
    titles = {"dobj": "dobj: 3-1", "det": "det: 3-9"}
    panels = scores.accuracy_by_distance(table, titles, model=MODEL).axes
    assert [axes.get_title("left") for axes in panels] == ["dobj: 3-1", "det: 3-9"]
    head, offset, nearest = panels[0].lines
    assert head.get_xdata().tolist() == [0, 1, 3]  # no word at a distance of 3 to 5
    assert head.get_ydata().tolist() == [70, 60, 20]
    assert set(offset.get_ydata()) == {1} and set(nearest.get_ydata()) == {2}
    labels = [label.get_text() for label in panels[0].get_xticklabels()]
    assert labels[2].endswith("n < 20") and labels[3].endswith("n = 9")


def test_a_long_name_of_a_model_stays_on_the_page():
    check_long_name(scores.coreference_scores(coreference_table(), model=LONG_NAME))
    check_long_name(scores.probe_scores(probe_table(), model=LONG_NAME, lens="norm"))
    check_long_name(scores.accuracy_by_distance(distance_table(), {"det": "det"}, model=LONG_NAME))
