"""Figures 10 and 11: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.studies.common.tasks import heads_by_task

ORDER_STYLES = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style("random orders: median and range", "#555555", "D"),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, *, model: str) -> Figure:
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
    return style.heat_maps(
        heads_by_task(weights, "normalised"),
        "Figure 10 · Which heads matter",
        model,
        "importance over the norm of its layer",
        unit="Importance",
        norm=Normalize(0, 1),
    )


@style.theme()
def fig11_pruning(table: pd.DataFrame, *, model: str) -> Figure:
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
    columns = min(3, len(by_task))
    height = 3.0 * math.ceil(len(by_task) / columns)
    subtitle = "a fifth of the heads at a time, in three orders; dashed: no head at all"
    figure = style.canvas(height, "Figure 11 · Pruning heads", model, subtitle)
    panels = style.panel_grid(figure, len(by_task), columns, sharey=True)
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
        axes.set(xlabel="Heads pruned (%)", ylabel="Change of accuracy\n(percentage points)")
        axes.set_title(task, parse_math=False)
        axes.label_outer()
    style.legend_below(figure, columns=3)
    return figure
