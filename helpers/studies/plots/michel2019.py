"""Figures 10 and 11: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.studies.common.tasks import heads_by_task
from helpers.studies.michel2019.pruning import RANDOM_SCORED_EXAMPLES, SCORED_EXAMPLES

ORDER_STYLES = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style(
        f"random: median and range (at most {RANDOM_SCORED_EXAMPLES} examples)", "#555555", "D"
    ),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 10: the importance of each head (equation 5), one panel per task.

    The title has the head with the largest value.

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
    top = weights.loc[weights["normalised"].idxmax()]
    title = (
        f"Figure 10 · Most important in its layer: head {top['layer']}-{top['head']}, "
        f"{top['normalised']:.2f} of the layer's norm"
    )
    return style.heat_maps(
        heads_by_task(weights, "normalised"),
        title,
        model,
        "importance over the l2 norm of the layer's heads; compare heads of one row only",
        unit="Importance",
        norm=Normalize(0, 1),
    )


@style.theme()
def fig11_pruning(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 11: the change of accuracy as heads are pruned, one panel per task.

    Random orders are a band with their median.  A dashed line is the change without any head.  The
    legend says that random orders are scored on fewer examples.  The title has the largest loss by
    importance, while some heads are left.

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
    height = 3.0 * -(-len(by_task) // columns)
    worst = table.query("order == 'importance' and pruned < 100").nsmallest(1, "change").iloc[0]
    title = (
        f"Figure 11 · Pruning the {worst['pruned']}% least important heads costs up to "
        f"{-worst['change']:.1f} percentage points"
    )
    figure = style.canvas(height, title, model, "a fifth of the heads at a time, in three orders")
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
        axes.axhline(
            without_heads["change"], color=style.MUTED, dashes=(4, 3),
            label=f"no head at all (at most {SCORED_EXAMPLES} examples)",
        )  # fmt: skip
        axes.set(xlabel="Heads pruned (%)", ylabel="Change of accuracy\n(percentage points)")
        axes.set_title(task, parse_math=False)
        axes.label_outer()
    style.legend_below(figure, columns=2)
    return figure
