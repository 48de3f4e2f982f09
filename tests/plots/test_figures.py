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

MODEL = "MiniLM, 6 layers of 12 heads"
TEXTS = {"model": LONG_NAME, "lens": "norm"}
DECODER = {"cls": None, "sep": None}
PUNCTUATION = "periods and commas"
LINGUISTIC = ("dobj", "coreference", "det", "pobj")


@cache
def tables_of(run):
    return read_tables(committed_figures() / run)


def fig2(run):
    table = rows_of_model(tables_of(run)["token_types"])
    is_encoder = run == "minilm"
    columns = ["cls", "sep", "punctuation"] if is_encoder else ["first", "punctuation"]
    figure = plots.fig2_token_types(table, BERT if is_encoder else DECODER, **TEXTS)
    means = table.groupby("layer")[[*columns, "uniform_punctuation"]].mean()
    return figure, [*np.ravel(table[columns]), *np.ravel(means)]


def fig3(run):
    tables = {
        name: rows_of_model(tables_of(run)["gradients"], name) for name in ("trained", "random")
    }
    keys = ("first", "cls", "sep", "punctuation", "other")
    columns = [key + unit for key in keys for unit in plots.GRADIENT_PANELS]
    figure = plots.fig3_gradients(tables, BERT if run == "minilm" else DECODER, model=LONG_NAME)
    assert "times less" in title_of(figure)
    return figure, np.ravel(tables["trained"][columns].dropna(axis="columns"))


def fig4(run):
    table = rows_of_model(tables_of(run)["entropy"])
    columns = ["entropy", "uniform", *(["entropy_from_cls"] if run == "minilm" else [])]
    means = table.groupby("layer")[columns].mean()
    figure = plots.fig4_entropy(table, BERT if run == "minilm" else DECODER, **TEXTS)
    assert f"Layer {means['entropy'].idxmin()} has the narrowest" in title_of(figure)
    return figure, [*np.ravel(table[columns[::2]]), *np.ravel(means)]


def relative_position(run):
    table = rows_of_model(tables_of(run)["relative_position"])
    numbers = table[["previous", "current", "next"]].dropna(axis="columns")  # no next of a decoder
    return plots.relative_position(table, **TEXTS), np.ravel(numbers)


def probe_scores(run):
    table = tables_of(run)["probes"]
    figure = scores.probe_scores(table, **TEXTS)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    is_control = [name.lower().startswith(scores.CONTROLS) for name in names]
    assert is_control == sorted(is_control) and "Structural probe, UUAS" in names
    drawn = table[table["metric"].isin(COMPARED)]
    bounds = drawn[["value_low", "value_high"]].sort_values("value_low")
    np.testing.assert_allclose(sorted(intervals(axes)), bounds)
    return figure, [*drawn["value"], *drawn["paper_value"].dropna()]


def coreference_scores(run):
    table = tables_of(run)["coreference"]
    is_head = (table["system"] == HELD_OUT) & (table["candidates"] == "mentions")
    rows = table[is_head | table["system"].isin(["nearest mention", "rule-based"])]
    types = ["all", "pronoun", "proper", "nominal"]
    rows = rows[rows["type"].isin(types)]
    figure = scores.coreference_scores(table, model=LONG_NAME)
    assert [axes.get_title("left").partition(",")[0] for axes in figure.axes] == types
    bars = [bar.get_width() for axes in figure.axes for bar in axes.patches]
    assert sorted(bars) == sorted(rows["accuracy"])
    assert figure.axes[0].texts[0].get_text().split()[1] == rows["head"].iloc[-4]
    return figure, rows["paper_accuracy"].dropna()


def accuracy_by_distance(run):
    table = rows_of_model(tables_of(run)["accuracy_by_distance"])
    titles = {"every relation": "every relation", "dobj": "dobj: 3-1", "det": "det: 3-9"}
    figure = scores.accuracy_by_distance(table, titles, model=LONG_NAME)
    assert [len(axes.lines) for axes in figure.axes] == [3, 2, 2]
    columns = table.set_index("relation")[["head", "nearest"]].loc[list(titles)]
    return figure, [
        *np.ravel(columns),
        *table.set_index("relation").loc["every relation", "offset"],
    ]


def probe_head_gains(run):
    table = tables_of(run)["probe_heads"]
    return scores.probe_head_gains(table, **TEXTS), np.ravel(table[["w_gain", "u_gain"]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("draw", "run"),
    [
        *itertools.product([fig2, fig4], ["minilm", "smollm2"]),
        *itertools.product([fig3, relative_position, probe_head_gains], ["smollm2"]),
        *itertools.product([probe_scores, coreference_scores, accuracy_by_distance], ["minilm"]),
    ],
)
def test_a_figure_draws_the_numbers_of_its_table_and_can_be_read(draw, run):
    figure, numbers = draw(run)
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
        ({"sep": np.nan}, {"cls": "<s>", "sep": None}, ["<s>"]),
    ],
    ids=["decoder", "first is [CLS]", "first is another", "no separator"],
)
def test_fig2_has_the_tokens_of_the_model(columns, tokens, names):
    table = head_table().assign(first_low=0.2, first_high=0.4, **columns)
    axes = plots.fig2_token_types(table, tokens, **TEXTS).axes[0]
    drawn = {line.get_label() for line in axes.lines if not line.is_dashed()}
    assert drawn == {*names, PUNCTUATION}


def test_fig3_says_why_it_cannot_say_more():
    tables = {"trained": rows_of_model(tables_of("minilm")["gradients"])}
    tables["trained"]["guess"] = 0.1
    assert "guess" in title_of(plots.fig3_gradients(tables, BERT, model=MODEL))
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


def positions(layers, heads):
    """Make a table like head_positions.csv; the first heads have the linguistic behaviours."""
    table = head_table(layers, heads)[["layer", "head"]]
    table[["x", "y"]] = np.random.default_rng(0).normal(size=(len(table), 2)) * 10
    behaviours = itertools.chain(LINGUISTIC, itertools.cycle(BEHAVIOURS))
    table["behaviour"] = list(itertools.islice(behaviours, len(table)))
    return table.assign(stress=0.3)


def test_fig6_draws_every_head_in_every_panel_and_labels_linguistic_ones():
    table = positions(30, 9)
    averages = head_table(30, 9).assign(sep=0.1, cls=0.9)
    figure = plots.fig6_clusters(table, averages, BERT, 0.34, tokens=4.0, model=MODEL)
    assert "0.34 times" in title_of(figure)
    figure.draw_without_rendering()
    panels = figure.axes[:4]
    for axes in panels:
        np.testing.assert_allclose(axes.collections[0].get_offsets(), table[["x", "y"]] / 4)
        units = axes.transData.transform([(0, 0), (1, 1)])
        assert units[1, 0] - units[0, 0] == pytest.approx(units[1, 1] - units[0, 1])
    broad, special, syntax, by_layer = [axes.collections for axes in panels]
    np.testing.assert_allclose(broad[0].get_array(), averages["entropy"] / averages["uniform"])
    np.testing.assert_allclose(special[0].get_array(), averages["cls"])
    np.testing.assert_array_equal(by_layer[0].get_array(), table["layer"])
    assert len(syntax[1].get_offsets()) == len(LINGUISTIC)
    labels = panels[2].texts
    linguistic = table[table["behaviour"].isin(LINGUISTIC)]
    numbers = [f"{head.layer}-{head.head}" for head in linguistic.itertuples()]
    assert [text.get_text() for text in labels] == numbers
    boxes = [mpl.text.Text.get_window_extent(text) for text in labels]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    inside = panels[2].bbox.padded(1)  # pixel
    assert all(inside.contains(*corner) for box in boxes for corner in box.corners())


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
