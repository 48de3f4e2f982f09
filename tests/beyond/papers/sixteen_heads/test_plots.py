"""Figures 10 and 11: what is drawn agrees with the tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from plot_checks import LONG_NAME, check_figure, check_long_name

from beyond.papers.sixteen_heads import plots
from helpers.plots.style import title_of

TASKS = ("one", "$two", "three")
SHARES = (0, 20, 40, 60, 100)


def heads_table(column, generator):
    """Make a table with a row per task and head, and a column of random values."""
    rows = product(TASKS, range(1, 4), range(1, 6))
    table = pd.DataFrame(rows, columns=["task", "layer", "head"])
    return table.assign(**{column: generator.normal(0, 1, len(table))})


def ablation_table(importance):
    """Make a table in which head 2-3 costs most in each task: 40 percentage points."""
    is_costliest = (importance["layer"] == 2) & (importance["head"] == 3)
    return importance.assign(change=np.where(is_costliest, -40.0, -1.0))


def importance_table():
    """Make random importances; in the first two tasks that of head 2-3 is largest."""
    table = heads_table("normalised", np.random.default_rng(1))
    is_head = (table["layer"] == 2) & (table["head"] == 3)
    table.loc[is_head, "normalised"] = [8.0, 9.0, -9.0]
    return table


def test_fig10_importance_shows_every_head_and_frames_the_costliest():
    importance = importance_table()
    figure = plots.fig10_importance(importance, ablation_table(importance), model="m")
    panels = [axes for axes in figure.axes if axes.images]
    titles = [f"{task} head 2-3: -40.0 points" for task in TASKS]
    assert [" ".join(axes.get_title(loc="left").split()) for axes in panels] == titles
    title = "In 2 of 3 tasks, the most important head costs most: up to 40 points"
    assert title_of(figure) == f"Figure 10 · {title}"
    for task, axes in zip(TASKS, panels, strict=True):
        rows = importance[importance["task"] == task]
        expected = rows.pivot(index="layer", columns="head", values="normalised").to_numpy()
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)
        (frame,) = axes.patches
        assert frame.get_xy() == (2.5, 1.5)


def pruning_table():
    """Make accuracies that fall linearly, in the second random order twice as fast."""
    orders = [("importance", 0), ("single ablation", 0), ("random", 0), ("random", 1)]
    rows = []
    for task, (order, draw), share in product(TASKS, orders, SHARES):
        examples = 100 if order == "random" else 400
        rows.append((task, order, draw, examples, share, -share * (1 + draw) / 4))
    table = pd.DataFrame(rows, columns=["task", "order", "draw", "examples", "pruned", "change"])
    return table.assign(change_low=table["change"] - 3, change_high=table["change"] + 3)


def test_fig11_pruning_shows_orders_and_the_median_and_range_of_random_ones():
    figure = plots.fig11_pruning(pruning_table(), model="tiny")
    above, below = np.reshape(figure.axes, (2, len(TASKS)))
    assert all("400 examples" in axes.get_title(loc="left") for axes in above)
    assert all("100 examples" in axes.get_title(loc="left") for axes in below)
    importance = above[0].lines[0]
    random = below[0].lines[0]
    np.testing.assert_allclose(importance.get_ydata(), [-share / 4 for share in SHARES[:-1]])
    np.testing.assert_allclose(random.get_ydata(), [-1.5 * share / 4 for share in SHARES[:-1]])
    assert {(60, -18), (60, -12)} <= corners_of_band(above[0])
    assert {(60, -30), (60, -15)} <= corners_of_band(below[0])


def corners_of_band(axes):
    band = axes.collections[0].get_paths()[0].vertices
    return set(map(tuple, band.tolist()))


def test_fig11_pruning_shows_the_change_without_any_head_on_the_same_examples():
    table = pruning_table()
    is_last = (table["order"] == "random") & (table["pruned"] == 100)
    figure = plots.fig11_pruning(table.assign(change=table["change"] - 5 * is_last), model="tiny")
    above, below = np.reshape(figure.axes, (2, len(TASKS)))
    assert above[0].lines[-1].get_ydata() == pytest.approx([-25, -25])
    assert below[0].lines[-1].get_ydata() == pytest.approx([-42.5, -42.5])


def test_fig11_pruning_has_the_smallest_and_the_largest_loss_in_its_title():
    table = pruning_table()
    table.loc[table["task"] == "three", "change"] /= 10
    figure = plots.fig11_pruning(table, model="tiny")
    finding = "Pruning the 60% least important heads costs 1.5 to 15.0 percentage points"
    assert title_of(figure) == f"Figure 11 · {finding}"


@pytest.mark.parametrize("n_tasks", [1, 2, 4])
def test_fig11_pruning_has_two_panels_per_task(n_tasks):
    one = pruning_table().query("task == 'one'")
    table = pd.concat([one.assign(task=f"task {number}") for number in range(n_tasks)])
    figure = plots.fig11_pruning(table, model="tiny")
    assert len(figure.axes) == 2 * n_tasks
    check_figure(figure)


def test_a_long_name_of_a_model_stays_on_the_page():
    importance = importance_table()
    for figure in (
        plots.fig10_importance(importance, ablation_table(importance), model=LONG_NAME),
        plots.fig11_pruning(pruning_table(), model=LONG_NAME),
    ):
        check_long_name(figure)
        check_figure(figure)
