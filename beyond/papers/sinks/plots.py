"""Figures 14, 15, 17 and 20: what makes a sink, and what the attention to it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from beyond.papers.common.edge_cuts import (
    CONSTANT,
    DROPPED,
    FIRST_ROLES,
    MASS_MATCHED,
    REDISTRIBUTED,
)
from beyond.papers.sinks.causes import (
    ABLATED,
    ALL,
    BOTH,
    COPIED,
    INTACT,
    LARGEST,
    MOVED,
    NONE,
    NORM_ALONE,
    NORM_KEPT,
    OPPOSITE,
    OTHER,
    RANDOM,
    SECOND,
    SINK,
    VECTORS,
)
from beyond.papers.sinks.edges import ANGLE
from beyond.papers.sinks.lenses import ALL_LAYERS
from helpers.metrics import TRAINED, rows_of_model
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    counting_ticks,
    draw_curve,
    legend_below,
    panel_grid,
    theme,
)

LEAST_DF = 4  # an interval of fewer than five articles is not drawn, because it is too narrow
THIN = {"color": style.MUTED, "linewidth": 0.6, "zorder": 1}  # zero, or no change
# One colour has one meaning in all figures of these notebooks.
INTACT_COLOR, SINK_COLOR, OTHER_COLOR, *_ = style.SERIES_COLORS
MODEL_STYLES = {  # by the names of the models in tables
    TRAINED: Style("trained", INTACT_COLOR, "o"),
    "random": style.CONTROL_STYLES["random"],
    "entropy-matched": style.CONTROL_STYLES["entropy-matched"],
}
MODES = {  # by the values of the column change of edges.csv
    DROPPED: "dropped",
    REDISTRIBUTED: "given to others",
    MASS_MATCHED: "as much from others",
    CONSTANT: "same for all queries",
}
CHANGES = {  # by dimensions and change of sink_causes.csv
    (NONE, INTACT): "intact",
    (LARGEST, ABLATED): "largest ablated",
    (SECOND, ABLATED): "second ablated",
    (BOTH, ABLATED): "both ablated",
    (LARGEST, COPIED): "largest copied",
    (LARGEST, MOVED): "largest moved",
    (SECOND, MOVED): "second moved",
    (BOTH, MOVED): "both moved",
    (ALL, MOVED): "whole vector moved",
    (LARGEST, NORM_KEPT): "largest, norm kept",
    (LARGEST, NORM_ALONE): "norm alone",
    (LARGEST, OPPOSITE): "opposite sign",
    (LARGEST, RANDOM): "random direction",
}
TOKEN_STYLES = {
    SINK: Style("the sink", SINK_COLOR, "s"),
    OTHER: Style("other token", OTHER_COLOR, "o"),
}
LENGTH_STYLES = tuple(zip(style.SERIES_COLORS[:4], "os^P", strict=True))


@theme()
def fig14_causes(causes: pd.DataFrame, token: str, *, model: str) -> Figure:
    """Draw who gets attention after single numbers of the sink's vector were changed.

    Parameters
    ----------
    causes : DataFrame
        The table sink_causes.csv.
    token : str
        The sink's token.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 14.  A panel for each site; the mark of a token is its share of attention after a
        change.
    """
    causes = rows_of_model(causes)
    by_site = dict(list(causes[causes["change"] != INTACT].groupby("site", sort=False)))
    intact = causes[causes["change"] == INTACT]
    first = next(iter(by_site.values())).set_index(["dimensions", "change", "token"])["share"]
    title = (
        f"Figure 14 · With {token}'s two largest numbers another token gets "
        f"{first[BOTH, MOVED, OTHER]:.0%} of the attention; {token} had "
        f"{intact['share'].iloc[0]:.0%}"
    )
    where = f"changed from layer {causes['layer'].iloc[0]} on"
    figure = canvas(2.3 * len(by_site), title, model, where, "95% intervals over articles")
    panels = panel_grid(figure, len(by_site), 1, sharex=True)
    for axes, (site, rows) in zip(panels, by_site.items(), strict=True):
        rows = pd.concat([intact, rows]).set_index(["dimensions", "change"])
        for name, line_style in TOKEN_STYLES.items():
            token_rows = rows[rows["token"] == name].reindex(list(CHANGES))
            draw_marks(axes, token_rows, "share", line_style)
        axes.set_yticks(range(len(CHANGES)), list(CHANGES.values()))
        axes.set_ylim(len(CHANGES) - 0.5, -0.5)
        axes.set_title(
            "numbers of the vectors" if site == VECTORS else "numbers of the keys' input"
        )
    panels[-1].set_xlabel("Share of attention (fraction)")
    legend_below(figure, columns=2)
    return figure


def draw_marks(
    axes: Axes, rows: pd.DataFrame, column: str, line_style: Style, shift: float = 0.0
) -> None:
    """Draw a mark with its interval for each row; too few articles have none."""
    y = np.arange(len(rows)) + shift
    has_interval = rows[f"{column}_df"].fillna(0) >= LEAST_DF
    low, high = [rows[f"{column}_{end}"].where(has_interval) for end in ("low", "high")]
    axes.hlines(y, low, high, color=line_style.color, linewidth=1)
    axes.plot(rows[column], y, line_style.marker, color=line_style.color, label=line_style.label)
    axes.axvline(0, **THIN)


@theme()
def fig15_edges(edges: pd.DataFrame, token: str, *, model: str) -> Figure:
    """Draw what it costs to change the attention to the first token, in four ways.

    Parameters
    ----------
    edges : DataFrame
        The table edges.csv.
    token : str
        The model's first token.
    model : str
        Name of the model, for the note.

    Returns
    -------
    Figure
        Figure 15.  A panel for the layers of the sink and one for all layers; random weights in
        grey.  Intervals with fewer than `LEAST_DF` degrees of freedom are not drawn.
    """
    edges = edges[edges["keys"].isin(FIRST_ROLES)]
    layers = list(edges["layers"].unique())
    trained = rows_of_model(edges).set_index(["layers", "change"])["value"][layers[0]]
    is_angle = edges["measure"].iloc[0] == ANGLE
    unit = "°" if is_angle else " nats"
    figure = canvas(
        1.3 * len(layers) + 0.25,
        f"Figure 15 · Dropping the attention to {token} costs {trained[DROPPED]:.2g}{unit}; making "
        f"it the same for every query, {trained[CONSTANT]:.2g}{unit}",
        model,
        "95% intervals over articles; grey: random weights",
    )
    panels = panel_grid(figure, len(layers), 1, sharex=True)
    for axes, name in zip(panels, layers, strict=True):
        for model_name, rows in edges[edges["layers"] == name].groupby("model", sort=False):
            line_style = MODEL_STYLES[model_name]
            draw_marks(axes, rows.set_index("change").reindex(MODES), "value", line_style)
        axes.set_yticks(range(len(MODES)), list(MODES.values()))
        axes.set_ylim(len(MODES) - 0.5, -0.5)
        axes.set_title(f"in layers {name}")
    outcome = "Turn of the sentence vector (degrees)" if is_angle else "Increase of the loss (nats)"
    panels[-1].set_xlabel(outcome)
    return figure


@theme()
def fig17_before_after(
    before: Float[np.ndarray, "query key"],
    after: Float[np.ndarray, "query key"],
    tokens: Sequence[str],
    title: str,
    *,
    model: str,
) -> Figure:
    """Draw a map before and after one number has moved, as two frames of a talk.

    Parameters
    ----------
    before, after : array, shape (query, key)
        A head's weights on the first tokens of a text.
    tokens : sequence of str
        These tokens.
    title : str
        What is seen.
    model : str
        Name of the model and the head, for the subtitle.

    Returns
    -------
    Figure
        Figure 17.
    """
    figure = canvas(2.0, f"Figure 17 · {title}", model, "rows attend to columns")
    panels = panel_grid(figure, 2, 2, sharey=True)
    for axes, weights, name in zip(panels, (before, after), ("before", "after"), strict=True):
        axes.imshow(weights, vmin=0, vmax=1, cmap=style.SEQUENTIAL)
        axes.set_title(name)
        axes.set_xticks(range(len(tokens)), tokens, rotation=90)
    panels[0].set_yticks(range(len(tokens)), tokens)
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
        Figure 20.  Means over the heads of a layer, with a line for each length and its interval
        over texts: the share of the first token, and the entropy over that of uniform attention.
    """
    overall = measures[measures["layer"] == ALL_LAYERS].sort_values("tokens")
    by_layer = measures[measures["layer"].str.isdigit()].astype({"layer": int})
    shortest, longest = overall.iloc[0], overall.iloc[-1]
    title = (
        f"Figure 20 · {token} gets {shortest['first']:.0%} of the attention in "
        f"{shortest['tokens']:,} tokens, and {longest['first']:.0%} in {longest['tokens']:,}"
    )
    figure = canvas(
        3.2,
        title,
        model,
        f"{shortest['texts']} texts, cut to each length",
        "bands: 95% intervals over texts",
        f"head {shortest['head']} gives the previous token {shortest['previous_head']:.0%}, "
        f"then {longest['previous_head']:.0%}",
    )
    panels = panel_grid(figure, 2, 1, sharex=True)
    columns = {"first": "Share (fraction)", "relative_entropy": "Ratio"}
    for axes, (column, label) in zip(panels, columns.items(), strict=True):
        for number, (length, rows) in enumerate(by_layer.groupby("tokens")):
            line_style = Style(f"{length:,} tokens", *LENGTH_STYLES[number % len(LENGTH_STYLES)])
            draw_curve(axes, rows, "layer", column, line_style)
        axes.set(ylabel=label, ylim=(0, None))
        axes.set_xticks(counting_ticks(by_layer["layer"].max(), 8))
    panels[0].set_title(f"Attention to {token}")
    panels[1].set_title("Entropy over uniform")
    panels[1].set_xlabel("Layer")
    legend_below(figure, len(by_layer["tokens"].unique()))
    return figure
