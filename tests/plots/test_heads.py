"""Figures by attention head and layer show their tables, in the colours of the token types."""

import itertools

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plot_checks import BERT, LONG_NAME, checked, head_table

from helpers.metrics.clustering import BEHAVIOURS
from helpers.metrics.heads import DIRECTIONS
from helpers.plots import heads as plots
from helpers.plots import scores
from helpers.plots.style import TOKEN_COLORS, TOKEN_STYLES, title_of

MODEL = "MiniLM, 6 layers of 12 heads"
TEXTS = {"model": MODEL, "lens": "attention"}
DECODER = {"cls": None, "sep": None}
PUNCTUATION = "periods and commas"
NEIGHBOURS = {"in_layer": 34, "by_chance": 11.0}
LINGUISTIC = ("dobj", "coreference", "det", "pobj")


def gradients(layers=3):
    """Make a table like gradients.csv, whose columns are multiples of one curve."""
    curve = np.linspace(0.02, 0.001, layers)
    names = [f"{kind}{unit}" for unit in ("", "_per_value", "_per_score") for kind in TOKEN_STYLES]
    table = pd.DataFrame({"layer": np.arange(layers) + 1, "objective": "contrastive", "loss": 0.51})
    table["articles"] = 8
    for factor, name in enumerate([*names, "other_over_cls", "other_over_sep"], 1):
        table[name] = factor * curve
        table[f"{name}_low"] = 0.9 * factor * curve
        table[f"{name}_high"] = (factor + 1) * curve
    return table


def positions(layers, heads):
    """Make a table like head_positions.csv; the first heads have the linguistic behaviours."""
    table = head_table(layers, heads)[["layer", "head"]]
    table[["x", "y"]] = np.random.default_rng(0).normal(size=(len(table), 2)) * 10
    behaviours = itertools.chain(LINGUISTIC, itertools.cycle(BEHAVIOURS))
    table["behaviour"] = list(itertools.islice(behaviours, len(table)))
    return table.assign(stress=0.3)


def every_figure(layers, heads):
    """Yield each figure by head and layer of an encoder of this shape."""
    texts = {"model": LONG_NAME, "lens": "norm"}
    table, slopes = head_table(layers, heads), gradients(layers)
    maps = np.random.default_rng(1).uniform(0, 90, (4, layers, heads))
    yield plots.fig2_token_types(table, BERT, **texts)
    yield plots.fig3_gradients({"trained": slopes, "random": slopes}, BERT, model=LONG_NAME)
    yield plots.fig4_entropy(table, BERT, **texts)
    plane = positions(layers, heads)
    yield plots.fig6_clusters(plane, table, BERT, NEIGHBOURS, tokens=1.0, model=LONG_NAME)
    yield plots.relative_position(table, **texts)
    accuracies = {(f"dobj{n} (99)", DIRECTIONS[0]): values for n, values in enumerate(maps)}
    yield scores.relation_heatmaps(accuracies, model=LONG_NAME)
    gains = table.assign(w_gain=maps[0].ravel() - 40, u_gain=maps[1].ravel() - 50)
    yield scores.probe_head_gains(gains, **texts)


def curves(axes):
    """List the values of the solid lines in axes."""
    return [line.get_ydata().tolist() for line in axes.lines if not line.is_dashed()]


@pytest.mark.filterwarnings("error")
def test_every_figure_can_be_read_and_has_white_at_zero():
    for figure in every_figure(30, 9):
        checked(figure)
        for image in itertools.chain.from_iterable(axes.images for axes in figure.axes):
            assert to_hex(image.cmap(image.norm(0.0))) == "#ffffff", title_of(figure)


def test_fig2_draws_heads_as_points_layer_means_as_lines_and_uniform_attention_dashed():
    table = head_table().assign(cls=0.1, punctuation=0.3, sep_to_sep=0.5)
    table["sep"] = 0.6 + table["other_to_sep"] / 100
    table["uniform_sep"] = np.repeat([0.1, 0.2, 0.3], 4)
    panels = plots.fig2_token_types(table, BERT, **TEXTS).axes
    columns = [["cls", "sep", "punctuation"], ["sep_to_sep", "other_to_sep"]]
    for axes, names in zip(panels, columns, strict=True):
        for name, curve, points in zip(names, curves(axes), axes.collections, strict=True):
            drawn = np.asarray(points.get_offsets())
            np.testing.assert_allclose(drawn[:, 1], table[name])
            assert (np.rint(drawn[:, 0]) == table["layer"]).all()
            np.testing.assert_allclose(curve, table.groupby("layer")[name].mean())
    (dashed,) = [line for line in panels[0].lines if line.is_dashed()]
    assert dashed.get_ydata().tolist() == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    labels = [text for text in panels[0].texts if text.get_transform() == panels[0].transAxes]
    labels.sort(key=lambda text: -text.get_position()[1])
    assert [text.get_text() for text in labels] == ["[SEP]", PUNCTUATION, "[CLS]"]
    assert to_hex(labels[0].get_color()).upper() == TOKEN_COLORS["sep"] == dashed.get_color()


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


def test_fig3_draws_gradients_of_each_unit_and_of_random_weights():
    table = gradients().assign(guess=2.77, other_over_sep=[3.0, 30.0, 10.0])
    table["other_over_sep_per_score"] = [0.5, 0.05, 0.1]
    tables = {"trained": table, "random": gradients().assign(sep=0.5)}
    figure = plots.fig3_gradients(tables, BERT, model=MODEL)
    for axes, unit in zip(figure.axes, ("", "_per_value", "_per_score"), strict=True):
        expected = [table[f"{token_type}{unit}"].tolist() for token_type in TOKEN_STYLES]
        random = [] if unit else [[0.5] * 3]  # of the token with the largest ratio
        assert curves(axes) == expected + random
    assert "30 times less" in title_of(figure) and "20 times more" in title_of(figure)
    worse = plots.fig3_gradients({"trained": table.assign(guess=0.5)}, BERT, model=MODEL)
    assert "guess" in title_of(worse)
    without = pd.DataFrame({"layer": [1, 2], "reason": "The text has one article."})
    figure = plots.fig3_gradients({"trained": without}, BERT, model=LONG_NAME)
    assert any("The text has one article." in text.get_text() for text in checked(figure).texts)


def test_fig4_draws_layer_means_uniform_attention_and_equal_tokens():
    table = head_table()
    table["entropy"] = table["layer"].map({1: 3.9, 2: 1.4, 3: 3.8})
    table["uniform"] = np.where(table["layer"] == 2, 2.0, 4.0)
    figure = plots.fig4_entropy(table, BERT, **TEXTS)
    for axes, column in zip(figure.axes[:2], ("entropy", "entropy_from_cls"), strict=True):
        means, uniform = axes.lines
        np.testing.assert_allclose(means.get_ydata(), table.groupby("layer")[column].mean())
        assert uniform.is_dashed()
        assert uniform.get_ydata().tolist() == [4, 4, 2, 2, 4, 4]
        assert uniform.get_xdata().tolist() == [0.5, 1.5, 1.5, 2.5, 2.5, 3.5]
    assert "Layer 2" in title_of(figure) and "1.4" in title_of(figure)
    entropy, _, tokens, _ = figure.axes
    assert tokens.get_ylim() == entropy.get_ylim()
    np.testing.assert_allclose(np.exp(tokens.get_yticks()), plots.TOKEN_TICKS)


def test_fig6_draws_every_head_in_every_panel_and_labels_linguistic_ones():
    table = positions(30, 9)
    averages = head_table(30, 9).assign(sep=0.1, cls=0.9)
    figure = plots.fig6_clusters(table, averages, BERT, NEIGHBOURS, tokens=4.0, model=MODEL)
    assert "34 of" in title_of(figure)
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


def test_relative_position_draws_values_by_layer_and_head():
    table = head_table()
    panels = plots.relative_position(table, **TEXTS).axes[:3]
    expected = zip(("previous", "current", "next"), ("25.0%", "50.0%", "10.0%"), strict=True)
    for axes, (column, uniform) in zip(panels, expected, strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), table[column].to_numpy().reshape(3, 4))
        assert column in axes.get_title("left") and uniform in axes.get_title("left")
        assert image.get_extent() == [0.5, 4.5, 3.5, 0.5]
        assert image.get_clim() == (0, 1)
    figure = plots.relative_position(table.assign(next=np.nan), **TEXTS)
    assert sum(bool(axes.images) for axes in figure.axes) == 2  # a decoder sees no next token
