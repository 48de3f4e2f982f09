"""Figures 2 to 6 and those of scores draw the numbers of their tables, here of committed runs."""

import itertools
from functools import cache

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from matplotlib.colors import to_hex
from plot_checks import BERT, LONG_NAME, checked, drawn_numbers, head_table, intervals

from helpers.metrics import rows_of_model
from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.reference import COMPARED
from helpers.plots import heads as plots
from helpers.plots import scores
from helpers.plots.style import title_of
from helpers.results import read_tables

TEXTS = {"model": LONG_NAME, "lens": "norm"}
DECODER = {"cls": None, "sep": None}
PUNCTUATION = "periods and commas"
LINGUISTIC = ["dobj", "coreference", "det", "pobj"]


@cache
def tables_of(run):
    return read_tables(committed_figures() / run)


def fig2():
    table = rows_of_model(tables_of("minilm")["token_types"])
    columns = ["cls", "sep", "punctuation"]
    means = table.groupby("layer")[[*columns, "uniform_punctuation"]].mean()
    numbers = [*np.ravel(table[columns]), *np.ravel(means)]
    return plots.fig2_token_types(table, BERT, **TEXTS), numbers


def fig3():
    table = tables_of("smollm2")["gradients"]
    tables = {name: rows_of_model(table, name) for name in ("trained", "random")}
    keys = ("first", "punctuation", "other")
    columns = [key + unit for key in keys for unit in plots.GRADIENT_PANELS]
    figure = plots.fig3_gradients(tables, DECODER, model=LONG_NAME)
    return figure, np.ravel(tables["trained"][columns])


def fig4():
    table = rows_of_model(tables_of("smollm2")["entropy"])
    means = table.groupby("layer")[["entropy", "uniform"]].mean()
    figure = plots.fig4_entropy(table, DECODER, **TEXTS)
    return figure, [*table["entropy"], *np.ravel(means)]


def relative_position():
    table = rows_of_model(tables_of("smollm2")["relative_position"])
    return plots.relative_position(table, **TEXTS), np.ravel(table[["previous", "current"]])


def probe_scores():
    table = tables_of("minilm")["probes"]
    figure = scores.probe_scores(table, **TEXTS)
    drawn = table[table["metric"].isin(COMPARED)]
    bounds = drawn[["value_low", "value_high"]].sort_values("value_low")
    np.testing.assert_allclose(sorted(intervals(figure.axes[0])), bounds)
    return figure, [*drawn["value"], *drawn["paper_value"].dropna()]


def coreference_scores():
    table = tables_of("minilm")["coreference"]
    is_head = (table["system"] == HELD_OUT) & (table["candidates"] == "mentions")
    rows = table[is_head | table["system"].isin(["nearest mention", "rule-based"])]
    rows = rows[rows["type"].isin(["all", "pronoun", "proper", "nominal"])]
    figure = scores.coreference_scores(table, model=LONG_NAME)
    bars = [bar.get_width() for axes in figure.axes for bar in axes.patches]
    assert sorted(bars) == sorted(rows["accuracy"])
    return figure, rows["paper_accuracy"].dropna()


def accuracy_by_distance():
    table = rows_of_model(tables_of("minilm")["accuracy_by_distance"])
    titles = {"every relation": "every relation", "dobj": "dobj: 3-1", "det": "det: 3-9"}
    figure = scores.accuracy_by_distance(table, titles, model=LONG_NAME)
    return figure, np.ravel(table.set_index("relation")[["head", "nearest"]].loc[list(titles)])


def probe_head_gains():
    table = tables_of("smollm2")["probe_heads"]
    return scores.probe_head_gains(table, **TEXTS), np.ravel(table[["w_gain", "u_gain"]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "draw",
    [
        fig2, fig3, fig4, relative_position, probe_scores, coreference_scores,
        accuracy_by_distance, probe_head_gains,
    ],
)  # fmt: skip
def test_a_figure_draws_the_numbers_of_its_table_and_can_be_read(draw):
    figure, numbers = draw()
    drawn = drawn_numbers(checked(figure))
    for number in numbers:
        assert np.isclose(drawn, number, rtol=1e-6, atol=1e-6).any(), number
    for image in itertools.chain.from_iterable(axes.images for axes in figure.axes):
        assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff"


@pytest.mark.parametrize(
    ("columns", "tokens", "names"),
    [
        ({"cls": np.nan, "sep": np.nan, "first": 0.3}, DECODER, ["the first token"]),
        ({"first": head_table()["cls"]}, BERT, BERT.values()),
        ({"first": 0.3}, BERT, ["the first token", *BERT.values()]),
    ],
    ids=["decoder", "first is [CLS]", "first is another"],
)
def test_fig2_has_the_tokens_of_the_model(columns, tokens, names):
    table = head_table().assign(first_low=0.2, first_high=0.4, **columns)
    axes = plots.fig2_token_types(table, tokens, **TEXTS).axes[0]
    drawn = {line.get_label() for line in axes.lines if not line.is_dashed()}
    assert drawn == {*names, PUNCTUATION}


def test_fig3_says_why_nothing_is_measured():
    without = pd.DataFrame({"layer": [1, 2], "reason": "The text has one article."})
    figure = plots.fig3_gradients({"trained": without}, BERT, model=LONG_NAME)
    assert any("The text has one article." in text.get_text() for text in checked(figure).texts)


def test_fig3_is_drawn_if_the_first_token_has_no_gradient():
    table = rows_of_model(tables_of("smollm2")["gradients"])
    zeros = dict.fromkeys(table.filter(regex="^first"), 0.0)
    no_ratios = dict.fromkeys(table.filter(regex="^other_over_first"), np.nan)
    tables = {"trained": table.assign(**zeros, **no_ratios)}
    figure = checked(plots.fig3_gradients(tables, DECODER, model=LONG_NAME))
    drawn = drawn_numbers(figure)
    assert all(np.isclose(drawn, number, rtol=1e-6).any() for number in table["other"])


def test_fig3_has_ticks_if_gradients_differ_by_less_than_ten_times():
    table = rows_of_model(tables_of("minilm")["gradients"])
    columns = table.filter(regex="^(first|cls|sep|punctuation|other)(_per|_low|_high|$)").columns
    table[columns] = np.random.default_rng(0).uniform(2e-4, 3e-4, (len(table), len(columns)))
    figure = plots.fig3_gradients({"trained": table, "random": table}, BERT, model=LONG_NAME)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) > 1


def test_fig6_draws_every_head_in_every_panel_and_labels_linguistic_ones():
    averages = head_table(30, 9).assign(sep=0.1, cls=0.9)
    table = averages[["layer", "head"]].assign(behaviour=next(iter(BEHAVIOURS)))
    table[["x", "y"]] = np.random.default_rng(0).normal(size=(len(table), 2)) * 10
    table.loc[: len(LINGUISTIC) - 1, "behaviour"] = LINGUISTIC
    figure = plots.fig6_clusters(table, averages, BERT, 0.34, tokens=4.0, model=LONG_NAME)
    assert "0.34 times" in title_of(figure)
    figure.draw_without_rendering()
    panels = figure.axes[:4]
    for axes in panels:
        np.testing.assert_allclose(axes.collections[0].get_offsets(), table[["x", "y"]] / 4)
    np.testing.assert_allclose(panels[1].collections[0].get_array(), averages["cls"])
    labels = panels[2].texts
    assert [text.get_text() for text in labels] == ["1-1", "1-2", "1-3", "1-4"]
    boxes = [mpl.text.Text.get_window_extent(text) for text in labels]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_relation_heatmaps_frame_the_best_head_and_count_good_ones():
    maps = {}
    for name, accuracy in {"All (9)": 75.0, "dobj (4)": 60.0, "prep (5)": 40.0}.items():
        maps[name, DIRECTIONS[0]] = np.full((3, 4), 10.0)
        maps[name, DIRECTIONS[0]][1, 2] = accuracy
    figure = scores.relation_heatmaps(maps, model=LONG_NAME, layer_numbers=[2, 4, 7])
    axes = figure.axes[0]
    assert "4-3: 75%" in axes.get_title("left")
    (frame,) = axes.patches
    assert frame.get_xy() == (2.5, 1.5)
    assert "1 of 2" in title_of(figure)
