"""Figures 10 and 11: which heads matter, and how many can go (Michel et al. 2019)."""

from __future__ import annotations

from textwrap import fill

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure

from helpers.analysis.heads import by_head
from helpers.plots.style import (
    DIVERGING,
    INK,
    MUTED,
    SEQUENTIAL,
    WIDTH,
    WITH_BOUNDS,
    Style,
    Styles,
    by_style,
    canvas,
    heat_map,
    joined,
    theme,
)
from helpers.studies.sixteen_heads.summaries import SIGNIFICANT

NARROW = 13  # letters of a task's name in a line
NARROWEST = 3.0  # points: a smaller range would make differences of single examples look large
ORDERS = {
    "importance": Style("least important first", "#0173B2", "o"),
    "single ablation": Style("least costly alone first", "#D55E00", "s"),
    "random": Style("random orders: median and range", "#555555", "D"),
}
KINDS = {
    "encoder": Style("encoder", "#0173B2", "o"),
    "cross": Style("cross-attention", "#D55E00", "s"),
    "decoder": Style("decoder", "#1FB58A", "^"),
}


@theme()
def fig10_importance(weights: pd.DataFrame, single: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw which heads matter, a column for each task: equation 5 above, ablation below.

    ``weights`` has task, layer, head and normalised (importance); ``single`` is ablation.csv
    (task, layer, head, change in points, p_value).  A cross marks a change with p < 0.01.  Beyond
    a point the scale of changes is logarithmic: few heads cost much.
    """
    tasks = weights["task"].unique()
    layers, heads = weights["layer"].max(), weights["head"].max()
    panel = float(np.clip((WIDTH - 1.6) / len(tasks) * layers / heads, 1.4, 3.2))
    figure = canvas(
        2 * (panel + 0.36) + 0.35,
        "Figure 10 · Which heads matter",
        joined(model, f"a cross: the change has p < {SIGNIFICANT} (sign test over examples)"),
    )
    grid = figure.subplots(2, len(tasks), squeeze=False, sharex=True, sharey=True)
    widest = max(float(single["change"].abs().max()), NARROWEST)
    above, below = Normalize(0, 1), SymLogNorm(1, vmin=-widest, vmax=widest)
    most = max(4, 36 // len(tasks))
    for (upper, lower), task in zip(grid.T, tasks, strict=True):
        own, alone = (table[table["task"] == task] for table in (weights, single))
        heat_map(upper, by_head(own, "normalised"), above, most=most)
        heat_map(lower, by_head(alone, "change"), below, DIVERGING, most=most)
        upper.set_title(f"{fill(task, NARROW)}\nimportance", parse_math=False)
        lower.set_title("removed alone")
        marked = alone[alone["p_value"] < SIGNIFICANT]
        lower.scatter(marked["head"], marked["layer"], marker="X", color=INK, edgecolors="white")
    bar = {"aspect": 14, "pad": 0.015, "format": "%g"}
    figure.colorbar(ScalarMappable(above, SEQUENTIAL), ax=grid[0], label="Importance", **bar)
    figure.colorbar(ScalarMappable(below, DIVERGING), ax=grid[1], label="Accuracy (points)", **bar)
    figure.supxlabel("Head", fontsize=9.5)
    figure.supylabel("Layer", fontsize=9.5)
    return figure


@theme()
def fig11_pruning(table: pd.DataFrame, translation: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw what is left of the accuracy as heads are pruned, a panel for each task.

    ``table`` is pruning.csv (task, order, draw, pruned in percent, accuracy in percent); the
    random draws are a bar with their median.  ``translation`` (kind, kept as a fraction, bleu) has
    a panel of its own, with a line for each kind of attention.
    """
    tasks = table["task"].unique()
    panels = len(tasks) + 1
    rows = -(-panels // 2)
    note = joined(model, "a tenth of the heads at a time, in three orders")
    figure = canvas(2.7 * rows + 0.3, "Figure 11 · Pruning heads", note)
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes in grid[panels:]:
        axes.set_axis_off()
    for axes, task in zip(grid, tasks, strict=False):
        own = table[table["task"] == task]
        handles = _curves(axes, own, "accuracy", "order", ORDERS)
        axes.axhline(own["accuracy"].iloc[0], color=MUTED, dashes=(4, 3), linewidth=1)
        axes.set(xlabel="Heads pruned (%)", ylabel="Accuracy (%)")
        axes.set_title(task, parse_math=False)
    figure.legend(handles, [o.label for o in ORDERS.values()], loc="outside lower left", ncols=3)
    last, pruned = grid[panels - 1], translation.assign(pruned=100 * (1 - translation["kept"]))
    handles = _curves(last, pruned, "bleu", "kind", KINDS)
    last.set(xlabel="Heads of that kind pruned (%)", ylabel="BLEU")
    last.set_title("translation, by kind of attention")
    last.legend(handles, [kind.label for kind in KINDS.values()], loc="lower left")
    return figure


def _curves(axes: Axes, table: pd.DataFrame, value: str, group: str, styles: Styles) -> list:
    """Draw a line for each group, and a bar over its draws; return what a legend shows."""
    sns.lineplot(
        table, x="pruned", y=value, **by_style(group, styles), **WITH_BOUNDS, err_style="bars",
        dashes=False, markersize=5, markeredgewidth=0, ax=axes,
    )  # fmt: skip
    handles, _ = axes.get_legend_handles_labels()
    axes.get_legend().remove()
    axes.set(xlim=(-3, 103), ylim=(0, 103))
    return handles
