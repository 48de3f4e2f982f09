"""Figures 14 to 20 draw the values of their tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_figure, check_long_name, intervals

from beyond.papers.common.edge_cuts import MODES
from beyond.papers.sinks import plots
from beyond.papers.sinks.causes import BOTH, KEYS, MOVED, NONE, OTHER, SINK, TOKENS, VECTORS
from helpers.plots.style import title_of


def line_of(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_ydata()


def with_bounds(table, column, *, width=0.01, df=17):
    bounds = {"low": table[column] - width, "high": table[column] + width, "df": df}
    return table.assign(**{f"{column}_{name}": values for name, values in bounds.items()})


def cause_table(sites=(VECTORS, KEYS)):
    rows = []
    for site in sites:
        for (dimensions, change), token in product(plots.CHANGES, TOKENS):
            where = NONE if dimensions == NONE else site
            rows.append((3, where, dimensions, change, token, 0.01 * len(rows)))
    names = ["layer", "site", "dimensions", "change", "token", "share"]
    table = pd.DataFrame(rows, columns=names).drop_duplicates(names[:-1])
    return with_bounds(table.assign(model="trained"), "share")


@pytest.mark.parametrize("sites", [(VECTORS, KEYS), (KEYS,)])
def test_fig14_draws_the_shares_of_both_tokens_at_each_site(sites):
    table = cause_table(sites)
    figure = plots.fig14_causes(table, "<s>", model=LONG_NAME)
    assert len(figure.axes) == len(sites)
    for axes, site in zip(figure.axes, sites, strict=True):
        rows = table[table["site"].isin([NONE, site])]
        for token, label in ((SINK, "the sink"), (OTHER, "other token")):
            expected = rows[rows["token"] == token].set_index(["dimensions", "change"])["share"]
            (line,) = [line for line in axes.lines if line.get_label() == label]
            np.testing.assert_allclose(line.get_xdata(), expected.reindex(list(plots.CHANGES)))
    by_change = table[table["site"] == sites[0]].set_index(["dimensions", "change", "token"])
    assert f"{by_change.loc[(BOTH, MOVED, OTHER), 'share']:.0%} of the attention" in title_of(
        figure
    )
    check_long_name(figure)
    check_figure(figure)


def edges(measure, role, df=17):
    """Make edges.csv: costs from 1 on, by layers, model and change."""
    rows = []
    for layers, model, change in product(("2-3", "1-3"), ("trained", "random"), MODES):
        rows.append((model, layers, role, change, measure, len(rows) + 1.0))
    names = ["model", "layers", "keys", "change", "measure", "value"]
    return with_bounds(pd.DataFrame(rows, columns=names), "value", width=1, df=df)


@pytest.mark.parametrize(
    ("measure", "role", "unit"), [("sentence angle", "cls", "1°"), ("loss", "first", "1 nats")]
)
def test_fig15_draws_the_costs_of_each_change_and_of_random_weights(measure, role, unit):
    table = edges(measure, role)
    of_sep = table.assign(keys="sep", value=99.0)
    figure = plots.fig15_edges(pd.concat([of_sep, table]), "<s>", model="tiny")
    for axes, layers in zip(figure.axes, ("2-3", "1-3"), strict=True):
        for model, label in (("trained", "trained"), ("random", "random weights")):
            rows = table[(table["layers"] == layers) & (table["model"] == model)]
            (line,) = [line for line in axes.lines if line.get_label() == label]
            assert line.get_xdata().tolist() == rows["value"].tolist()
        values = table.loc[table["layers"] == layers, "value"]
        assert sorted(intervals(axes)) == [(value - 1, value + 1) for value in values]
    assert unit in title_of(figure)
    check_figure(figure)


def test_fig17_draws_both_maps():
    maps = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4))
    figure = plots.fig17_before_after(*maps, ["<s>", "a", "cat", "."], "a title", model=LONG_NAME)
    for axes, weights in zip(figure.axes, maps, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    check_long_name(figure)
    check_figure(figure)


def test_fig20_draws_means_by_length():
    rows = []
    for length, layer in product((64, 2048), ("1", "2", "3", "2-3", "all")):
        rows.append((length, layer, 5, len(rows) / 20, len(rows) / 30))
    names = ["tokens", "layer", "texts", "first", "relative_entropy"]
    table = pd.DataFrame(rows, columns=names)
    table = with_bounds(with_bounds(table, "first"), "relative_entropy")
    figure = plots.fig20_lengths(table, "<s>", model=LONG_NAME)
    shares, entropies = figure.axes
    np.testing.assert_allclose(line_of(shares, "64 tokens"), [0, 0.05, 0.1])
    np.testing.assert_allclose(line_of(entropies, "2,048 tokens"), np.array([5, 6, 7]) / 30)
    assert "20% of the attention in 64" in title_of(figure)
    assert "and 45% in 2,048" in title_of(figure)
    check_long_name(figure)
    check_figure(figure)
