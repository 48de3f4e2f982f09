"""Figures 14 to 20 draw the values of their tables."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from plot_checks import LONG_NAME, check_figure, check_long_name

from beyond.papers.sinks import plots
from beyond.papers.sinks.transplant import CHANGES, INTACT, SINK, TARGET_TOKEN
from helpers.metrics import by_model
from helpers.metrics.heads import head_rows

SPECIAL_TOKENS = {"cls": "<s>", "sep": "</s>"}


def random_head_table(columns, *, scale=1.0):
    """Make a table of 3 layers of 5 heads with random values."""
    rng = np.random.default_rng(0)
    return head_rows(3, 5, **{name: scale * rng.random((3, 5)) for name in columns})


def line_of(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_ydata()


def sink_causes():
    columns = ["cls", "cls_without_largest", "cls_without_second", "constant", "content"]
    values = np.arange(15.0).reshape(3, 5)
    return pd.DataFrame(values, columns=columns).assign(layer=[1, 2, 3], position=-1.0)


def test_fig14_draws_shares_and_parts_of_the_lead():
    causes = sink_causes()
    figure = plots.fig14_sinks(causes, "<s>", model="tiny")
    of_shares, of_mean, of_deviations = figure.axes
    np.testing.assert_allclose(line_of(of_shares, "intact"), causes["cls"])
    largest = line_of(of_shares, "largest dimension set to its mean")
    np.testing.assert_allclose(largest, causes["cls_without_largest"])
    np.testing.assert_allclose(line_of(of_mean, "intact"), causes["constant"])
    np.testing.assert_allclose(line_of(of_deviations, "by position"), -1)
    assert of_deviations.get_ylim()[0] < -1  # a negative value is inside the panel
    assert "<s>" in of_shares.get_title("left")
    assert figure.texts[0].get_text().endswith("<s> gets 600% of the attention, not 500%")


# Losses by dropping and by mass-matched ablation: of the angle, and of an outcome for each token.
ANGLES = {"cls": (1.0, 3.0), "sep": (4.0, 1.0)}


def edges(outcomes):
    """Make edges.csv of the group 2-3 from the losses of each measure, by token."""
    rows = []
    for measure, by_token in {"sentence angle": ANGLES, **outcomes}.items():
        for keys, losses in by_token.items():
            for change, loss in zip(("dropped", "mass-matched"), losses, strict=True):
                rows.append(("trained", "2-3", keys, change, measure, loss, loss - 1, loss + 1))
    names = ["model", "layers", "keys", "change", "measure", "value", "value_low", "value_high"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(value_df=table["measure"].map({"objective": 1}).fillna(17), queries="all")


@pytest.mark.parametrize("layers", [1, 4])
def test_fig15_draws_a_ratio_for_each_token_and_model(layers):
    rows = []
    for keys in ("cls", "sep"):
        for layer in [*range(1, layers + 1), "2-3"]:
            rows.append((layer, keys, "dropped / mass-matched", 0.5, 0.4, 0.6))
            rows.append((layer, keys, "redistributed / dropped", 9.0, 8.0, 10.0))
    names = ["layers", "keys", "ways", "ratio", "ratio_low", "ratio_high"]
    ratios = pd.DataFrame(rows, columns=names).assign(queries="all")
    ratios = by_model({"trained": ratios, "random": ratios.assign(ratio=5)})
    same_order = {"cls": (0.0, 5.0), "sep": (2.0, 1.0)}
    table = edges({"objective": same_order, "structural probe": {"cls": (2, 1), "sep": (2, 1)}})
    *token_axes, of_loss, of_probe = plots.fig15_edges(table, ratios, SPECIAL_TOKENS, model="").axes
    titles = ["Attention to <s>", "Attention to </s>"]
    assert [axes.get_title("left") for axes in token_axes] == titles
    for axes in token_axes:
        np.testing.assert_allclose(line_of(axes, "trained"), [0.5] * layers)
        np.testing.assert_allclose(line_of(axes, "random weights"), [5] * layers)
    assert of_loss.get_title("left") == "objective, layers 2-3 (2 articles: no interval)"
    assert not of_loss.findobj(LineCollection)  # two articles
    ends = []
    for bars in of_probe.findobj(LineCollection):
        ends += [segment[:, 0].tolist() for segment in bars.get_segments()]
    assert ends == [[1, 3], [1, 3], [0, 2], [0, 2]]
    assert of_probe.get_title("left") == "structural probe, layers 2-3"
    assert line_of(of_probe, "dropped").tolist() == pytest.approx([-0.3, 0.7])
    assert points_of(of_probe, "dropped") == [2, 2]
    assert points_of(of_probe, "mass-matched") == [1, 1]


def points_of(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_xdata().tolist()


def test_the_title_of_fig15_has_the_ranges_of_each_token():
    rows = []
    for keys, ratios in {"cls": (0.12, 0.8), "sep": (1.3, 3.7)}.items():
        for layer, ratio in enumerate(ratios, 1):
            rows.append((layer, keys, "all", "dropped / mass-matched", ratio, 0.1, 4.0))
    names = ["layers", "keys", "queries", "ways", "ratio", "ratio_low", "ratio_high"]
    ratios = pd.DataFrame(rows, columns=names)
    table = edges({"objective": ANGLES, "structural probe": ANGLES})
    ratios = by_model({"trained": ratios, "random": ratios.assign(ratio=9.0)})
    figure = plots.fig15_edges(table, ratios, SPECIAL_TOKENS, model=LONG_NAME)
    title = (
        "Figure 15 · If attention to <s> is dropped, the sentence vector turns 0.1 to 0.8 times "
        "as far as if words lose as much (</s>: 1.3 to 3.7)"
    )
    assert figure.texts[0].get_text().replace("\n", " ") == title
    check_long_name(figure)
    check_figure(figure)


def test_fig15_draws_the_loss_of_a_decoder_by_layer():
    modes = ["dropped", "redistributed", "mass-matched", "mass-matched on the most attended"]
    rows = []
    for layers in ("1", "2", "3", "2-3"):
        for number, mode in enumerate(modes):
            value = number + float(layers[0])
            for keys in ("special", "first") if layers == "2-3" else ("first",):
                rows.append(("trained", layers, keys, "all", mode, "objective", value))
    names = ["model", "layers", "keys", "queries", "change", "measure", "value"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(value_low=table["value"] - 1, value_high=table["value"] + 1, value_df=17)
    table = pd.concat([table, table.assign(model="random", value=99.0)])  # is not drawn
    rows = [(layers, "first", "all", "dropped / mass-matched", 2.0) for layers in ("1", "2", "3")]
    ratios = pd.DataFrame(rows, columns=["layers", "keys", "queries", "ways", "ratio"])
    ratios = ratios.assign(ratio_low=1.0, ratio_high=3.0)
    ratios = ratios.assign(model="trained")
    figure = plots.fig15_edges(table, ratios, {"cls": None, "sep": None}, model="")
    of_token, by_layer, of_group = figure.axes
    assert of_token.get_title("left") == "Attention to the first token"
    np.testing.assert_allclose(line_of(by_layer, "redistributed"), [2, 3, 4])
    labels = ["dropped", "redistributed", "mass-matched", "mass-matched, most attended"]
    assert [points_of(of_group, label) for label in labels] == [[2], [3], [4], [5]]
    (token,) = of_group.get_yticklabels()
    assert token.get_text() == "the first token"
    assert of_group.yaxis_inverted()
    check_figure(figure)


def transplants():
    """Make a table like sink_transplant.csv."""
    rows = []
    for number, change in enumerate([INTACT, *CHANGES]):
        for token, size in ((SINK, 0.01), (TARGET_TOKEN, 0.02)):
            for layer in ("2", "3", "all"):
                rows.append((99, 2, change, token, layer, size * (number + 1)))
    names = ["dimension", "before", "change", "token", "layer", "share"]
    shares = pd.DataFrame(rows, columns=names)
    return shares.assign(share_low=shares["share"] - 0.01, share_high=shares["share"] + 0.01)


def test_fig17_draws_the_shares_of_both_tokens_by_layer():
    figure = plots.fig17_transplant(transplants(), "<s>", model="tiny")
    of_sink, of_target = figure.axes
    np.testing.assert_allclose(line_of(of_sink, "intact"), [0.01, 0.01])
    np.testing.assert_allclose(line_of(of_sink, "its largest dimension"), [0.02, 0.02])
    place = 1 + CHANGES.index("moved")
    moved = line_of(of_target, "largest dimension, taken from the sink")
    np.testing.assert_allclose(moved, 0.02 * (place + 1))
    np.testing.assert_allclose(line_of(of_target, "<s>, intact"), [0.01, 0.01])


def length_tables():
    """Make a table like sink_lengths.csv for each of two lengths."""
    columns = ("first", "entropy", "uniform", "previous")
    tables = {length: random_head_table(columns).assign(tokens=length) for length in (64, 2048)}
    tables[2048]["first"] = 0.25
    return tables


def test_fig20_draws_means_by_length_and_each_head():
    tables = length_tables()
    measures = pd.concat(tables.values(), ignore_index=True)
    figure = plots.fig20_lengths(measures, "<s>", model="tiny")
    shares, entropies, neighbours = figure.axes
    means = tables[64].groupby("layer").mean()
    np.testing.assert_allclose(line_of(shares, "64 tokens"), means["first"])
    np.testing.assert_allclose(line_of(shares, "2,048 tokens"), 0.25)
    relative = means["entropy"] / means["uniform"]
    np.testing.assert_allclose(line_of(entropies, "64 tokens"), relative)
    points = neighbours.collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], tables[64]["previous"])
    assert "and 25% in 2,048" in figure.texts[0].get_text()


def test_a_long_name_of_a_model_stays_on_the_page():
    measures = pd.concat(length_tables().values(), ignore_index=True)
    for figure in (
        plots.fig14_sinks(sink_causes(), "<s>", model=LONG_NAME),
        plots.fig17_transplant(transplants(), "<s>", model=LONG_NAME),
        plots.fig20_lengths(measures, "<s>", model=LONG_NAME),
    ):
        check_long_name(figure)
        check_figure(figure)
