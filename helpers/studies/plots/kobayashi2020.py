"""Figures 13 to 15, 17 and 20: what attention moves, what makes a sink, what edges change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from helpers.plots import style
from helpers.plots.heads import heads_and_means, present_styles
from helpers.plots.style import (
    ALL_STYLES,
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
from helpers.studies.common.edge_cuts import (
    ALL_QUERIES,
    DROPPED,
    FIRST_KEYS,
    MASS_MATCHED,
    MOST_ATTENDED,
    REDISTRIBUTED,
    SPECIAL_KEYS,
)
from helpers.studies.common.fine_tune import concat_with_keys
from helpers.studies.kobayashi2020.edges import MAIN, OBJECTIVE, PROBE
from helpers.studies.kobayashi2020.lenses import ALL_LAYERS, LENSES, SPECIAL_TYPES
from helpers.studies.kobayashi2020.transplant import (
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

UNITS = {
    OBJECTIVE: "Change of the loss (nats)",
    PROBE: "Decrease of UUAS (percentage points)",
}
LEAST_DF = 4  # an interval of fewer than five articles is not drawn, because it is too narrow
DASHED = {"color": style.INK, "dashes": (4, 3), "linewidth": 1}
RATIO_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MODEL_STYLES = {  # by the names of the models in edges.csv
    MAIN: Style("trained", "#2F4B7C", "o"),
    "random": style.CONTROL_STYLES["random"],
    "entropy-matched": style.CONTROL_STYLES["entropy_matched"],
}
SHORT_NAMES = {MOST_ATTENDED: "most attended"}  # of modes, for the labels of rows
MODE_STYLES = {  # by the values of the column change of edges.csv
    DROPPED: Style("dropped", "#0173B2", "o"),
    REDISTRIBUTED: Style("redistributed", "#D55E00", "s"),
    MASS_MATCHED: Style("mass-matched", "#00A457", "^"),
    MOST_ATTENDED: Style("mass-matched, most attended", style.MUTED, "D"),
}
SINK_PANELS = {  # columns of sink_causes.csv, by the title of their panel and its axis
    ("Share of attention that goes to {token}", "Share (fraction)"): {
        "cls": MODEL_STYLES[MAIN]._replace(label="intact"),
        "cls_without_largest": Style("largest dimension set to its mean", style.ACCENT, "s"),
        "cls_without_second": Style("second-largest dimension set to its mean", style.MUTED, "^"),
    },
    ("Lead of {token}: mean and variation", "Lead over other tokens (nats)"): {
        "constant": MODEL_STYLES[MAIN]._replace(label="constant: mean"),
        "content": Style("content: standard deviation", "#00A457", "^"),
        "position": Style("position: standard deviation", "#D55E00", "s"),
    },
}
TRANSPLANT_PANELS = {  # values of the column change, by the token and the title of the panel
    (SINK, "To {token}, if it loses the value"): {
        INTACT: MODEL_STYLES[MAIN]._replace(label="intact"),
        ABLATED: Style("its largest dimension", style.ACCENT, "s"),
        f"{ABLATED}: {BOTH}": Style("its two largest dimensions", "#D55E00", "D"),
        f"{ABLATED}: {SECOND}": Style("its second dimension", style.MUTED, "^"),
        f"{ABLATED}: {RANDOM}": Style("as far, random direction", "#7A5BA8", "P"),
        f"{ABLATED}: {OTHERS}": Style("all other tokens lose it", "#00A457", "v"),
    },
    (TARGET_TOKEN, "To token 20, if it gets the value"): {
        MOVED: Style("largest dimension, taken from the sink", style.ACCENT, "s"),
        COPIED: Style("largest dimension, left there, too", "#0173B2", "o"),
        f"{MOVED}: {BOTH}": Style("two largest dimensions, taken", "#D55E00", "D"),
        f"{MOVED}: {SECOND}": Style("second dimension, taken", style.MUTED, "^"),
        f"{MOVED}: {WHOLE}": Style("whole vector, taken", "#222222", "X"),
        f"{COPIED}: {RANDOM}": Style("as far, random direction", "#7A5BA8", "P"),
    },
}
LENGTH_STYLES = (("#0173B2", "o"), ("#D55E00", "s"), ("#00A457", "^"), ("#7A5BA8", "D"))
TITLES = {"attention": "Where heads look: attention", "norm": "What they bring back: norm"}


@theme()
def fig13_lenses(shares: pd.DataFrame, special_tokens: SpecialTokens, *, model: str) -> Figure:
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
    panels = []
    for lens in LENSES:
        styles = {f"{lens}_{name}": token_style for name, token_style in ALL_STYLES.items()}
        panels.append(present_styles(shares, styles, special_tokens))
    # The special token with the most attention, or if there is none, the other tokens.
    means = shares.reindex(columns=[f"attention_{name}" for name in SPECIAL_TYPES]).mean()
    most = means.idxmax() if means.notna().any() else "attention_other"
    by_norm = shares[most.replace(*LENSES)].mean()
    token = panels[0][most].label
    title = (
        f"Figure 13 · {token[0].upper()}{token[1:]} gets {shares[most].mean():.0%} of the "
        f"attention and {by_norm:.0%} by norm"
    )
    figure = heads_and_means(shares, panels, title, model, "Average share\n(fraction)")
    for axes, lens in zip(figure.axes, LENSES, strict=True):
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(TITLES[lens], loc="right")
    cast("Legend", figure.axes[-1].get_legend()).remove()  # the same as the first one
    return figure


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
        Figure 14.  The left panel has the share of attention on the first token without one
        dimension of its vector, and the right one the mean of the token's lead and its standard
        deviations.  The title has means over layers.
    """
    # A model without [CLS] has another first token.
    causes = causes.rename(columns=lambda name: re.sub("^first", "cls", name))
    title = (
        f"Figure 14 · Without one dimension, {token} gets "
        f"{causes['cls_without_largest'].mean():.0%} of the attention, "
        f"not {causes['cls'].mean():.0%}"
    )
    figure = canvas(3.6, title, model, "title: mean of the layers")
    panels = panel_grid(figure, len(SINK_PANELS), 2)
    for axes, ((panel_title, label), styles) in zip(panels, SINK_PANELS.items(), strict=True):
        for column, series_style in styles.items():
            draw_curve(axes, causes, "layer", column, series_style)
        axes.set(title=panel_title.format(token=token), xlabel="Layer", ylabel=label)
        axes.axhline(0, **DASHED)
        axes.set_xticks(counting_ticks(len(causes), 12))
        axes.locator_params("y", nbins=5)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2))  # below the panel
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
        token that gets its value; the dashed line is the intact share of the sink.
    """
    shares = shares.astype({"layer": str})
    overall = shares[shares["layer"] == ALL_LAYERS].set_index(["change", "token"])["share"]
    title = (
        f"Figure 17 · With one value of the sink, token 20 gets {overall[MOVED, TARGET_TOKEN]:.0%} "
        f"of the attention; the sink got {overall[INTACT, SINK]:.0%}"
    )
    dimension, before = shares[["dimension", "before"]].iloc[0]
    note = f"dimension {dimension}, changed before layer {before}; bands: 95% intervals"
    figure = canvas(4.6, title, model, note)
    by_layer = shares[shares["layer"] != ALL_LAYERS].astype({"layer": int})
    by_change = dict(list(by_layer.groupby(["change", "token"])))
    panels = panel_grid(figure, len(TRANSPLANT_PANELS), 2)
    for axes, ((role, panel_title), styles) in zip(panels, TRANSPLANT_PANELS.items(), strict=True):
        for change, series_style in styles.items():
            draw_curve(axes, by_change[change, role], "layer", "share", series_style)
        if role == TARGET_TOKEN:
            intact = by_change[INTACT, SINK]
            axes.plot(intact["layer"], intact["share"], label=f"{token}, intact", **DASHED)
        axes.set_title(panel_title.format(token=token), parse_math=False)
        axes.set(xlabel="Layer", ylabel="Share (fraction)", ylim=(-0.02, None))
        axes.locator_params("x", nbins=8, integer=True)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2))  # below the panel
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
    figure = canvas(3.6, title, model, "one text, cut to each length", "title: mean of all heads")
    shares, entropies, neighbours = panel_grid(figure, 3, 3)
    for number, (length, table) in enumerate(by_length.items()):
        color, marker = LENGTH_STYLES[number % len(LENGTH_STYLES)]
        series_style = Style(f"{length:,} tokens", color, marker)
        means = table.groupby("layer")[["first", "entropy", "uniform"]].mean().reset_index()
        means["relative"] = means["entropy"] / means["uniform"]
        draw_curve(shares, means, "layer", "first", series_style)
        draw_curve(entropies, means, "layer", "relative", series_style)
    shares.set(title=f"Attention to {token}", ylabel="Share (fraction)")
    entropies.set(title="Entropy over uniform", ylabel="Ratio")
    for axes in (shares, entropies):
        axes.set(xlabel="Layer", ylim=(0, None))
        axes.set_xticks(counting_ticks(measures["layer"].max(), 8))
    neighbours.plot([0, 1], [0, 1], **DASHED)
    neighbours.scatter(shortest["previous"], longest["previous"], s=12, color=style.INK, alpha=0.6)
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
    ratios: Mapping[str, pd.DataFrame],
    special_tokens: SpecialTokens,
    *,
    model: str,
) -> Figure:
    """Draw how far dropping the attention to special tokens turns the sentence vector, by layer.

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
        Figure 15.  A panel for each special token has the angle if the attention to it is dropped,
        over the angle if words lose as much.  If the training loss was measured in single layers, a
        panel has it by layer for each mode.  A further panel for each outcome (the training loss,
        the probe) has what the ablations cost in the layers that are cut together, without
        intervals if they have fewer than `LEAST_DF` degrees of freedom.
    """
    names = {**special_tokens, FIRST_KEYS: special_tokens.get(FIRST_KEYS) or "the first token"}
    edges = of_all_queries(edges).astype({"layers": str})
    group = edges.loc[edges["keys"] == SPECIAL_KEYS, "layers"]
    angles = of_all_queries(concat_with_keys(ratios, "model")).astype({"layers": str})
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
    outcomes = edges[is_outcome].groupby("measure")
    ratios_by_token = angles[angles["model"] == MAIN].groupby("keys", sort=False)["ratio"]
    ranges = []
    for role, low, high in ratios_by_token.agg(["min", "max"]).itertuples():
        token = names.get(role, "special tokens")
        ranges.append(f"{low:.1f} to {high:.1f} for {token}")
    figure = canvas(
        6.4 if len(outcomes) or len(losses_by_layer) else 3.2,
        "Figure 15 · Angle if attention is dropped, over that if words lose as much: "
        f"{', '.join(ranges)}",
        model,
        "bands and bars: 95% intervals over articles",
    )
    panels = panel_grid(figure, len(by_token) + len(losses_by_layer) + len(outcomes), 2)
    for axes, (role, token_rows) in zip(panels, by_token, strict=False):
        for name, rows in token_rows.groupby("model", sort=False):
            draw_curve(axes, rows, "layers", "ratio", MODEL_STYLES[name])
        axes.axhline(1, **DASHED)
        axes.set(yscale="log", xlabel="Layer", ylabel="Ratio of angles")
        axes.minorticks_off()
        axes.set_yticks(RATIO_TICKS, [str(tick) for tick in RATIO_TICKS])
        axes.set_xticks(counting_ticks(int(angles["layers"].max()), 12))
        token = names.get(role, "special tokens")
        axes.set_title(f"{token} dropped / mass-matched", parse_math=False)
    panels = figure.axes[len(by_token) :]
    for axes, (role, rows) in zip(panels, losses_by_layer, strict=False):
        draw_losses_by_layer(axes, rows)
        axes.set_title(f"Edges to {names[role]}: change of the loss", parse_math=False)
    color = MODEL_STYLES[MAIN].color
    for axes, (measure, rows) in zip(panels[len(losses_by_layer) :], outcomes, strict=True):
        labels = rows["change"].replace(SHORT_NAMES)
        if rows["keys"].nunique() > 1:
            labels = rows["keys"].map(names) + "\n" + labels
            axes.tick_params("y", labelsize=style.COLUMN_TYPE)
        axes.scatter(rows["value"], labels, color=color)
        title = f"{measure}, layers {rows['layers'].iloc[0]}"
        df = rows["value_df"].min()
        if df < LEAST_DF:
            title += f" ({df + 1:.0f} articles: no interval)"
        else:
            draw_intervals(axes, rows["value_low"], rows["value_high"], labels, color=color)
        axes.axvline(0, **DASHED)
        axes.set(title=title, xlabel=UNITS[measure])
        axes.invert_yaxis()  # in the order of the table
    legend_below(figure, columns=3)
    return figure


def of_all_queries(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of cuts from all queries."""
    return table[table["queries"] == ALL_QUERIES]


def draw_losses_by_layer(axes: Axes, losses: pd.DataFrame) -> None:
    """Draw the change of the loss by layer, a line for each mode, with bands."""
    losses = losses.astype({"layers": int}).sort_values("layers", kind="stable")
    for mode, rows in losses.groupby("change", sort=False):
        draw_curve(axes, rows, "layers", "value", MODE_STYLES[mode])
    axes.axhline(0, **DASHED)
    axes.set(xlabel="Layer", ylabel=UNITS[OBJECTIVE])
    axes.set_xticks(counting_ticks(int(losses["layers"].max()), 12))
