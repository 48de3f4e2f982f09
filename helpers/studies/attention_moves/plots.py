"""Figures 13 to 15: what attention moves, and what changes without some of it."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.plots.style import SpecialTokens, canvas, counting_ticks, joined, named, theme
from helpers.studies.attention_moves.lenses import LENSES, TYPES

UNITS = {
    "layer output": "|h' - h| / |h|",
    "sentence vector": "1 - cosine",
    "token vectors": "1 - cosine",
    "objective": "Loss (nats more)",
    "structural probe": "UUAS (points less)",
    "Attn probe": "UAS (points less)",
}
TITLES = {"attention": "attention: where heads look", "norm": "norm: what they bring back"}


@theme()
def fig13_lenses(shares: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "") -> Figure:
    """Draw Figure 2 through both lenses: lens_shares.csv, a point a head, a line their mean."""
    note = "a point is a head, a line the mean of the layer"
    figure = canvas(3.4, "Figure 13 · Figure 2 through two lenses", joined(model, note))
    for axes, lens in zip(figure.subplots(1, 2, sharey=True), LENSES, strict=True):
        for kind in TYPES:
            column, color = f"{lens}_{kind}", style.TOKEN_STYLES[kind].color
            if shares[column].notna().any():
                look = {"s": 9, "color": color, "alpha": 0.3, "linewidths": 0}
                axes.scatter(shares["layer"], shares[column], **look)
                _line(axes, shares.groupby("layer")[column].mean(), kind, special_tokens)
        axes.set(title=TITLES[lens], ylim=(-0.02, 1.02))
        axes.set(xlabel="Layer", xticks=counting_ticks(int(shares["layer"].max()), 12))
    figure.axes[0].set_ylabel("Average share (fraction)")
    lines = figure.axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower left", ncols=4)
    return figure


@theme()
def fig14_sinks(
    sinks: pd.DataFrame, norms: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw value vectors by type of token, and the first position by layer.

    ``norms`` is value_norms.csv, ``sinks`` sinks.csv.
    """
    figure = canvas(3.6, "Figure 14 · Value vectors, and the first position", model)
    values, shares, states = figure.subplots(1, 3)
    for kind in TYPES:
        if norms[f"value_{kind}"].notna().any():
            _line(values, norms.groupby("layer")[f"value_{kind}"].mean(), kind, special_tokens)
    values.set(title="size of value vectors", ylabel="|f(x)| over the example's mean")
    panels = {
        shares: {"attention_first": "attention", "norm_first": "norm lens", "uniform": "uniform"},
        states: {"peak_first": "first position", "peak_others": "other positions"},
    }
    for axes, columns in panels.items():
        for (column, label), (color, marker) in zip(columns.items(), style.LINES, strict=False):
            axes.plot(sinks["layer"], sinks[column], color=color, marker=marker, label=label)
    shares.set(title="share of the first position", ylabel="Share (fraction)")
    states.set(title="largest state component", ylabel="Multiple of the median")
    for axes in figure.axes:
        axes.set(xlabel="Layer", xticks=counting_ticks(int(sinks["layer"].max()), 12))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return figure


@theme()
def fig15_edges(edges: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw what cutting the edges to special tokens changes, layer by layer: edges.csv.

    A panel is a measure, of the model itself or of a control; a line is a way to cut.
    """
    alone = edges.query("keys == 'special' and queries == 'all'")
    alone = alone[alone["layers"].astype(str).str.isdigit()]
    panels, first = list(alone.groupby(["model", "measure"], sort=False)), {}
    rows = -(-len(panels) // 3)
    note = "one layer at a time; bands: 95%, over articles"
    title = "Figure 15 · Attention to special tokens cut, and as much cut elsewhere"
    figure = canvas(1.9 * rows + 0.4, title, joined(model, note))
    grid = figure.subplots(rows, 3, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, ((of, measure), own) in zip(grid, panels, strict=False):
        for (way, line), (color, marker) in zip(own.groupby("change"), style.LINES, strict=False):
            layers, look = line["layers"].astype(int), {"color": color, "label": way}
            axes.plot(layers, line["value"], marker=marker, markersize=4, **look)
            low, high = line[style.BOUNDS].T.to_numpy()
            axes.fill_between(layers, low, high, color=color, alpha=0.2, lw=0)
        if UNITS[measure].islower() or "|" in UNITS[measure]:
            axes.sharey(first.setdefault(measure, axes))
            axes.set_yscale("log")
        axes.set(xticks=counting_ticks(int(layers.max()), 12), ylabel=UNITS[measure])
        axes.set_title(measure if of == "own" else f"{measure}, {of} weights")
    figure.supxlabel("Layer", fontsize=9.5)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _line(axes: Axes, values: pd.Series, kind: str, special_tokens: SpecialTokens) -> None:
    label, color, marker = named(style.TOKEN_STYLES[kind], special_tokens)
    axes.plot(values, color=color, marker=marker, markeredgecolor="white", label=label)
