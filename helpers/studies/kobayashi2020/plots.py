"""Figures 13 to 15: what attention moves, and what changes without some of it."""

from __future__ import annotations

from collections.abc import Mapping

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
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED, REDISTRIBUTED
from helpers.studies.common.fine_tune import concat_with_keys
from helpers.studies.kobayashi2020.edges import MAIN
from helpers.studies.kobayashi2020.lenses import LENSES, SPECIAL_TYPES, TOKEN_TYPES

UNITS = {
    "objective": "Loss (nats more)",
    "structural probe": "UUAS (percentage points less)",
    "Attn probe": "UAS (percentage points less)",
}
SHOWN_MODES = (DROPPED, MASS_MATCHED)
TITLES = {"attention": "attention: where heads look", "norm": "norm: what they bring back"}


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
        Figure 14, with two panels.
    """
    figure = canvas(3.6, "Figure 14 · Value vectors, and the first position", model)
    value_axes, state_axes = figure.subplots(1, 2)
    _draw_token_types(value_axes, norms, "value", special_tokens)
    value_axes.set(title="size of value vectors", ylabel="|f(x)| over the example's mean")
    state_labels = {"peak_first": "first position", "peak_others": "other positions"}
    for (column, label), (color, marker) in zip(state_labels.items(), style.LINES, strict=False):
        state_axes.plot("layer", column, data=sinks, color=color, marker=marker, label=label)
    state_axes.set(title="largest component of hidden states", ylabel="Multiple of the median")
    for axes in figure.axes:
        axes.set(xlabel="Layer", xticks=counting_ticks(int(sinks["layer"].max()), 12))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return figure


@theme()
def fig15_edges(
    edges: pd.DataFrame,
    ratios: Mapping[str, pd.DataFrame],
    special_tokens: SpecialTokens,
    *,
    model: str = "",
) -> Figure:
    """Draw what changes without the edges to each special token, by layer and in the group.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.
    ratios : mapping of str to DataFrame
        The tables edge_ratios.csv of the model and its controls, by the name of the model.
    special_tokens : mapping of str to str or None
        The model's tokens for "cls" and "sep".
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 15.  Above: how far the sentence vector turns, as a ratio of two ablations.  Below:
        the loss, and what the probes lose.  Intervals are 95%, over articles.
    """
    note = "by layer, and in several layers together (last); bars: 95%, over articles"
    title = "Figure 15 · Attention to special tokens cut, and as much cut from words"
    figure = canvas(7.0, title, join_nonempty(model, note))
    (*role_axes, redistributed_axes), outcome_axes = figure.subplots(2, 3)
    angles = concat_with_keys(ratios, "model").query("measure == 'sentence angle'")
    for axes, role in zip(role_axes, SPECIAL_TYPES, strict=True):
        matched = angles.query(f"keys == '{role}' and ways == '{DROPPED} / {MASS_MATCHED}'")
        _draw_layers(axes, matched, "model", "ratio")
        axes.set_title(f"{special_tokens.get(role)} dropped / mass-matched")
    redistributed = angles.query(
        f"ways == '{REDISTRIBUTED} / {DROPPED}' and keys in {SPECIAL_TYPES}"
    )
    _draw_layers(redistributed_axes, redistributed.query(f"model == '{MAIN}'"), "keys", "ratio")
    redistributed_axes.set_title("redistributed / dropped")
    for axes in (*role_axes, redistributed_axes):
        axes.set(yscale="log", ylabel="Ratio of angles")
        axes.axhline(1, color=style.INK, dashes=(4, 3), linewidth=1)
    outcomes = edges.query(f"keys in {SPECIAL_TYPES} and change in {SHOWN_MODES}")
    lines = outcomes["keys"].map(special_tokens) + ", " + outcomes["change"]
    outcomes = outcomes.assign(line=lines)
    for axes, (measure, unit) in zip(outcome_axes, UNITS.items(), strict=True):
        _draw_layers(axes, outcomes[outcomes["measure"] == measure], "line", "value")
        axes.set(title=measure, ylabel=unit)
    return figure


def _draw_layers(axes: Axes, rows: pd.DataFrame, by: str, value: str) -> None:
    """Draw a column of a table over its layers, with a line and intervals for each value of ``by``.

    Without rows the panel stays empty.
    """
    for (label, line), (color, marker) in zip(
        rows.groupby(by, sort=False), style.LINES, strict=False
    ):
        below = line[value] - line[f"{value}_low"]
        above = line[f"{value}_high"] - line[value]
        axes.errorbar(
            line["layers"].astype(str), line[value], [below, above], color=color, marker=marker,
            markersize=4, linewidth=1, label=label,
        )  # fmt: skip
    axes.set_xlabel("Layer")
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=1)


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
