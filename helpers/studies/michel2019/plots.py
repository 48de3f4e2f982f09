"""Figures 10 and 11, and transfer: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from helpers.metrics.heads import by_head
from helpers.plots import style
from helpers.studies.michel2019.summaries import HALVES

COSTLY = 2  # percentage points; heads that cost more are labelled
ORDER_STYLES = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style("random orders: median and range", "#555555", "D"),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 10: the importance of each head (equation 5), one panel per task.

    Parameters
    ----------
    weights
        importance.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    panels = {
        task: by_head(rows, "normalised") for task, rows in weights.groupby("task", sort=False)
    }
    return style.heat_maps(
        panels,
        "Figure 10 · Which heads matter",
        style.join_nonempty(model, "importance over the norm of its layer"),
        "Importance",
        Normalize(0, 1),
        columns=len(panels),
    )


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
def transfer(single: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw the cost of removing each head on two halves of the articles, one panel per task.

    Parameters
    ----------
    single
        ablation.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    by_task = single.groupby("task", sort=False)
    subtitle = "a dot: a head that is zeroed; on the line it costs the same on both"
    title = "Michel et al., section 3.4 · Does a head matter on both halves of the articles?"
    figure, panels = _panel_grid(len(by_task), title, style.join_nonempty(model, subtitle))
    for axes, (task, heads) in zip(panels, by_task, strict=True):
        axes.axline((0, 0), slope=1, color=style.MUTED, linewidth=0.8)
        axes.scatter(*heads[HALVES].to_numpy().T, s=16, alpha=0.5, color=style.INK, linewidths=0)
        for head in heads[heads["first_change"] < -COSTLY].itertuples():
            axes.annotate(
                f"{head.layer}-{head.head}", (head.change_one, head.change_other), fontsize=8,
                xytext=(4, 3), textcoords="offset points",
            )  # fmt: skip
        axes.set(xlabel="One half (percentage points)", ylabel="Other half (percentage points)")
        axes.set_title(task, parse_math=False)
    return figure


def _panel_grid(count: int, title: str, subtitle: str) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure with ``count`` panels, at most three in a row."""
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = style.canvas(3.0 * rows, title, subtitle)
    return figure, style.panel_grid(figure, count, columns)
