"""Figures 10 and 11: the importance and the pruning of heads (Michel et al. 2019)."""

from __future__ import annotations

from textwrap import fill

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from beyond.papers.common.tasks import heads_by_task
from helpers.plots import style

ORDER_STYLES = {
    "importance": style.Style("least important first", style.SERIES_COLORS[0], "o"),
    "single ablation": style.Style("least costly alone first", style.SERIES_COLORS[1], "s"),
    "random": style.Style("random orders: median and range", style.MUTED, "^"),
}
CHOSEN = ["importance", "single ablation"]  # the orders with intervals over examples
TITLE_LETTERS = 16  # of a line of the title of a panel


@style.theme()
def fig10_importance(weights: pd.DataFrame, ablation: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 10: the importance of each head (equation 5), one panel per task.

    The head that costs most if it is switched off alone has a frame.  The title counts the tasks in
    which it is also the most important head.

    Parameters
    ----------
    weights
        importance.csv.
    ablation
        ablation.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    costliest = ablation.loc[ablation.groupby("task")["change"].idxmin()].set_index("task")
    maps = {}
    n_same = 0
    for task, rows in weights.groupby("task", sort=False):
        top = rows.loc[rows["normalised"].idxmax()]
        head = costliest.loc[task]
        n_same += (top["layer"], top["head"]) == (head["layer"], head["head"])
        maps[task] = (
            f"{task}\nhead {head['layer']:.0f}-{head['head']:.0f}: {head['change']:.1f} points"
        )
    values = heads_by_task(weights, "normalised")
    figure = style.heat_maps(
        {title: values[task] for task, title in maps.items()},
        f"Figure 10 · In {n_same} of {len(maps)} tasks, the most important head costs most: "
        f"up to {-costliest['change'].min():.0f} points",
        model,
        "importance over the l2 norm of the layer's heads; compare heads of one row only",
        "framed: the head that costs most percentage points of accuracy",
        unit="Importance",
        norm=Normalize(0, 1),
    )
    for axes, task in zip(figure.axes, maps, strict=False):
        corner = costliest.loc[task, ["head", "layer"]].to_numpy(float) - 0.5
        axes.add_patch(
            Rectangle(
                corner, 1, 1, fill=False, edgecolor=style.INK, linewidth=1.4, clip_on=False,
                path_effects=style.FRAME,
            )
        )  # fmt: skip
    return figure


@style.theme()
def fig11_pruning(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 11: the change of accuracy as heads are pruned, two panels per task.

    Random orders have a panel of their own, because they are scored on fewer examples.  Both
    panels have a thin line: the change without any head on the same examples.  The title has the
    losses by importance, while some heads are left.

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
    blocks = -(-len(by_task) // columns)
    partly_pruned = table[(table["order"] == "importance") & (table["pruned"] < 100)]
    furthest = partly_pruned[partly_pruned["pruned"] == partly_pruned["pruned"].max()]
    losses = list(dict.fromkeys(f"{-furthest['change'].agg(end):.1f}" for end in ("max", "min")))
    figure = style.canvas(
        2.6 * blocks + 0.4,
        f"Figure 11 · Pruning the {furthest['pruned'].iloc[0]}% least important heads costs "
        f"{' to '.join(losses)} percentage points",
        model,
        "a fifth of the heads at a time, in three orders",
        "bands above: 95% intervals over examples",
    )
    grid = figure.subplots(2 * blocks, columns, squeeze=False, sharex=True, sharey=True)
    for number, (task, rows) in enumerate(by_task):
        block, column = divmod(number, columns)
        above, below = grid[2 * block : 2 * block + 2, column]
        is_random = rows["order"] == "random"
        chosen = rows[rows["order"].isin(CHOSEN)]
        for order, order_rows in chosen.groupby("order", sort=False):
            _draw_order(above, order_rows, order)
        draws = rows[is_random].groupby("pruned")["change"]
        spread = draws.agg(change="median", change_low="min", change_high="max").reset_index()
        _draw_order(below, spread, "random")
        names = [task, "random orders"]
        for axes, name, name_rows in zip(
            (above, below), names, (chosen, rows[is_random]), strict=True
        ):
            count = f"{name_rows['examples'].iloc[0]:,} examples"
            axes.set_title(f"{fill(name, TITLE_LETTERS)}\n{count}")
            axes.set_xticks([0, 20, 40, 60])
    for number in range(len(by_task), blocks * columns):
        block, column = divmod(number, columns)
        for axes in grid[2 * block : 2 * block + 2, column]:
            axes.remove()
    for axes in grid[-1]:
        axes.set_xlabel("Heads pruned (%)")
    figure.supylabel("Change of accuracy (percentage points)")
    style.legend_below(figure, columns=2)
    return figure


def _draw_order(axes: Axes, rows: pd.DataFrame, order: str) -> None:
    """Draw the changes in one order with their band, and the change without any head."""
    curve = rows[rows["pruned"] < 100]
    style.draw_curve(axes, curve, "pruned", "change", ORDER_STYLES[order])
    without_heads = rows.loc[rows["pruned"] == 100, "change"].iloc[0]
    axes.axhline(without_heads, color=style.MUTED, linewidth=0.6, label="no head at all")
