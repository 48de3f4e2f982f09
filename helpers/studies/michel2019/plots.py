"""Figures 10 and 11, and transfer: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure

from helpers.metrics.heads import by_head
from helpers.plots import style
from helpers.studies.michel2019.summaries import FIRST_CHANGE, SECOND_CHANGE, SIGNIFICANT

TITLE_WIDTH = 13  # characters per line of a task's name
MIN_RANGE = 3.0  # percentage points; a smaller range would exaggerate changes of single examples
COSTLY = 2  # percentage points; heads that cost more are labelled, and scales are logarithmic
TICKS = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20)
ORDER_STYLES = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style("random orders: median and range", "#555555", "D"),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, single: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 10: the importance of each head (equation 5), and its ablation below.

    There is one column of panels per task.  A cross marks a change with p < 0.01.  Beyond one
    percentage point the scale of changes is logarithmic, because few heads cost much.

    Parameters
    ----------
    weights
        importance.csv.
    single
        ablation.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    tasks = weights["task"].unique()
    layers = weights["layer"].max()
    heads = weights["head"].max()
    panel_height = float(np.clip((style.WIDTH - 1.6) / len(tasks) * layers / heads, 1.4, 3.2))
    title = "Figure 10 · Which heads matter"
    subtitle = f"a cross: the change has p < {SIGNIFICANT} (sign test over examples)"
    height = 2 * (panel_height + 0.36) + 0.35
    figure = style.canvas(height, title, style.join_nonempty(model, subtitle))
    grid = figure.subplots(2, len(tasks), squeeze=False, sharex=True, sharey=True)
    widest = max(float(single["change"].abs().max()), MIN_RANGE)
    importance_norm = Normalize(0, 1)
    change_norm = SymLogNorm(1, vmin=-widest, vmax=widest)
    max_ticks = max(4, 36 // len(tasks))
    for (upper, lower), task in zip(grid.T, tasks, strict=True):
        importance = weights[weights["task"] == task]
        ablation = single[single["task"] == task]
        style.heat_map(
            upper, by_head(importance, "normalised"), importance_norm, max_ticks=max_ticks
        )
        changes = by_head(ablation, "change")
        style.heat_map(lower, changes, change_norm, style.DIVERGING, max_ticks=max_ticks)
        upper.set_title(f"{fill(task, TITLE_WIDTH)}\nimportance", parse_math=False)
        lower.set_title("removed alone")
        significant = ablation[ablation["p_value"] < SIGNIFICANT]
        lower.scatter(
            significant["head"],
            significant["layer"],
            marker="X",
            color=style.INK,
            edgecolors="white",
        )
    importance_colors = ScalarMappable(importance_norm, style.SEQUENTIAL)
    change_colors = ScalarMappable(change_norm, style.DIVERGING)
    for row, colors, label in (
        (grid[0], importance_colors, "Importance"),
        (grid[1], change_colors, "Accuracy (points)"),
    ):
        figure.colorbar(colors, ax=row, label=label, aspect=14, pad=0.015, format="%g")
    figure.supxlabel("Head", fontsize=9.5)
    figure.supylabel("Layer", fontsize=9.5)
    return figure


@style.theme()
def fig11_pruning(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 11: the change of accuracy as heads are pruned, one panel per task.

    Random orders are a band with their median.  A dashed line is the change without any head.

    Parameters
    ----------
    table
        pruning.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    by_task = table.groupby("task", sort=False)
    title = "Figure 11 · Pruning heads"
    subtitle = "a tenth of the heads at a time, in three orders; dashed: no head at all"
    figure, panels = _panel_grid(len(by_task), title, style.join_nonempty(model, subtitle))
    for axes, (task, rows) in zip(panels, by_task, strict=True):
        partly_pruned = rows[rows["pruned"] < 100]
        for order, order_style in ORDER_STYLES.items():
            draws = partly_pruned[partly_pruned["order"] == order].groupby("pruned")["change"]
            curve = draws.agg(change="median", change_low="min", change_high="max").reset_index()
            style.draw_curve(
                axes, curve, "pruned", "change", order_style, markersize=5, markeredgewidth=0
            )
        without_heads = rows[rows["pruned"] == 100].iloc[0]
        axes.axhline(without_heads["change"], color=style.MUTED, dashes=(4, 3))
        axes.set(xlabel="Heads pruned (%)", ylabel="Change of accuracy (points)")
        axes.set_title(task, parse_math=False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3)
    return figure


@style.theme()
def transfer(changes: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw the cost of removing each head on one test set and on another, one panel per task.

    Heads that cost more than `COSTLY` are labelled.

    Parameters
    ----------
    changes
        From `summaries.paired_changes`.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    by_task = changes.groupby(["set", "task"], sort=False)
    subtitle = "a dot: a head that is zeroed; on the line it costs the same on both"
    title = "Michel et al., section 3.4 · Does a head matter on every test set?"
    figure, panels = _panel_grid(len(by_task), title, style.join_nonempty(model, subtitle))
    for axes, ((test_sets, task), heads) in zip(panels, by_task, strict=True):
        _draw_transfer(axes, heads)
        axes.set_title(f"{task}\n{test_sets}", parse_math=False)
    return figure


def _panel_grid(count: int, title: str, subtitle: str) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure with ``count`` panels, at most three in a row."""
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = style.canvas(3.0 * rows, title, subtitle)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def _draw_transfer(axes: Axes, heads: pd.DataFrame) -> None:
    """Draw the changes on two test sets, with the diagonal and the labels of costly heads."""
    values = heads[[FIRST_CHANGE, SECOND_CHANGE]]
    low = 1.4 * min(values.min(axis=None), -COSTLY)
    high = 1.4 * max(values.max(axis=None), COSTLY)
    axes.plot((low, high), (low, high), color=style.MUTED, linewidth=0.8)
    axes.scatter(
        heads[FIRST_CHANGE], heads[SECOND_CHANGE], s=16, alpha=0.5, color=style.INK, linewidths=0
    )
    is_costly = values.mean(axis=1) < -COSTLY
    costly = heads.loc[is_costly, ["layer", "head", FIRST_CHANGE, SECOND_CHANGE]]
    for layer, head, first, second in costly.itertuples(index=False):
        axes.annotate(
            f"{layer}-{head}", (first, second), xytext=(4, 3), textcoords="offset points",
            fontsize=8,
        )  # fmt: skip
    axes.set_xscale("symlog", linthresh=COSTLY)
    axes.set_yscale("symlog", linthresh=COSTLY)
    ticks = [tick for tick in TICKS if low < tick < high]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, map(str, ticks))
    axes.set(xlim=(low, high), xlabel="One (points)")
    axes.set(ylim=(low, high), ylabel="The other (points)")
