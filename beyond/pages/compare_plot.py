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
from helpers.plots.style import (
    SERIES_COLORS,
    Style,
    canvas,
    draw_curve,
    draw_intervals,
    for_column,
)

ROW_INCHES = 0.24  # for one relation
COLUMN_ROW_INCHES = 0.17  # the same in a figure for a column
NAME_WIDTH = 30  # characters in a line of the legend
MAX_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
QUANTITIES = ("accuracy", "accuracy_low", "accuracy_high", "baseline")  # of a run's best heads
LAYER_PANELS = {
    "entropy": ("Entropy", "Share of uniform entropy"),
    "sep": ("To the separator", "Average weight (fraction)"),
    "first": ("To the first token", "Average weight (fraction)"),
}


@for_column
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
    styles = list(map(Style, runs, cycle(SERIES_COLORS), cycle(MARKERS)))
    curves = {}
    for quantity in LAYER_PANELS:
        layer_means = [relative_curve(tables, quantity) for tables in runs.values()]
        if any(curve.any() for curve in layer_means):
            curves[quantity] = layer_means
    in_paper = best_heads[best_heads["paper accuracy"].notna()]
    best_heads = in_paper if len(in_paper) else best_heads.head(MAX_RELATIONS)
    row_inches = COLUMN_ROW_INCHES if style.in_column() else ROW_INCHES
    curve_height = 1.3 * max(len(curves), 1) if style.in_column() else 2.6
    heights = [curve_height, row_inches * len(best_heads) + 1.5]  # with the legend
    intervals = "curves: mean of a layer's heads; bars: 95% intervals"
    figure = canvas(sum(heights), _title(best_heads, list(runs)), intervals, note=note)
    rows = figure.add_gridspec(2, 1, height_ratios=heights)
    shape = (max(len(curves), 1), 1) if style.in_column() else (1, max(len(curves), 1))
    curve_axes = rows[0].subgridspec(*shape).subplots(squeeze=False, sharex=True).ravel()
    shares = [curve.max() for name, means in curves.items() if name != "entropy" for curve in means]
    largest_share = np.nanmax(shares or [1.0])
    for axes, (quantity, layer_means) in zip(curve_axes, curves.items(), strict=False):
        title, unit = LAYER_PANELS[quantity]
        for curve, run_style in zip(layer_means, styles, strict=True):
            table = pd.DataFrame({"depth": curve.index, "mean": curve.to_numpy()})
            draw_curve(axes, table, "depth", "mean", run_style, **style.WHITE_EDGES)
        top = 1.0 if quantity == "entropy" else largest_share
        axes.set(
            title=title,
            ylabel=fill(unit, 16) if style.in_column() else unit,
            xlim=(0, 1.02),
            ylim=(0, 1.05 * top),
        )
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("Layer, as a share of the depth")
    _draw_accuracies(figure.add_subplot(rows[1]), best_heads, styles)
    return figure


def _title(best_heads: pd.DataFrame, runs: Sequence[str]) -> str:
    """Write the title: for how many relations each run has the best head of all."""
    accuracies = best_heads.reindex(columns=[f"{name} accuracy" for name in runs])
    accuracies = accuracies.dropna(how="all")
    if not len(accuracies):
        return f"{', '.join(runs)} side by side"
    wins = accuracies.idxmax(axis=1).value_counts()
    parts = [f"{name} for {wins.get(f'{name} accuracy', 0)}" for name in runs]
    return f"The most accurate head for {len(accuracies)} relations: {', '.join(parts)}"


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
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        borderaxespad=4,
        ncols=1 if style.in_column() else 2,
    )
