"""Figures 10 and 11: which heads matter, and how many can go (Michel et al. 2019)."""

from __future__ import annotations

from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.figure import Figure

from helpers.analysis.heads import by_head
from helpers.plots.style import (
    DIVERGING,
    INK,
    MUTED,
    SEQUENTIAL,
    WIDTH,
    Style,
    canvas,
    heat_map,
    joined,
    theme,
)

NARROW = 13  # letters of a task's name in a line
SIGNIFICANT = 0.01  # the level of the paper
NARROWEST = 3.0  # points: a smaller range would make differences of single examples look large
ORDERS = {
    "importance": Style("least important first", "#0173B2", "o"),
    "single ablation": Style("least costly alone first", "#D55E00", "s"),
    "random": Style("random orders: mean and range", "#555555", "D"),
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
    (task, layer, head, change in points, p_value).  A cross marks a change with p < 0.01.  The
    scale of changes leaves out the largest fiftieth, as the ends of its bar say.
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
    widest = max(float(single["change"].abs().quantile(0.98)), NARROWEST)
    parts = (
        (weights, "normalised", "Importance", SEQUENTIAL, Normalize(0, 1)),
        (single, "change", "Accuracy (points)", DIVERGING, TwoSlopeNorm(0, -widest, widest)),
    )
    for row, (table, column, unit, cmap, norm) in zip(grid, parts, strict=True):
        for axes, task in zip(row, tasks, strict=True):
            mine = table[table["task"] == task]
            heat_map(axes, by_head(mine, column), norm, cmap, most=max(4, 36 // len(tasks)))
        figure.colorbar(
            ScalarMappable(norm, cmap), ax=row, label=unit, aspect=14, pad=0.015,
            extend=_extend(table[column], norm),
        )  # fmt: skip
    for axes, task in zip(grid[0], tasks, strict=True):
        axes.set_title(f"{fill(task, NARROW)}\nimportance", parse_math=False)
    for axes, task in zip(grid[1], tasks, strict=True):
        axes.set_title("removed alone")
        marked = single[(single["task"] == task) & (single["p_value"] < SIGNIFICANT)]
        for color, width in (("white", 3.2), (INK, 1.4)):  # seen on dark and on light
            axes.scatter(
                marked["head"], marked["layer"], marker="x", s=24, color=color, linewidths=width
            )
    figure.supxlabel("Head", fontsize=9.5)
    figure.supylabel("Layer", fontsize=9.5)
    return figure


@theme()
def fig11_pruning(table: pd.DataFrame, translation: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw what is left of the accuracy as heads are pruned, a panel for each task.

    ``table`` is pruning.csv (task, order, draw, pruned in percent, accuracy in percent); the
    random draws are a band with their mean.  ``translation`` (kind, kept as a fraction, bleu) has
    a panel of its own, with a line for each kind of attention.
    """
    tasks = table["task"].unique()
    panels = len(tasks) + 1
    columns = 2 if panels in (2, 4) else min(panels, 3)
    rows = -(-panels // columns)
    figure = canvas(
        2.7 * rows + 0.3,
        "Figure 11 · Pruning heads",
        joined(model, "a tenth of the heads at a time, in three orders"),
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[panels:]:
        axes.set_axis_off()
    for axes, task in zip(grid, tasks, strict=False):
        _pruning_panel(axes, table[table["task"] == task])
        axes.set_title(task, parse_math=False)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    _translation_panel(grid[panels - 1], translation)
    return figure


@theme()
def importance_course(summary: pd.DataFrame, *, task: str = "", model: str = "") -> Figure:
    """Draw how soon heads are as important as they will be (section 6).

    ``summary`` has trained (percent of the steps), correlation (with the end) and top_tenth (the
    share of all importance that a tenth of the heads has, in percent).
    """
    figure = canvas(
        2.8,
        "Michel et al., section 6 · Importance of heads over the course of fine-tuning",
        joined(model, task),
    )
    left, right = figure.subplots(1, 2)
    left.plot(summary["trained"], summary["correlation"], color="#0173B2", marker="o")
    left.set(ylabel="Correlation with the end\n(Spearman)", ylim=(min(0, *left.get_ylim()), 1.03))
    right.plot(summary["trained"], summary["top_tenth"], color="#D55E00", marker="s")
    right.axhline(10, color=MUTED, dashes=(4, 3), linewidth=1.2)
    right.set(ylabel="Importance that the top\ntenth of the heads has (%)")
    right.set_ylim(0, max(20, 1.15 * summary["top_tenth"].max()))
    right.text(100, 10.6, "if all were equal", color=MUTED, ha="right", va="bottom", fontsize=8.5)
    for axes in (left, right):
        axes.set(xlabel="Steps of the fine-tuning (%)")
    return figure


def _pruning_panel(axes: Axes, table: pd.DataFrame) -> None:
    for order, style in ORDERS.items():
        rows = table[table["order"] == order].groupby("pruned")["accuracy"]
        mean = rows.mean()
        axes.plot(
            mean.index, mean, color=style.color, marker=style.marker, markersize=5,
            label=style.label, zorder=1 if order == "random" else 2,
        )  # fmt: skip
        if order == "random":
            axes.fill_between(
                mean.index, rows.min(), rows.max(), color=style.color, alpha=0.18, linewidth=0
            )
    whole = table.loc[table["pruned"] == 0, "accuracy"].iloc[0]
    axes.axhline(whole, color=MUTED, dashes=(4, 3), linewidth=1)
    axes.set(xlabel="Heads pruned (%)", ylabel="Accuracy (%)", xlim=(-3, 103), ylim=(0, 103))


def _translation_panel(axes: Axes, table: pd.DataFrame) -> None:
    for kind, style in KINDS.items():
        rows = table[table["kind"] == kind].sort_values("kept", ascending=False)
        axes.plot(
            100 * (1 - rows["kept"]), rows["bleu"], color=style.color, marker=style.marker,
            markersize=5, label=style.label,
        )  # fmt: skip
    axes.set_title("translation, by kind of attention")
    axes.set(xlabel="Heads of that kind pruned (%)", ylabel="BLEU", xlim=(-3, 103))
    axes.set_ylim(0, 103)
    axes.legend(loc="lower left", handletextpad=0.5, labelspacing=0.3)


def _extend(values: pd.Series, norm: Normalize) -> str:
    """Return which ends of a colour scale have values beyond them, in matplotlib's words."""
    beyond = values.min() < norm.vmin, values.max() > norm.vmax
    return ("neither", "max", "min", "both")[2 * beyond[0] + beyond[1]]
