"""Figures 10 and 11, and transfer: what is drawn agrees with the tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from helpers.studies.michel2019 import plots

TASKS = ("one", "$two", "three")
SHARES = range(0, 101, 10)


def heads_table(column, generator):
    """Make a table with a row per task and head, and a column of random values."""
    rows = product(TASKS, range(1, 4), range(1, 6))
    table = pd.DataFrame(rows, columns=["task", "layer", "head"])
    return table.assign(**{column: generator.normal(0, 1, len(table))})


@pytest.fixture
def ablation():
    """Make a table in which one change is significant, and one is only as small as the level."""
    table = heads_table("change", np.random.default_rng(0)).assign(p_value=0.5)
    table.loc[[0, 20], "p_value"] = (0.001, 0.01)
    table.loc[0, "change"] = -40
    return table


@pytest.fixture
def ablation_panels(ablation):
    """Draw Figure 10 and return its lower panels by task."""
    importance = heads_table("normalised", np.random.default_rng(1)).assign(normalised=0.3)
    figure = plots.fig10_importance(importance, ablation, model="m")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * len(TASKS)
    return dict(zip(TASKS, panels[len(TASKS) :], strict=True))


def test_fig10_importance_shows_the_change_of_every_head(ablation, ablation_panels):
    for task, axes in ablation_panels.items():
        rows = ablation[ablation["task"] == task]
        changes = rows.pivot(index="layer", columns="head", values="change").to_numpy()
        np.testing.assert_array_equal(axes.images[0].get_array(), changes)
        assert axes.images[0].get_clim() == (-40, 40)  # no change is outside


def test_fig10_importance_marks_significant_changes(ablation_panels):
    marks = {
        task: len(axes.collections[-1].get_offsets()) for task, axes in ablation_panels.items()
    }
    assert marks == {"one": 1, "$two": 0, "three": 0}  # 0.01 is not below 0.01


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
    figure = plots.fig11_pruning(pruning_table())
    panels = panels_with_lines(figure)
    assert [axes.get_title(loc="left") for axes in panels] == list(TASKS)
    importance, _, random = panels[0].lines[:3]
    np.testing.assert_allclose(importance.get_ydata(), [-share / 4 for share in SHARES[:-1]])
    np.testing.assert_allclose(random.get_ydata(), [-1.5 * share / 4 for share in SHARES[:-1]])
    band = panels[0].collections[-1].get_paths()[0].vertices
    corners = set(map(tuple, band.tolist()))
    assert {(90, -45), (90, -22.5)} <= corners


def test_fig11_pruning_shows_the_change_without_any_head():
    figure = plots.fig11_pruning(pruning_table())
    first_panel, *_ = panels_with_lines(figure)
    assert first_panel.lines[-1].get_ydata() == pytest.approx([-25, -25])


def test_fig11_pruning_of_one_task_has_one_panel():
    figure = plots.fig11_pruning(pruning_table().query("task == 'one'"))
    assert len(figure.axes) == 1


def test_transfer_has_a_dot_per_head_and_labels_the_costliest():
    changes = heads_table("one_change", np.random.default_rng(0)).assign(set="halves")
    changes["other_change"] = changes["one_change"] / 2
    changes.loc[7, ["one_change", "other_change"]] = -20
    figure = plots.transfer(changes)
    for axes, (_, rows) in zip(figure.axes, changes.groupby("task", sort=False), strict=True):
        dots = axes.collections[0].get_offsets()
        np.testing.assert_allclose(dots, rows[["one_change", "other_change"]])
    assert figure.axes[0].texts[0].get_text() == "2-3"
