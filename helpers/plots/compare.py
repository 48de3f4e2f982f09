"""The figure of several runs: attention by relative depth, and best heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.plots.style import Style, canvas, draw_curve, draw_intervals, theme

ROW_INCHES = 0.24  # for one relation
NAME_WIDTH = 30  # characters in a line of the legend
MAX_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's
# No colour of a token type or of the paper; readers with colour blindness can tell them apart.
COLORS = ("#2F4B7C", "#E08E0B", "#7FB3B0", "#B79AD9", "#111111", "#F4C95D")
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
QUANTITIES = ("accuracy", "accuracy_low", "accuracy_high", "baseline")  # of a run's best heads
LAYER_PANELS = {
    "entropy": ("Entropy", "Share of uniform entropy"),
    "sep": ("To the separator", "Average weight (fraction)"),
    "first": ("To the first token", "Average weight (fraction)"),
}


@theme()
def comparison(
    runs: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    best_heads: pd.DataFrame,
    note: str,
) -> Figure:
    """Draw several runs in one figure: attention by depth, and best heads.

    A quantity that is zero in every run has no panel.

    Parameters
    ----------
    runs : mapping of str to mapping of str to pandas.DataFrame
        For each run its tables by name, of which token_types and entropy are drawn.
    best_heads : pandas.DataFrame
        The best head of each run for each relation, from `run.compare.best_heads`.
    note : str
        A sentence below the title, for example about settings in which the runs differ.

    Returns
    -------
    matplotlib.figure.Figure
    """
    styles = list(map(Style, runs, cycle(COLORS), cycle(MARKERS)))
    curves = {}
    for quantity in LAYER_PANELS:
        layer_means = [relative_curve(tables, quantity) for tables in runs.values()]
        if any(curve.any() for curve in layer_means):
            curves[quantity] = layer_means
    in_paper = best_heads[best_heads["paper accuracy"].notna()]
    best_heads = in_paper if len(in_paper) else best_heads.head(MAX_RELATIONS)
    heights = [2.6, ROW_INCHES * len(best_heads) + 1.5]  # with the legend
    intervals = "curves: mean of a layer's heads; bars: 95% intervals"
    figure = canvas(sum(heights), f"Runs compared: {', '.join(runs)}", intervals, note=note)
    rows = figure.add_gridspec(2, 1, height_ratios=heights)
    curve_axes = rows[0].subgridspec(1, max(len(curves), 1)).subplots(squeeze=False)[0]
    for axes, (quantity, layer_means) in zip(curve_axes, curves.items(), strict=False):
        title, unit = LAYER_PANELS[quantity]
        for curve, run_style in zip(layer_means, styles, strict=True):
            table = pd.DataFrame({"depth": curve.index, "mean": curve.to_numpy()})
            draw_curve(axes, table, "depth", "mean", run_style, **style.WHITE_EDGES)
        axes.set(title=title, ylabel=unit, xlabel="Layer, as a share of the depth")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    _draw_accuracies(figure.add_subplot(rows[1]), best_heads, styles)
    return figure


def relative_curve(tables: Mapping[str, pd.DataFrame], quantity: str) -> pd.Series:
    """Compute the mean of a quantity over each layer's heads, by relative depth.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        A run's tables by name.
    quantity : {"entropy", "sep", "first"}
        Entropy, as a share of that of uniform attention, or the attention to a token.

    Returns
    -------
    pandas.Series
        Indexed by depth, of which the last layer has 1; layers that lack the quantity are left out.
    """
    table = tables.get("entropy" if quantity == "entropy" else "token_types")
    if table is None:
        return pd.Series(dtype=float)
    column = quantity if quantity in table else "cls"  # older runs do not have the first token
    values = table[column] / table.get("uniform", 1)  # which only entropies have
    by_layer = values.groupby(table["layer"]).mean()
    by_layer.index = by_layer.index / by_layer.index.max()
    return by_layer.dropna()


def _draw_accuracies(axes: Axes, table: pd.DataFrame, styles: Sequence[Style]) -> None:
    """Draw each relation's best heads with their intervals, the paper's, and fixed offsets."""
    for slot, (name, color, marker) in enumerate(styles):
        y = np.arange(len(table)) + 0.5 * ((slot + 0.5) / len(styles) - 0.5)
        columns = [f"{name} {quantity}" for quantity in QUANTITIES]
        accuracy, low, high, baseline = table.reindex(columns=columns).to_numpy(float).T
        offset_label = None if slot else "best fixed offset"  # once in the legend
        axes.plot(baseline, y, "|", color=style.MUTED, zorder=1, label=offset_label)
        draw_intervals(axes, low, high, y, color=color, elinewidth=1.1)
        axes.plot(
            accuracy, y, color=color, marker=marker, linestyle="", label=fill(name, NAME_WIDTH),
            **style.WHITE_EDGES,
        )  # fmt: skip
    axes.plot(
        table["paper accuracy"], range(len(table)), "D", color=style.ACCENT, label="the paper",
        markerfacecolor="none",
    )  # fmt: skip
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_yticks(range(len(table)), table["relation"], parse_math=False)
    axes.set(title="Best head for each relation", xlabel="Accuracy (%)", xlim=(0, 100))
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=4, ncols=2)
