"""Figures 10 and 11: what is drawn agrees with the tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_long_name

from helpers.studies.plots import michel2019 as plots

TASKS = ("one", "$two", "three")
SHARES = (0, 20, 40, 60, 100)


def heads_table(column, generator):
    """Make a table with a row per task and head, and a column of random values."""
    rows = product(TASKS, range(1, 4), range(1, 6))
    table = pd.DataFrame(rows, columns=["task", "layer", "head"])
    return table.assign(**{column: generator.normal(0, 1, len(table))})


def test_fig10_importance_shows_every_head():
    importance = heads_table("normalised", np.random.default_rng(1))
    figure = plots.fig10_importance(importance, model="m")
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in panels] == list(TASKS)
    most = importance.loc[importance["normalised"].idxmax()]
    title = f"head {most['layer']}-{most['head']}, {most['normalised']:.2f} of the layer's norm"
    assert figure.texts[0].get_text() == f"Figure 10 · Most important in its layer: {title}"
    for task, axes in zip(TASKS, panels, strict=True):
        rows = importance[importance["task"] == task]
        expected = rows.pivot(index="layer", columns="head", values="normalised").to_numpy()
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)


def pruning_table():
    """Make accuracies that fall linearly, in the second random order twice as fast."""
    orders = [("importance", 0), ("single ablation", 0), ("random", 0), ("random", 1)]
    rows = []
    for task, (order, draw), share in product(TASKS, orders, SHARES):
        rows.append((task, order, draw, share, -share * (1 + draw) / 4))
    return pd.DataFrame(rows, columns=["task", "order", "draw", "pruned", "change"])


def panels_with_lines(figure):
    return [axes for axes in figure.axes if axes.lines]


def test_fig11_pruning_shows_orders_and_the_median_and_range_of_random_ones():
    figure = plots.fig11_pruning(pruning_table(), model="tiny")
    panels = panels_with_lines(figure)
    assert [axes.get_title(loc="left") for axes in panels] == list(TASKS)
    importance, _, random = panels[0].lines[:3]
    np.testing.assert_allclose(importance.get_ydata(), [-share / 4 for share in SHARES[:-1]])
    np.testing.assert_allclose(random.get_ydata(), [-1.5 * share / 4 for share in SHARES[:-1]])
    band = panels[0].collections[-1].get_paths()[0].vertices
    corners = set(map(tuple, band.tolist()))
    assert {(60, -30), (60, -15)} <= corners


def test_fig11_pruning_shows_the_change_without_any_head():
    figure = plots.fig11_pruning(pruning_table(), model="tiny")
    first_panel, *_ = panels_with_lines(figure)
    assert first_panel.lines[-1].get_ydata() == pytest.approx([-25, -25])


def test_fig11_pruning_says_on_how_many_examples_each_curve_is_scored():
    figure = plots.fig11_pruning(pruning_table(), model="tiny")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[2:] == [
        "random: median and range (at most 100 examples)",
        "no head at all (at most 400 examples)",
    ]
    title = "Figure 11 · Pruning the 60% least important heads costs up to 15.0 percentage points"
    assert figure.texts[0].get_text() == title


def test_fig11_pruning_of_one_task_has_one_panel():
    figure = plots.fig11_pruning(pruning_table().query("task == 'one'"), model="tiny")
    assert len(figure.axes) == 1


def test_a_long_name_of_a_model_stays_on_the_page():
    importance = heads_table("normalised", np.random.default_rng(1))
    check_long_name(plots.fig10_importance(importance, model=LONG_NAME))
    check_long_name(plots.fig11_pruning(pruning_table(), model=LONG_NAME))
