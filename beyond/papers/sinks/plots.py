"""Figures 14, 15, 17 and 20: what makes a sink, and what edges change."""

from __future__ import annotations

import re
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from beyond.papers.common.edge_cuts import (
    ALL_QUERIES,
    DROPPED,
    FIRST_KEYS,
    MASS_MATCHED,
    MOST_ATTENDED,
    REDISTRIBUTED,
    SPECIAL_KEYS,
)
from beyond.papers.sinks.edges import MAIN, OBJECTIVE, PROBE
from beyond.papers.sinks.lenses import ALL_LAYERS, SPECIAL_TYPES
from beyond.papers.sinks.transplant import (
    ABLATED,
    BOTH,
    COPIED,
    INTACT,
    MOVED,
    OTHERS,
    RANDOM,
    SECOND,
    SINK,
    TARGET_TOKEN,
    WHOLE,
)
from helpers.plots import style
from helpers.plots.style import (
    SpecialTokens,
    Style,
    canvas,
    counting_ticks,
    draw_curve,
    draw_intervals,
    legend_below,
    panel_grid,
    theme,
)

UNITS = {
    OBJECTIVE: "Change of the loss (nats)",
    PROBE: "Decrease of UUAS (percentage points)",
}
LEAST_DF = 4  # an interval of fewer than five articles is not drawn, because it is too narrow
THIN = {"color": style.MUTED, "linewidth": 0.6, "zorder": 1}  # zero, or no change
RATIO_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
# One colour has one meaning in all figures of these notebooks.
INTACT_COLOR, LARGEST_COLOR, VECTOR_COLOR, SECOND_COLOR, BOTH_COLOR, _ = style.SERIES_COLORS
COPIED_COLOR = "#8C5A00"
MODEL_STYLES = {  # by the names of the models in edges.csv
    MAIN: Style("trained", INTACT_COLOR, "o"),
    "random": style.CONTROL_STYLES["random"],
    "entropy-matched": style.CONTROL_STYLES["entropy-matched"],
}
RANDOM_COLOR = style.CONTROL_STYLES["random"].color
MODE_STYLES = {  # by the values of the column change of edges.csv
    DROPPED: Style("dropped", style.SERIES_COLORS[1], "o"),
    REDISTRIBUTED: Style("redistributed", style.SERIES_COLORS[3], "s"),
    MASS_MATCHED: Style("mass-matched", style.SERIES_COLORS[2], "^"),
    MOST_ATTENDED: Style("mass-matched, most attended", style.MUTED, "v"),
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
TRANSPLANT_PANELS = {  # values of the column change, by the token and the title of the panel
    (SINK, "To {token}, if it loses the value"): {
        INTACT: MODEL_STYLES[MAIN]._replace(label="intact"),
        ABLATED: Style("its largest dimension", LARGEST_COLOR, "s"),
        f"{ABLATED}: {BOTH}": Style("its two largest dimensions", BOTH_COLOR, "P"),
        f"{ABLATED}: {SECOND}": Style("its second dimension", SECOND_COLOR, "^"),
        f"{ABLATED}: {RANDOM}": Style("as far, random direction", RANDOM_COLOR, "v"),
        f"{ABLATED}: {OTHERS}": Style("all other tokens lose it", VECTOR_COLOR, "<"),
    },
    (TARGET_TOKEN, "To token 20, if it gets the value"): {
        MOVED: Style("largest dimension, taken from the sink", LARGEST_COLOR, "s"),
        COPIED: Style("largest dimension, left there, too", COPIED_COLOR, "o"),
        f"{MOVED}: {BOTH}": Style("two largest dimensions, taken", BOTH_COLOR, "P"),
        f"{MOVED}: {SECOND}": Style("second dimension, taken", SECOND_COLOR, "^"),
        f"{MOVED}: {WHOLE}": Style("whole vector, taken", VECTOR_COLOR, "X"),
        f"{COPIED}: {RANDOM}": Style("as far, random direction", RANDOM_COLOR, "v"),
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
        Figure 17.  Shares of attention by layer: on the left of the sink, and on the right of the
        token that gets its value; the thin line is the intact share of the sink.
    """
    shares = shares.astype({"layer": str})
    overall = shares[shares["layer"] == ALL_LAYERS].set_index(["change", "token"])["share"]
    title = (
        f"Figure 17 · With one value of the sink, token 20 gets {overall[MOVED, TARGET_TOKEN]:.0%} "
        f"of attention; the sink had {overall[INTACT, SINK]:.0%}"
    )
    dimension, before = shares[["dimension", "before"]].iloc[0]
    note = f"dimension {dimension}, changed before layer {before}; bands: 95% intervals"
    figure = canvas(5.7, title, model, note)
    # Between a legend and the next panel.
    cast("ConstrainedLayoutEngine", figure.get_layout_engine()).set(h_pad=0.1)
    by_layer = shares[shares["layer"] != ALL_LAYERS].astype({"layer": int})
    by_change = dict(list(by_layer.groupby(["change", "token"])))
    panels = panel_grid(figure, len(TRANSPLANT_PANELS), 1)
    for axes, ((role, panel_title), styles) in zip(panels, TRANSPLANT_PANELS.items(), strict=True):
        for change, series_style in styles.items():
            draw_curve(axes, by_change[change, role], "layer", "share", series_style)
        if role == TARGET_TOKEN:
            intact = by_change[INTACT, SINK]
            axes.plot(intact["layer"], intact["share"], label=f"{token}, intact", **THIN)
        axes.set_title(panel_title.format(token=token))
        axes.set(xlabel="Layer", ylabel="Share (fraction)", ylim=(-0.02, None))
        axes.locator_params("x", nbins=8, integer=True)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.3))
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
def fig15_edges(
    edges: pd.DataFrame,
    ratios: pd.DataFrame,
    special_tokens: SpecialTokens,
    *,
    model: str,
) -> Figure:
    """Draw how far dropping the attention to special tokens turns the sentence vector, by layer.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.
    ratios : DataFrame
        The table edge_ratios.csv.
    special_tokens : mapping of str to str or None
        The model's tokens for "cls" and "sep".
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 15.  A panel for each special token has the angle if the attention to it is dropped,
        over the angle if words lose as much.  If the training loss was measured in single layers, a
        panel has it by layer for each mode.  A further panel for each outcome (the training loss,
        the probe) has what the ablations cost in the layers that are cut together, without
        intervals if they have fewer than `LEAST_DF` degrees of freedom.
    """
    names = {**special_tokens, FIRST_KEYS: special_tokens.get(FIRST_KEYS) or "the first token"}
    edges = of_all_queries(edges).astype({"layers": str})
    group = edges.loc[edges["keys"] == SPECIAL_KEYS, "layers"]
    angles = of_all_queries(ratios).astype({"layers": str})
    angles = angles[
        angles["ways"].eq(f"{DROPPED} / {MASS_MATCHED}") & angles["layers"].str.isdigit()
    ]
    angles = angles.astype({"layers": int}).sort_values("layers", kind="stable")
    by_token = angles.groupby("keys", sort=False)
    is_outcome = edges["measure"].isin(UNITS) & edges["keys"].isin(SPECIAL_TYPES)
    is_outcome &= edges["model"] == MAIN  # the loss of a decoder's controls is measured, too
    losses = edges[is_outcome & (edges["measure"] == OBJECTIVE) & edges["layers"].str.isdigit()]
    losses_by_layer = list(losses.groupby("keys")) if losses["layers"].nunique() > 1 else []
    if len(group):
        is_outcome &= edges["layers"] == group.iloc[0]
    by_measure = dict(list(edges[is_outcome].groupby("measure")))
    n_panels = len(by_token) + len(losses_by_layer) + len(by_measure)
    figure = canvas(
        1.4 * n_panels + 0.5,
        _angle_title(angles[angles["model"] == MAIN], names),
        model,
        "bands and bars: 95% intervals over articles",
    )
    panels = panel_grid(figure, n_panels, 1)
    for axes, (role, token_rows) in zip(panels, by_token, strict=False):
        for name, rows in token_rows.groupby("model", sort=False):
            draw_curve(axes, rows, "layers", "ratio", MODEL_STYLES[name])
        axes.axhline(1, **THIN)
        axes.set(yscale="log", xlabel="Layer", ylabel="Angle: dropped /\nmass-matched")
        axes.minorticks_off()
        axes.set_yticks(RATIO_TICKS, [str(tick) for tick in RATIO_TICKS])
        axes.set_xticks(counting_ticks(int(angles["layers"].max()), 12))
        axes.set_title(f"Attention to {names.get(role, 'special tokens')}")
    panels = panels[len(by_token) :]
    for axes, (role, rows) in zip(panels, losses_by_layer, strict=False):
        draw_losses_by_layer(axes, rows)
        axes.set_title(f"Edges to {names[role]}: change of the loss")
    for axes, (measure, rows) in zip(
        panels[len(losses_by_layer) :], by_measure.items(), strict=True
    ):
        _draw_outcome(axes, rows, names)
        title = f"{measure}, layers {rows['layers'].iloc[0]}"
        df = rows["value_df"].min()
        if df < LEAST_DF:
            title += f" ({df + 1:.0f} articles: no interval)"
        axes.set(title=title, xlabel=UNITS[measure])
    legend_below(figure, columns=2)
    return figure


def _angle_title(angles: pd.DataFrame, names: SpecialTokens) -> str:
    """Write the title of Figure 15: the smallest and the largest ratio of the layers, by token."""
    ratios = angles.groupby("keys", sort=False)["ratio"].agg(["min", "max"])
    if not len(ratios):
        return "Figure 15 · Not measured in single layers"
    tokens = [names.get(role) or "special tokens" for role in ratios.index]
    ranges = [f"{low:.1f} to {high:.1f}" for low, high in ratios.to_numpy()]
    others = [
        f" ({token}: {interval})" for token, interval in zip(tokens[1:], ranges[1:], strict=True)
    ]
    return (
        f"Figure 15 · If attention to {tokens[0]} is dropped, the sentence vector turns "
        f"{ranges[0]} times as far as if words lose as much{''.join(others)}"
    )


def _draw_outcome(axes: Axes, rows: pd.DataFrame, names: SpecialTokens) -> None:
    """Draw what each ablation costs, a row for each token and a colour for each mode."""
    tokens = list(rows["keys"].unique())
    for mode, mode_rows in rows.groupby("change", sort=False):
        look = MODE_STYLES[mode]
        shift = 0.2 * (list(MODE_STYLES).index(mode) - 1.5)
        y = mode_rows["keys"].map(tokens.index) + shift
        axes.plot(mode_rows["value"], y, look.marker, color=look.color, label=look.label)
        if rows["value_df"].min() >= LEAST_DF:
            draw_intervals(
                axes, mode_rows["value_low"], mode_rows["value_high"], y, color=look.color
            )
    axes.axvline(0, **THIN)
    axes.set_yticks(range(len(tokens)), [str(names[role]) for role in tokens])
    axes.set_ylim(len(tokens) - 0.5, -0.5)


def of_all_queries(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of cuts from all queries."""
    return table[table["queries"] == ALL_QUERIES]


def draw_losses_by_layer(axes: Axes, losses: pd.DataFrame) -> None:
    """Draw the change of the loss by layer, a line for each mode, with bands."""
    losses = losses.astype({"layers": int}).sort_values("layers", kind="stable")
    for mode, rows in losses.groupby("change", sort=False):
        draw_curve(axes, rows, "layers", "value", MODE_STYLES[mode])
    axes.axhline(0, **THIN)
    axes.set(xlabel="Layer", ylabel="Change (nats)")
    axes.set_xticks(counting_ticks(int(losses["layers"].max()), 12))
