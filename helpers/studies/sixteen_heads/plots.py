"""Figures 10 and 11, and transfer: which heads matter, how many can go (Michel et al. 2019)."""

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
from helpers.plots import style
from helpers.studies.sixteen_heads.summaries import ONE, OTHER, SIGNIFICANT

NARROW = 13  # letters of a task's name in a line
NARROWEST = 3.0  # points: a smaller range would make differences of single examples look large
COSTLY = 2  # points: heads that cost more have names; beyond it scales are logarithmic
TICKS = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20)
ORDERS = {
    "importance": style.Style("least important first", "#0173B2", "o"),
    "single ablation": style.Style("least costly alone first", "#D55E00", "s"),
    "random": style.Style("random orders: median and range", "#555555", "D"),
}
KINDS = {
    "encoder": style.Style("encoder", "#0173B2", "o"),
    "cross": style.Style("cross-attention", "#D55E00", "s"),
    "decoder": style.Style("decoder", "#1FB58A", "^"),
}


@style.theme()
def fig10_importance(weights: pd.DataFrame, single: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw which heads matter, a column for each task: equation 5 above, ablation below.

    ``weights`` is importance.csv, ``single`` ablation.csv; a cross marks a change with p < 0.01.
    Beyond a point the scale of changes is logarithmic: few heads cost much.
    """
    tasks = weights["task"].unique()
    layers, heads = weights["layer"].max(), weights["head"].max()
    panel = float(np.clip((style.WIDTH - 1.6) / len(tasks) * layers / heads, 1.4, 3.2))
    title = "Figure 10 · Which heads matter"
    what = f"a cross: the change has p < {SIGNIFICANT} (sign test over examples)"
    figure = style.canvas(2 * (panel + 0.36) + 0.35, title, style.joined(model, what))
    grid = figure.subplots(2, len(tasks), squeeze=False, sharex=True, sharey=True)
    widest = max(float(single["change"].abs().max()), NARROWEST)
    above, below = Normalize(0, 1), SymLogNorm(1, vmin=-widest, vmax=widest)
    most = max(4, 36 // len(tasks))
    for (upper, lower), task in zip(grid.T, tasks, strict=True):
        own, alone = (table[table["task"] == task] for table in (weights, single))
        style.heat_map(upper, by_head(own, "normalised"), above, most=most)
        style.heat_map(lower, by_head(alone, "change"), below, style.DIVERGING, most=most)
        upper.set_title(f"{fill(task, NARROW)}\nimportance", parse_math=False)
        lower.set_title("removed alone")
        marked = alone[alone["p_value"] < SIGNIFICANT]
        look = {"marker": "X", "color": style.INK, "edgecolors": "white"}
        lower.scatter(marked["head"], marked["layer"], **look)
    bar = {"aspect": 14, "pad": 0.015, "format": "%g"}
    figure.colorbar(ScalarMappable(above, style.SEQUENTIAL), ax=grid[0], label="Importance", **bar)
    changes = ScalarMappable(below, style.DIVERGING)
    figure.colorbar(changes, ax=grid[1], label="Accuracy (points)", **bar)
    figure.supxlabel("Head", fontsize=9.5)
    figure.supylabel("Layer", fontsize=9.5)
    return figure


@style.theme()
def fig11_pruning(table: pd.DataFrame, translation: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw what accuracy loses as heads are pruned, a panel for each task.

    ``table`` is pruning.csv; random draws are a band with their median, and a dashed line is what
    no head at all loses.  ``translation``, translation_pruning.csv, has the last panel.
    """
    tasks = table["task"].unique()
    rows = len(tasks) // 2 + 1
    what = "a tenth of the heads at a time, in three orders; dashed: no head at all"
    figure = style.canvas(2.7 * rows + 0.3, "Figure 11 · Pruning heads", style.joined(model, what))
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    last, *unused = grid[len(tasks) :]
    for axes in unused:
        axes.set_axis_off()
    for axes, task in zip(grid, tasks, strict=False):
        own = table[table["task"] == task]
        handles = _curves(axes, own[own["pruned"] < 100], "change", "order", ORDERS)
        without = own.loc[own["pruned"] == 100, "change"].iloc[0]
        axes.axhline(without, color=style.MUTED, dashes=(4, 3))
        axes.set(xlabel="Heads pruned (%)", ylabel="Change of accuracy (points)")
        axes.set_title(task, parse_math=False)
    figure.legend(handles, [o.label for o in ORDERS.values()], loc="outside lower left", ncols=3)
    pruned = translation.assign(pruned=100 * (1 - translation["kept"]))
    handles = _curves(last, pruned, "bleu", "kind", KINDS)
    last.set(xlabel="Heads of that kind pruned (%)", ylabel="BLEU")
    last.set_title("translation, by kind of attention")
    last.legend(handles, [kind.label for kind in KINDS.values()], loc="lower left")
    return figure


@style.theme()
def transfer(changes: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw what each head's removal costs on one test set and on another, a panel for each task.

    ``changes`` is `summaries.paired_changes`; heads that cost much (`COSTLY`) have names.
    """
    panels = dict(iter(changes.groupby(["set", "task"], sort=False)))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    what = "a dot: a head that is zeroed; on the line it costs the same on both"
    title = "Michel et al., section 3.4 · Does a head matter on every test set?"
    figure = style.canvas(rows * 3.0, title, style.joined(model, what))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, ((name, task), own) in zip(grid, panels.items(), strict=False):
        both = own[[ONE, OTHER]].to_numpy()
        ends = low, high = 1.4 * min(both.min(), -COSTLY), 1.4 * max(both.max(), COSTLY)
        axes.plot(ends, ends, color=style.MUTED, linewidth=0.8)
        axes.scatter(own[ONE], own[OTHER], s=16, alpha=0.5, color=style.INK, linewidths=0)
        for row in own[own[[ONE, OTHER]].mean(axis=1) < -COSTLY].itertuples():
            axes.annotate(
                f"{row.layer}-{row.head}", (row.one_change, row.other_change), (4, 3),
                textcoords="offset points", fontsize=8,
            )  # fmt: skip
        axes.set_xscale("symlog", linthresh=COSTLY)
        axes.set_yscale("symlog", linthresh=COSTLY)
        ticks = [step for step in TICKS if low < step < high]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, map("{:g}".format, ticks))
        axes.set(xlim=ends, ylim=ends, xlabel="One (points)", ylabel="The other (points)")
        axes.set_title(f"{task}\n{name}", parse_math=False)
    return figure


def _curves(axes: Axes, table: pd.DataFrame, value: str, group: str, styles: style.Styles) -> list:
    """Draw a line for each group, and a band over its draws; return what a legend shows."""
    sns.lineplot(
        table, x="pruned", y=value, **style.by_style(group, styles), **style.WITH_BOUNDS,
        dashes=False, markersize=5, markeredgewidth=0, ax=axes,
    )  # fmt: skip
    handles, _ = axes.get_legend_handles_labels()
    axes.get_legend().remove()
    return handles
