"""The figure of several runs: attention by relative depth, and best heads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.plots import style
from helpers.plots.style import Style, Styles, canvas, draw_intervals, theme

ROW_INCHES = 0.24  # for one relation
LINE_CHARACTERS = 112  # in the width of the page
MAX_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's
# No colour of a token type or of the paper; readers with colour blindness can tell them apart.
COLORS = ("#2F4B7C", "#E08E0B", "#7FB3B0", "#B79AD9", "#111111", "#F4C95D")
PAPER = Style("the paper", style.ACCENT, "D")
OFFSET = Style("best fixed offset", style.MUTED, "|")
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
QUANTITIES = ("accuracy", "accuracy_low", "accuracy_high", "baseline")  # of a run's best heads
LAYER_PANELS = {
    "entropy": ("Entropy", "Share of uniform entropy"),
    "sep": ("To the separator", "Average weight (fraction)"),
    "cls": ("To the first token", "Average weight (fraction)"),
}


@theme()
def comparison(
    runs: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    best_heads: pd.DataFrame,
    note: str = "",
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
    styles = {}
    style_cycle = zip(itertools.cycle(COLORS), itertools.cycle(MARKERS), strict=False)
    for name, (color, marker) in zip(runs, style_cycle, strict=False):
        styles[name] = Style(name, color, marker)
    in_paper = best_heads[best_heads["paper accuracy"].notna()]
    best_heads = in_paper if len(in_paper) else best_heads.head(MAX_RELATIONS)
    handles = _handles(styles)
    columns = max(1, LINE_CHARACTERS // (7 + max(len(handle.get_label()) for handle in handles)))
    heights = [0.25 * -(-len(handles) // columns), 2.6, ROW_INCHES * len(best_heads) + 0.8]
    subtitle = "curves: mean of a layer's heads; bars: 95% intervals"
    figure = canvas(sum(heights), "Runs compared", subtitle, note)
    figure.get_layout_engine().set(h_pad=0.08)
    rows = figure.add_gridspec(3, 1, height_ratios=heights)
    legend_axes = figure.add_subplot(rows[0])
    legend_axes.set_axis_off()
    legend_axes.legend(
        handles=handles, loc="upper left", ncols=columns, borderpad=0, borderaxespad=0
    )
    curves = {}
    for quantity in LAYER_PANELS:
        layer_means = [relative_curve(tables, quantity) for tables in runs.values()]
        if any(curve.any() for curve in layer_means):
            curves[quantity] = layer_means
    curve_axes = rows[1].subgridspec(1, max(len(curves), 1)).subplots(squeeze=False)[0]
    for axes, quantity in zip(curve_axes, curves, strict=False):
        title, unit = LAYER_PANELS[quantity]
        for curve, (_, color, marker) in zip(curves[quantity], styles.values(), strict=True):
            axes.plot(curve.index, curve, color=color, marker=marker, **style.WHITE_EDGES)
        axes.set(title=title, ylabel=unit, xlabel="Layer, as a share of the depth")
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    _accuracies(figure.add_subplot(rows[2]), best_heads, styles)
    return figure


def relative_curve(tables: Mapping[str, pd.DataFrame], quantity: str) -> pd.Series:
    """Compute the mean of a quantity over each layer's heads, by relative depth.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        A run's tables by name.
    quantity : {"entropy", "sep", "cls"}
        Entropy, as a share of that of uniform attention, or the attention to a special token.

    Returns
    -------
    pandas.Series
        Indexed by depth, of which the last layer has 1; layers that lack the quantity are left out.
    """
    table = tables.get("entropy" if quantity == "entropy" else "token_types")
    if table is None:
        return pd.Series(dtype=float)
    values = table[quantity]
    if quantity == "entropy":
        values = values / table["uniform"]
    by_layer = values.groupby(table["layer"]).mean()
    by_layer.index = by_layer.index / by_layer.index.max()
    return by_layer.dropna()


def _accuracies(axes: Axes, table: pd.DataFrame, styles: Styles) -> None:
    """Draw each relation's best heads with their intervals, the paper's, and fixed offsets."""
    for slot, (name, run_style) in enumerate(styles.items()):
        y = np.arange(len(table)) + 0.5 * ((slot + 0.5) / len(styles) - 0.5)
        columns = [f"{name} {quantity}" for quantity in QUANTITIES]
        accuracy, low, high, baseline = table.reindex(columns=columns).to_numpy(float).T
        axes.plot(
            baseline, y, OFFSET.marker, color=OFFSET.color, markersize=5, markeredgewidth=1.4,
            zorder=1,
        )  # fmt: skip
        draw_intervals(axes, low, high, y, color=run_style.color, elinewidth=1.1)
        axes.plot(
            accuracy, y, run_style.marker, color=run_style.color, markersize=5.5,
            markeredgewidth=0.6, markeredgecolor="white",
        )  # fmt: skip
    axes.plot(
        table["paper accuracy"], range(len(table)), PAPER.marker, color=PAPER.color, markersize=5,
        markerfacecolor="none", markeredgewidth=1.2, zorder=2,
    )  # fmt: skip
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_yticks(range(len(table)), table["relation"], parse_math=False)
    axes.set(title="Best head for each relation", xlabel="Accuracy (%)", xlim=(0, 100))
    axes.tick_params(axis="y", length=0)


def _handles(styles: Styles) -> list[Line2D]:
    handles = []
    for entry in (*styles.values(), PAPER, OFFSET):
        handles.append(
            Line2D([], [], color=entry.color, marker=entry.marker, markersize=6, label=entry.label)
        )
    for handle in handles[-2:]:
        handle.set(linestyle="", markerfacecolor="none", markeredgewidth=1.3)
    return handles
