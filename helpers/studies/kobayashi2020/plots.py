"""Figures 13 to 15: what attention moves, and what changes without some of it."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.plots.style import (
    SpecialTokens,
    canvas,
    counting_ticks,
    join_nonempty,
    resolve_special_tokens,
    theme,
)
from helpers.studies.kobayashi2020.edges import MAIN
from helpers.studies.kobayashi2020.lenses import LENSES, TOKEN_TYPES

UNITS = {
    "layer output": "|h' - h| / |h|",
    "sentence vector": "1 - cosine",
    "token vectors": "1 - cosine",
    "objective": "Loss (nats more)",
    "structural probe": "UUAS (points less)",
    "Attn probe": "UAS (points less)",
}
ON_LOG_SCALE = ("layer output", "sentence vector", "token vectors")
TITLES = {"attention": "attention: where heads look", "norm": "norm: what they bring back"}
PANELS_PER_ROW = 3


@theme()
def fig13_lenses(shares: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = "") -> Figure:
    """Draw the share of attention by type of token through both lenses, for each layer.

    Parameters
    ----------
    shares : DataFrame
        The table lens_shares.csv: a point is a head, a line is the mean of the heads of a layer.
    special_tokens : mapping of str to str or None
        The model's tokens for "cls" and "sep", for the legend.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 13: Figure 2 of the paper, once per lens.
    """
    note = "a point is a head, a line the mean of the layer"
    figure = canvas(3.4, "Figure 13 · Figure 2 through two lenses", join_nonempty(model, note))
    for axes, lens in zip(figure.subplots(1, 2, sharey=True), LENSES, strict=True):
        _draw_token_types(axes, shares, lens, special_tokens, points=True)
        axes.set(title=TITLES[lens], ylim=(-0.02, 1.02))
        axes.set(xlabel="Layer", xticks=counting_ticks(int(shares["layer"].max()), 12))
    figure.axes[0].set_ylabel("Average share (fraction)")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4)
    return figure


@theme()
def fig14_sinks(
    sinks: pd.DataFrame, norms: pd.DataFrame, special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw the norms of value vectors by type of token, and the first position, for each layer.

    Parameters
    ----------
    sinks : DataFrame
        The table sinks.csv, one row per layer.
    norms : DataFrame
        The table value_norms.csv, one row per head.
    special_tokens : mapping of str to str or None
        The model's tokens for "cls" and "sep", for the legend.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 14, with three panels.
    """
    figure = canvas(3.6, "Figure 14 · Value vectors, and the first position", model)
    value_axes, share_axes, state_axes = figure.subplots(1, 3)
    _draw_token_types(value_axes, norms, "value", special_tokens)
    value_axes.set(title="size of value vectors", ylabel="|f(x)| over the example's mean")
    share_labels = {"attention_first": "attention", "norm_first": "norm lens", "uniform": "uniform"}
    _draw_columns(share_axes, sinks, share_labels)
    share_axes.set(title="share of the first position", ylabel="Share (fraction)")
    state_labels = {"peak_first": "first position", "peak_others": "other positions"}
    _draw_columns(state_axes, sinks, state_labels)
    state_axes.set(title="largest state component", ylabel="Multiple of the median")
    for axes in figure.axes:
        axes.set(xlabel="Layer", xticks=counting_ticks(int(sinks["layer"].max()), 12))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return figure


@theme()
def fig15_edges(edges: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw the effect of ablating the edges to special tokens, one layer at a time.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.  A panel is a measure of the model or of a control; a line is a mode
        of ablation; a band is a 95% interval over articles.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 15.
    """
    to_special = edges.query("keys == 'special' and queries == 'all'")
    single_layer = to_special[to_special["layers"].astype(str).str.isdigit()]
    panels = list(single_layer.groupby(["model", "measure"], sort=False))
    n_rows = -(-len(panels) // PANELS_PER_ROW)
    note = "one layer at a time; bands: 95%, over articles"
    title = "Figure 15 · Attention to special tokens cut, and as much cut elsewhere"
    figure = canvas(1.9 * n_rows + 0.4, title, join_nonempty(model, note))
    grid = figure.subplots(n_rows, PANELS_PER_ROW, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    shared_axes = {}  # of each measure on a log scale: the first panel's
    for axes, ((model_name, measure), rows) in zip(grid, panels, strict=False):
        _draw_modes(axes, rows)
        if measure in ON_LOG_SCALE:
            axes.sharey(shared_axes.setdefault(measure, axes))
            axes.set_yscale("log")
        last_layer = int(rows["layers"].astype(int).max())
        axes.set(xticks=counting_ticks(last_layer, 12), ylabel=UNITS[measure])
        axes.set_title(measure if model_name == MAIN else f"{measure}, {model_name} weights")
    figure.supxlabel("Layer", fontsize=9.5)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3)
    return figure


def _draw_token_types(
    axes: Axes,
    table: pd.DataFrame,
    measure: str,
    special_tokens: SpecialTokens,
    *,
    points: bool = False,
) -> None:
    """Draw a line for each type of token: the mean of the heads of each layer.

    With ``points``, heads are drawn too.  Types that the model does not have are left out.
    """
    for token_type in TOKEN_TYPES:
        values = table[f"{measure}_{token_type}"]
        if values.isna().all():
            continue
        token_style = style.TOKEN_STYLES[token_type]
        label, color, marker = resolve_special_tokens(token_style, special_tokens)
        if points:
            axes.scatter(table["layer"], values, s=9, color=color, alpha=0.3, linewidths=0)
        means = values.groupby(table["layer"]).mean()
        axes.plot(means, color=color, marker=marker, markeredgecolor="white", label=label)


def _draw_columns(axes: Axes, table: pd.DataFrame, labels: dict[str, str]) -> None:
    """Draw columns of a table over its layers, each with its label."""
    for (column, label), (color, marker) in zip(labels.items(), style.LINES, strict=False):
        axes.plot(table["layer"], table[column], color=color, marker=marker, label=label)


def _draw_modes(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw one measure over layers, with a line and a band for each mode of ablation."""
    for (mode, line), (color, marker) in zip(rows.groupby("change"), style.LINES, strict=False):
        layers = line["layers"].astype(int)
        axes.plot(layers, line["value"], color=color, marker=marker, markersize=4, label=mode)
        axes.fill_between(
            layers, line["value_low"], line["value_high"], color=color, alpha=0.2, lw=0
        )
