"""Figures 14 to 20 draw the values of their tables."""

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_figure, check_long_name, intervals

from beyond.papers.sinks import plots
from beyond.papers.sinks.transplant import CHANGES, INTACT, SINK, TARGET_TOKEN
from helpers.metrics.heads import head_rows
from helpers.plots.style import title_of

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
    assert "600%" in title_of(figure) and "500%" in title_of(figure)


def edges(measure, keys):
    """Make edges.csv of layers 2 and 3: costs from 1 on, by token, model and change."""
    rows = []
    for role in ("special", *keys):
        for model in ("trained", "random"):
            for change in ("dropped", "mass-matched", "redistributed"):
                for layers in ["2-3"] if role == "special" else ["2", "2-3"]:
                    rows.append((model, layers, role, change, measure, len(rows) + 1.0))
    table = pd.DataFrame(rows, columns=["model", "layers", "keys", "change", "measure", "value"])
    low_and_high = {"value_low": table["value"] - 1, "value_high": table["value"] + 1}
    return table.assign(**low_and_high, value_df=17, queries="all")


@pytest.mark.parametrize(
    ("measure", "tokens", "keys"),
    [
        ("sentence angle", SPECIAL_TOKENS, ("cls", "sep")),
        ("objective", {"cls": None, "sep": None}, ("first",)),
    ],
    ids=["encoder", "decoder"],
)
def test_fig15_draws_the_costs_of_each_token_and_of_random_weights(measure, tokens, keys):
    table = edges(measure, keys)
    other = {"sentence angle": "objective", "objective": "sentence angle"}[measure]
    table = pd.concat([table.assign(measure=other, value=99.0), table], ignore_index=True)
    figure = plots.fig15_edges(table, tokens, model="tiny")
    check_figure(figure)
    for axes, role in zip(figure.axes, keys, strict=True):
        drawn = table[(table["layers"] == "2-3") & (table["keys"] == role)]
        expected = drawn.loc[drawn["measure"] == measure, "value"].tolist()
        assert [bar.get_width() for bar in axes.patches] == expected
        assert intervals(axes) == [(value - 1, value + 1) for value in expected]
        assert (tokens.get(role) or "the first token") in axes.get_title("left")


def test_fig15_draws_no_interval_of_few_articles():
    figure = plots.fig15_edges(
        edges("objective", ["first"]).assign(value_df=1), {"cls": None}, model="tiny"
    )
    assert not intervals(figure.axes[0])


def test_fig15_of_single_layers_says_that_none_are_cut_together():
    table = edges("objective", ["first"]).query("keys != 'special'")
    figure = plots.fig15_edges(table, {"cls": None}, model="tiny")
    assert not figure.axes
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


@pytest.mark.parametrize("hero", ["moved", "moved: second dimension"])
def test_fig17_draws_the_dimension_that_moves_more(hero):
    shares = transplants()
    is_hero = (shares["change"] == hero) & (shares["token"] == TARGET_TOKEN)
    shares.loc[is_hero, "share"] = 0.77
    figure = plots.fig17_transplant(shares, "<s>", model="tiny")
    (axes,) = figure.axes
    np.testing.assert_allclose(line_of(axes, "<s>, intact"), [0.01, 0.01])
    ablated = CHANGES.index(hero.replace("moved", "ablated"))
    np.testing.assert_allclose(line_of(axes, "<s> without it"), 0.01 * (ablated + 2))
    np.testing.assert_allclose(line_of(axes, "token 20 with it"), 0.77)
    assert "77%" in title_of(figure)


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
    assert "and 25% in 2,048" in title_of(figure)


def test_a_long_name_of_a_model_stays_on_the_page():
    measures = pd.concat(length_tables().values(), ignore_index=True)
    for figure in (
        plots.fig14_sinks(sink_causes(), "<s>", model=LONG_NAME),
        plots.fig17_transplant(transplants(), "<s>", model=LONG_NAME),
        plots.fig20_lengths(measures, "<s>", model=LONG_NAME),
    ):
        check_long_name(figure)
        check_figure(figure)
