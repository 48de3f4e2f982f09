"""Figures 16, 18 and 19: accuracy and effect, doses of an edge, and agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from beyond.papers.accuracy_and_function.causal import (
    LARGEST,
    MATCHED_HEAD,
    MOST_ACCURATE,
    RANDOM,
    SIZE_OF,
    TURNS,
    UNITS,
)
from beyond.papers.accuracy_and_function.centred_ranks import double_centred_ranks
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from beyond.papers.sinks.plots import DASHED, LEAST_DF, MODEL_STYLES
from helpers.metrics.statistics import ROUNDING
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    counting_ticks,
    for_column,
    legend_below,
    panel_grid,
)

ROLE_STYLES = {
    MOST_ACCURATE: Style("most accurate head", style.SERIES_COLORS[1], "o"),
    LARGEST: Style("heads with the largest effects", style.SERIES_COLORS[3], "s"),
    RANDOM: Style("random heads", style.MUTED, "^"),
}
TITLES = {
    TURNS: "Angle",
    "next token": "Next token",
    SIZE_OF["next token"]: "Next token, size",
    "later word": "Later word",
    SIZE_OF["later word"]: "Later word, size",
}
MANY_POINTS = 2000
AGREEMENT_STYLES = {  # by column of agreement_heads.csv
    "dropped": Style("edge dropped", style.SERIES_COLORS[1], "o"),
    "most_attended": Style("most attended other words lose as much", style.MUTED, "^"),
    "first_order": Style("first order", style.SERIES_COLORS[0], "|"),
}
YARDSTICK_PLACES = {MATCHED_HEAD: -0.9, MOST_ATTENDED: -0.45}  # left of the doses
DOSE_TICKS = (0, 0.5, 1, 1.5)


class CentredRanks(NamedTuple):
    """Double-centred ranks of all pairs of a head and a relation, as shares of the heads."""

    margin: Float[np.ndarray, " pair"]
    effect: Float[np.ndarray, " pair"]
    attention: Float[np.ndarray, " pair"]
    layer: Int[np.ndarray, " pair"]

    def given_attention(self, column: str) -> Float[np.ndarray, " pair"]:
        """Subtract from a column what a linear regression on the attention predicts."""
        values = getattr(self, column)
        slope = (values @ self.attention) / max(self.attention @ self.attention, ROUNDING)
        return values - slope * self.attention


def centred_by_relation(table: pd.DataFrame) -> CentredRanks:
    """Compute double-centred ranks of three columns of head_edge_effects.csv."""
    columns = {}
    for column in ("margin", "effect", "attention"):
        by_pair = table.pivot_table(column, "relation", ["layer", "head"], sort=False)
        columns[column] = double_centred_ranks(by_pair.to_numpy()).ravel() / by_pair.shape[1]
    layers = np.tile(by_pair.columns.get_level_values("layer"), len(by_pair))
    return CentredRanks(**columns, layer=layers)


@for_column
def fig16_causal(
    effects: Mapping[str, pd.DataFrame],
    correlations: Mapping[str, pd.DataFrame],
    *,
    model: str,
) -> Figure:
    """Draw the effect of each head by its margin, without the main effects of heads and relations.

    Parameters
    ----------
    effects, correlations : mapping of str to DataFrame
        The tables head_edge_effects.csv and head_edge_correlations.csv by the name of the model:
        the trained one, and then its controls.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 16.  A row is a measure of the effect.  Points are pairs of a head and a relation of
        the trained model.  The second panel has what is left of margin and effect, if what the
        attention on the edges predicts is subtracted from both.  The third panel has the
        correlations in the trained model and in its controls.
    """
    trained = next(iter(effects.values()))
    measures = list(trained["measure"].unique())
    by_measure = correlations[next(iter(correlations))].pivot(
        index="measure", columns="predictor", values="correlation"
    )
    in_column = style.in_column()
    heights = [1.25 if in_column else 2.3] * len(measures)
    if in_column:  # the correlations are below the points
        heights.append(0.25 + 0.16 * len(measures) * len(correlations))
    figure = canvas(
        sum(heights) + 0.9,
        _causal_title(by_measure),
        model,
        "a point: a head in one relation",
        "margin: accuracy above the best offset",
        "ranks of heads as shares, without the means of heads and of relations",
        "bars: 95% intervals",
    )
    grid = figure.add_gridspec(len(heights), 2 if in_column else 3, height_ratios=heights)
    norm = Normalize(1, trained["layer"].max())
    layer_scale = ScalarMappable(norm, style.LAYER_COLORS)
    panels: list[Axes] = []
    for number, measure in enumerate(measures):
        first = panels[0] if panels else None
        raw = figure.add_subplot(grid[number, 0], sharex=first, sharey=first)
        partial = figure.add_subplot(grid[number, 1], sharex=raw, sharey=raw)
        ranks = centred_by_relation(trained[trained["measure"] == measure])
        _draw_ranks(raw, ranks.margin, ranks.effect, ranks.layer, norm)
        margin = ranks.given_attention("margin")
        _draw_ranks(partial, margin, ranks.given_attention("effect"), ranks.layer, norm)
        correlation = positive_zero(by_measure.loc[measure, "margin"])
        given_attention = positive_zero(by_measure.loc[measure, "margin given attention"])
        raw.set(title=f"{TITLES[measure]}: {correlation}", ylabel="Effect (rank)")
        partial.set(title=f"at equal attention: {given_attention}")
        partial.tick_params(labelleft=False)
        panels += [raw, partial]
    panels[0].locator_params(nbins=4)
    for axes in panels[:-2]:
        axes.tick_params(labelbottom=False)
    for axes in panels[-2:]:
        axes.set_xlabel("Margin (rank)")
    place = grid[-1, :] if in_column else grid[:, 2]
    _draw_correlations(figure.add_subplot(place), measures, correlations)
    ticks = counting_ticks(int(trained["layer"].max()), 6)
    style.draw_color_scale(figure, panels, layer_scale, "Layer", ticks=ticks)
    legend_below(figure, columns=len(correlations))
    return figure


def _draw_ranks(
    axes: Axes,
    x: Float[np.ndarray, " pair"],
    y: Float[np.ndarray, " pair"],
    layer: Int[np.ndarray, " pair"],
    norm: Normalize,
) -> None:
    """Draw a point for each pair of a head and a relation, in the colour of the layer."""
    axes.scatter(
        x, y, s=2 if len(x) > MANY_POINTS else 4, c=layer, cmap=style.LAYER_COLORS,
        norm=norm, linewidths=0, rasterized=True,
    )  # fmt: skip
    axes.axhline(0, **DASHED)
    axes.axvline(0, **DASHED)


def _causal_title(by_measure: pd.DataFrame) -> str:
    """Write the title of Figure 16: the largest correlation, and what is left of it."""
    largest = by_measure.sort_values("margin", na_position="first").iloc[-1]
    several = f" ({TITLES[largest.name].lower()})" if len(by_measure) > 1 else ""
    return (
        f"Figure 16 · Margin and effect of heads correlate by {positive_zero(largest['margin'])}"
        f"{several}; at equal attention, by {positive_zero(largest['margin given attention'])}"
    )


def positive_zero(value: float) -> str:
    """Write a number with two decimals, and zero without a sign."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def _draw_correlations(
    axes: Axes, measures: Sequence[str], correlations: Mapping[str, pd.DataFrame]
) -> None:
    """Draw the correlations of each measure in each model: as they are, and at equal attention."""
    shifts = np.linspace(-0.3, 0.3, len(correlations))
    looks = MODEL_STYLES.values()
    for (name, table), shift, look in zip(correlations.items(), shifts, looks, strict=False):
        by_predictor = dict(list(table.groupby("predictor")))
        for predictor, below, filled in (
            ("margin", -0.05, look.color), ("margin given attention", 0.05, "white")
        ):  # fmt: skip
            rows = by_predictor[predictor].set_index("measure").reindex(measures)
            y = np.arange(len(rows)) + shift + below
            low, high = rows["correlation_low"], rows["correlation_high"]
            axes.hlines(y, low, high, color=look.color, linewidth=1)
            axes.plot(
                rows["correlation"], y, look.marker, color=look.color, markerfacecolor=filled,
                label=name if predictor == "margin" else None,
            )  # fmt: skip
    axes.axvline(0, **DASHED)
    axes.set_yticks(range(len(measures)), [TITLES[name].replace(", ", ",\n") for name in measures])
    axes.set_xticks(np.linspace(-1, 1, 5))
    axes.set(xlim=(-1, 1), ylim=(len(measures) - 0.5, -0.5), xlabel="Correlation")
    gap = "; " if style.in_column() else "\n"
    axes.set_title(f"Correlations{gap}open marks: at equal attention")


@for_column
def fig18_doses(doses: pd.DataFrame, yardsticks: pd.DataFrame, *, model: str) -> Figure:
    """Draw the effect of each dose of the edges, and of the yardsticks.

    Parameters
    ----------
    doses, yardsticks : DataFrame
        The tables head_edge_doses.csv and head_edge_yardsticks.csv.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 18.  A panel is a measure; lines are the roles of heads.  Left of the doses are the
        two yardsticks: the edge dropped in a head with the same attention ("other head"), and as
        much attention taken from the most attended other words ("other words").
    """
    measures = list(yardsticks["measure"].unique())
    in_column = style.in_column()
    figure = canvas(
        1.4 * len(measures) + 0.7 if in_column else 3.2,
        _dose_title(doses, yardsticks),
        model,
        "means over relations, 95% intervals over heads and articles",
    )
    panels = panel_grid(figure, len(measures), 1 if in_column else len(measures), sharex=True)
    for axes, measure in zip(panels, measures, strict=True):
        measure_doses = doses[doses["measure"] == measure]
        measure_yardsticks = yardsticks[yardsticks["measure"] == measure]
        for role, look in ROLE_STYLES.items():
            rows = measure_doses[measure_doses["role"] == role]
            options: dict[str, Any] = {"color": look.color, "marker": look.marker}
            axes.plot(rows["dose"], rows["value"], label=look.label, **options)
            wide = rows[rows["value_df"] >= LEAST_DF]
            axes.vlines(wide["dose"], wide["value_low"], wide["value_high"], color=look.color, lw=1)
            role_yardsticks = measure_yardsticks[measure_yardsticks["role"] == role]
            x = role_yardsticks["yardstick"].map(YARDSTICK_PLACES)
            axes.plot(x, role_yardsticks["yardstick_value"], linestyle="", mfc="white", **options)
        axes.axhline(0, **DASHED)
        axes.set_xticks([*YARDSTICK_PLACES.values(), *DOSE_TICKS])
        axes.set_xticklabels(["other\nhead", "other\nwords", *map("{:g}".format, DOSE_TICKS)])
        axes.set_xlim(right=1.6)
        axes.set_ylabel(f"{TITLES[measure]} ({UNITS[measure]})")
    for axes in panels[-1:] if in_column else panels:
        axes.set_xlabel("Yardsticks; the edge times ...")
    legend_below(figure, len(ROLE_STYLES))
    return figure


def _dose_title(doses: pd.DataFrame, yardsticks: pd.DataFrame) -> str:
    """Write the title: the most accurate heads without the edge, and the other words' yardstick."""
    measures = list(yardsticks["measure"].unique())
    measure = TURNS if TURNS in measures else measures[0]
    parts = []
    for table, column, choice in (
        (doses, "value", {"dose": 0}),
        (yardsticks, "yardstick_value", {"yardstick": MOST_ATTENDED}),
    ):
        wanted = {"measure": measure, "role": MOST_ACCURATE, **choice}
        is_wanted = table[list(wanted)].eq(pd.Series(wanted)).all(axis=1)
        parts += [f"{value:.2g}" for value in table.loc[is_wanted, column]]
    without_edge, other_words = parts
    return (
        f"Figure 18 · {TITLES[measure]} without the edge of the most accurate head: "
        f"{without_edge} {UNITS[measure]}; if other words lose as much: {other_words}"
    )


@for_column
def fig19_agreement(heads: pd.DataFrame, agreement: pd.DataFrame, *, model: str) -> Figure:
    """Draw what the edge to the subject brings by the attention on it, and what ablation takes.

    Parameters
    ----------
    heads, agreement : DataFrame
        The tables agreement_heads.csv and agreement.csv.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 19.  On the left a point is a head.  On the right are the heads that are ablated.
    """
    pairs = agreement.set_index("words_between").loc["all"]
    ablated = heads.dropna(subset=["dropped"]).sort_values("dropped")
    title = f"The verb agrees in {pairs['right']:.0f}% of {pairs['pairs']:.0f} pairs"
    for row in ablated.tail(1).itertuples():
        title += (
            f"; without the edge of head {row.layer}-{row.head}, {row.dropped:.2g} of "
            f"{pairs['log_odds']:.1f} nats are lost"
        )
    in_column = style.in_column()
    figure = canvas(
        5.5 if in_column else 4.4,
        f"Figure 19 · {title}",
        model,
        "edges from the place of the verb to its subject",
    )
    if in_column:
        points, bars = figure.subplots(2, 1, height_ratios=[2, 3])
    else:
        points, bars = figure.subplots(1, 2)
    percent = Normalize(0, 100)
    accuracy_scale = ScalarMappable(percent, style.SEQUENTIAL)
    points.scatter(
        heads["attention"], heads["first_order"], c=heads["accuracy"], s=8 if in_column else 18,
        cmap=style.SEQUENTIAL, norm=percent, edgecolors=style.MUTED, linewidths=0.4,
    )  # fmt: skip
    points.axhline(0, **DASHED)
    points.set_title("All heads")
    points.set_xlabel("Mean attention on the edge (fraction)")
    points.set_ylabel("First-order effect (nats)")
    style.draw_color_scale(figure, [points], accuracy_scale, "Accuracy for subjects (%)")
    y = np.arange(len(ablated))
    for column, look in AGREEMENT_STYLES.items():
        bars.plot(ablated[column], y, look.marker, color=look.color, label=look.label)
    has_interval = ablated["dropped_df"].fillna(0) >= LEAST_DF
    low, high = [ablated[f"dropped_{end}"][has_interval] for end in ("low", "high")]
    color = AGREEMENT_STYLES["dropped"].color
    bars.hlines(y[has_interval], low, high, color=color, lw=1)
    bars.axvline(0, **DASHED)
    bars.set_yticks(y, [f"{row.layer}-{row.head}" for row in ablated.itertuples()])
    bars.set_xlabel("Log-odds lost (nats)")
    bars.set_title("The heads with the largest first-order effects")
    legend_below(figure, 3)
    return figure
