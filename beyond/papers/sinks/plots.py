"""Figures 14, 15, 17 and 20: what makes a sink, and what edges change."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beyond.papers.common.edge_cuts import (
    ALL_QUERIES,
    DROPPED,
    FIRST_KEYS,
    MASS_MATCHED,
    REDISTRIBUTED,
    SPECIAL_KEYS,
)
from beyond.papers.sinks.edges import ANGLE, MAIN, OBJECTIVE
from beyond.papers.sinks.lenses import ALL_LAYERS, SPECIAL_TYPES
from beyond.papers.sinks.transplant import (
    ABLATED,
    INTACT,
    MOVED,
    RANDOM,
    SECOND,
    SINK,
    TARGET_TOKEN,
    WHOLE,
)
from helpers.metrics import rows_of_model
from helpers.plots import style
from helpers.plots.style import (
    SpecialTokens,
    Style,
    canvas,
    counting_ticks,
    draw_curve,
    label_ends,
    legend_below,
    panel_grid,
    theme,
)

UNITS = {
    ANGLE: "Turn of the sentence vector (degrees)",
    OBJECTIVE: "Increase of the loss (nats)",
}
LEAST_DF = 4  # an interval of fewer than five articles is not drawn, because it is too narrow
THIN = {"color": style.MUTED, "linewidth": 0.6, "zorder": 1}  # zero, or no change
# One colour has one meaning in all figures of these notebooks.
INTACT_COLOR, LARGEST_COLOR, VECTOR_COLOR, SECOND_COLOR, BOTH_COLOR, _ = style.SERIES_COLORS
COPIED_COLOR = "#8C5A00"
MODEL_STYLES = {  # by the names of the models in edges.csv
    MAIN: Style("trained", INTACT_COLOR, "o"),
    "random": style.CONTROL_STYLES["random"],
    "entropy-matched": style.CONTROL_STYLES["entropy-matched"],
}
RANDOM_COLOR = style.CONTROL_STYLES["random"].color
MODES = {  # by the values of the column change of edges.csv
    DROPPED: "dropped",
    MASS_MATCHED: "as much from words",
    REDISTRIBUTED: "given to words",
}
SHARES = "Attention to {token}"
MEAN_LEAD = "Lead of {token}: mean"
VARIATION = "Standard deviation of the lead"
SINK_PANELS = {  # columns of sink_causes.csv, by the title of their panel and its axis
    (SHARES, "Share (fraction)"): {
        "cls": MODEL_STYLES[MAIN]._replace(label="intact"),
        "cls_without_largest": Style("largest dimension set to its mean", LARGEST_COLOR, "s"),
        "cls_without_second": Style("second-largest dimension set to its mean", SECOND_COLOR, "^"),
    },
    (MEAN_LEAD, "Lead (nats)"): {
        "constant": MODEL_STYLES[MAIN]._replace(label="intact"),
    },
    (VARIATION, "Deviation (nats)"): {
        "content": Style("by content", VECTOR_COLOR, "v"),
        "position": Style("by position", BOTH_COLOR, "P"),
    },
}
LENGTH_STYLES = tuple(zip(style.SERIES_COLORS[:4], "os^P", strict=True))


@theme()
def fig14_sinks(causes: pd.DataFrame, token: str, *, model: str) -> Figure:
    """Draw what makes the first token a sink, by layer.

    Parameters
    ----------
    causes : DataFrame
        The table sink_causes.csv.
    token : str
        The model's first token.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 14.  The panels have the share of attention on the first token, also without one
        dimension of its vector; the mean of the token's lead; and the standard deviations of the
        lead.  The title has means over layers.
    """
    # A model without [CLS] has another first token.
    causes = causes.rename(columns=lambda name: re.sub("^first", "cls", name))
    title = (
        f"Figure 14 · Without one dimension, {token} gets "
        f"{causes['cls_without_largest'].mean():.0%} of the attention, "
        f"not {causes['cls'].mean():.0%}"
    )
    figure = canvas(4.5, title, model, "title: mean of the layers")
    panels = panel_grid(figure, len(SINK_PANELS), 1)
    for axes, ((panel_title, label), styles) in zip(panels, SINK_PANELS.items(), strict=True):
        for column, series_style in styles.items():
            draw_curve(axes, causes, "layer", column, series_style)
        axes.set_title(panel_title.format(token=token))
        axes.set_ylabel(label)
        axes.axhline(0, **THIN)
        axes.set_xticks(counting_ticks(len(causes), 8))
        axes.locator_params("y", nbins=5)
    panels[-1].set_xlabel("Layer")
    legend_below(figure, columns=2)
    return figure


@theme()
def fig17_transplant(shares: pd.DataFrame, token: str, *, model: str) -> Figure:
    """Draw who gets attention after one dimension of one vector was changed before one layer.

    Parameters
    ----------
    shares : DataFrame
        The table sink_transplant.csv.
    token : str
        The sink's token.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 17.  Shares of attention by layer: of the sink, intact and without the value, and of
        the token that gets the value, or the whole vector.  Of the two largest dimensions, the one
        that moves more attention is drawn.
    """
    shares = shares.astype({"layer": str})
    overall = shares[shares["layer"] == ALL_LAYERS].set_index(["change", "token"])["share"]
    moves = [f"{MOVED}: {SECOND}", MOVED]
    moved = max(moves, key=lambda change: overall[change, TARGET_TOKEN])
    without = moved.replace(MOVED, ABLATED)
    which = "second-largest" if moved != MOVED else "largest"
    lines = {
        (INTACT, SINK): MODEL_STYLES[MAIN]._replace(label=f"{token}, intact"),
        (without, SINK): Style(f"{token} without it", LARGEST_COLOR, "s"),
        (moved, TARGET_TOKEN): Style("token 20 with it", COPIED_COLOR, "o"),
        (f"{MOVED}: {WHOLE}", TARGET_TOKEN): Style("token 20,\nwhole vector", VECTOR_COLOR, "X"),
        (f"{ABLATED}: {RANDOM}", SINK): Style(f"{token}, random\ndirection", RANDOM_COLOR, "v"),
    }
    before = shares["before"].iloc[0]
    figure = canvas(
        2.3,
        f"Figure 17 · With one value of the sink, token 20 gets {overall[moved, TARGET_TOKEN]:.0%} "
        f"of attention; the sink had {overall[INTACT, SINK]:.0%}",
        model,
        f"it: the value of the sink's {which} dimension, changed before layer {before}; bands: "
        "95% intervals",
    )
    axes = figure.subplots()
    by_layer = shares[shares["layer"] != ALL_LAYERS].astype({"layer": int})
    by_change = dict(list(by_layer.groupby(["change", "token"])))
    for line, look in lines.items():
        draw_curve(axes, by_change[line], "layer", "share", look)
    axes.set(xlabel="Layer", ylabel="Share of attention", ylim=(0, None))
    axes.locator_params("x", nbins=8, integer=True)
    label_ends(axes, gap=0.12)
    return figure


@theme()
def fig20_lengths(measures: pd.DataFrame, token: str, *, model: str) -> Figure:
    """Draw whether the share of the first token changes with the length of the text.

    Parameters
    ----------
    measures : DataFrame
        The table sink_lengths.csv.
    token : str
        The model's first token.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 20.  Means over the heads of a layer, with a line for each length: the share of the
        first token, and the entropy over that of uniform attention.  On the right each head's
        share of the previous token in the shortest and in the longest text.
    """
    lengths = sorted(set(measures["tokens"]))
    by_length = dict(list(measures.groupby("tokens")))
    shortest = by_length[lengths[0]]
    longest = by_length[lengths[-1]]
    title = (
        f"Figure 20 · {token} gets {shortest['first'].mean():.0%} of the attention in "
        f"{lengths[0]:,} tokens, and {longest['first'].mean():.0%} in {lengths[-1]:,}"
    )
    notes = ("one text, cut to each length", "title: mean of all heads")
    figure = canvas(4.8, title, model, *notes)
    shares, entropies, neighbours = panel_grid(figure, 3, 1)
    for number, (length, table) in enumerate(by_length.items()):
        color, marker = LENGTH_STYLES[number % len(LENGTH_STYLES)]
        series_style = Style(f"{length:,} tokens", color, marker)
        means = table.groupby("layer")[["first", "entropy", "uniform"]].mean().reset_index()
        means["relative"] = means["entropy"] / means["uniform"]
        draw_curve(shares, means, "layer", "first", series_style)
        draw_curve(entropies, means, "layer", "relative", series_style)
    shares.set_title(f"Attention to {token}")
    shares.set_ylabel("Share (fraction)")
    entropies.set(title="Entropy over uniform", ylabel="Ratio")
    for axes in (shares, entropies):
        axes.set(xlabel="Layer", ylim=(0, None))
        axes.set_xticks(counting_ticks(measures["layer"].max(), 8))
    neighbours.plot([0, 1], [0, 1], **THIN)
    neighbours.scatter(
        shortest["previous"], longest["previous"], s=5, color=style.INK, alpha=0.6, linewidths=0
    )
    neighbours.set(
        title="Attention to the previous token",
        xlabel=f"Share in {lengths[0]:,} tokens",
        ylabel=f"Share in {lengths[-1]:,} tokens",
    )
    legend_below(figure, len(lengths))
    return figure


@theme()
def fig15_edges(edges: pd.DataFrame, special_tokens: SpecialTokens, *, model: str) -> Figure:
    """Draw what it costs to drop the attention to special tokens, or to take as much from words.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for "cls" and "sep".
    model : str
        Name of the model, for the note.

    Returns
    -------
    Figure
        Figure 15.  A panel for each special token has the turn of the sentence vector, or for a
        decoder the increase of the loss, in the layers that are cut together; random weights in
        grey.  Intervals with fewer than `LEAST_DF` degrees of freedom are not drawn.
    """
    names = {**special_tokens, FIRST_KEYS: special_tokens.get(FIRST_KEYS) or "the first token"}
    measure = ANGLE if special_tokens.get("cls") else OBJECTIVE
    edges = edges[(edges["queries"] == ALL_QUERIES) & (edges["measure"] == measure)]
    group = edges.loc[edges["keys"] == SPECIAL_KEYS, "layers"]
    if not len(group):
        return canvas(0.1, "Figure 15 · No layers are cut together", model)
    rows = edges[edges["keys"].isin(SPECIAL_TYPES) & (edges["layers"] == group.iloc[0])]
    tokens = list(rows["keys"].unique())
    cost = rows[(rows["model"] == MAIN) & (rows["keys"] == tokens[0])].set_index("change")["value"]
    unit = "°" if measure == ANGLE else " nats"
    figure = canvas(
        1.1 * len(tokens) + 0.25,
        f"Figure 15 · Dropping the attention to {names[tokens[0]]} costs {cost[DROPPED]:.2g}{unit};"
        f" taking as much from words, {cost[MASS_MATCHED]:.2g}{unit}",
        model,
        f"layers {group.iloc[0]} together; 95% intervals over articles; grey: random weights",
    )
    panels = panel_grid(figure, len(tokens), 1, sharex=True)
    for axes, token in zip(panels, tokens, strict=True):
        _draw_costs(axes, rows[rows["keys"] == token])
        axes.set_title(f"attention to {names[token]}")
    panels[-1].set_xlabel(UNITS[measure])
    return figure


def _draw_costs(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar for each mode and model."""
    models = [name for name in (MAIN, "random") if (rows["model"] == name).any()]
    for number, name in enumerate(models):
        by_mode = rows_of_model(rows, name).set_index("change").reindex(MODES)
        y = np.arange(len(MODES)) + 0.36 * number
        color = MODEL_STYLES[name].color
        value = by_mode["value"]
        ends = np.array([value - by_mode["value_low"], by_mode["value_high"] - value])
        has_interval = by_mode["value_df"].min() >= LEAST_DF
        bars = axes.barh(
            y, value, height=0.34, color=color, ecolor=style.INK,
            xerr=ends.clip(0) if has_interval else None,
        )  # fmt: skip
        axes.bar_label(bars, fmt="{:.2g}", padding=2)
    axes.axvline(0, **THIN)
    axes.set_yticks(range(len(MODES)), list(MODES.values()))
    axes.set_ylim(len(MODES) - 0.4, -0.5)
    axes.margins(x=0.15)
