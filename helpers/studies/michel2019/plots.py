"""Figures 10 and 11: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from helpers.metrics.heads import head_label
from helpers.plots import style
from helpers.studies.common.tasks import heads_by_task

ORDER_STYLES = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style("random: median and range", "#555555", "D"),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 10: the importance of each head (equation 5), one panel per task.

    The title of a panel names its most important head; that of the figure has the largest value.

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
    maps = {}
    for task, values in heads_by_task(weights, "normalised").items():
        layer, head = np.unravel_index(values.argmax(), values.shape)
        maps[f"{task}\nmost: head {head_label(layer, head)}, {values.max():.2f}"] = values
    largest = weights["normalised"].max()
    alike = weights["head"].max() ** -0.5
    return style.heat_maps(
        maps,
        f"Figure 10 · A head's importance is up to {largest:.2f} of its layer's norm",
        model,
        f"importance over the l2 norm of its layer; {alike:.2f} if all heads were alike",
        unit="Importance",
        norm=Normalize(0, 1),
    )


@style.theme()
def fig11_pruning(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 11: the change of accuracy as heads are pruned, one panel per task.

    Random orders are a band with their median.  A dashed line is the change without any head.  The
    legend has the number of test examples, at most, because random orders are scored on fewer.  The
    title has the largest loss by importance, in the last step before no head is left.

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
    partly_pruned = table[table["pruned"] < 100]
    by_importance = partly_pruned[partly_pruned["order"] == "importance"]
    share = by_importance["pruned"].max()
    loss = -by_importance.loc[by_importance["pruned"] == share, "change"].min()
    title = (
        f"Figure 11 · Pruning the {share}% least important heads costs up to {loss:.1f} percentage "
        "points"
    )
    examples = table.groupby("order")["examples"].max()
    figure = style.canvas(height, title, model, "a fifth of the heads at a time, in three orders")
    panels = style.panel_grid(figure, len(by_task), columns, sharey=True)
    for axes, (task, rows) in zip(panels, by_task, strict=True):
        for order, order_style in ORDER_STYLES.items():
            is_drawn = (rows["order"] == order) & (rows["pruned"] < 100)
            draws = rows[is_drawn].groupby("pruned")["change"]
            curve = draws.agg(change="median", change_low="min", change_high="max").reset_index()
            label = f"{order_style.label} ({examples[order]} examples)"
            labelled_style = order_style._replace(label=label)
            style.draw_curve(
                axes, curve, "pruned", "change", labelled_style, markersize=5, markeredgewidth=0
            )
        without_heads = rows[rows["pruned"] == 100].iloc[0]
        axes.axhline(
            without_heads["change"], color=style.MUTED, dashes=(4, 3),
            label=f"no head at all ({examples['importance']} examples)",
        )  # fmt: skip
        axes.set(xlabel="Heads pruned (%)", ylabel="Change of accuracy\n(percentage points)")
        axes.set_title(task, parse_math=False)
        axes.label_outer()
    style.legend_below(figure, columns=2)
    return figure
