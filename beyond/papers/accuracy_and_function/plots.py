"""Figures 16 and 19: accuracy and effect, and agreement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from beyond.papers.accuracy_and_function.causal import (
    SIZE_OF,
    TURNS,
)
from beyond.papers.accuracy_and_function.centred_ranks import double_centred_ranks
from beyond.papers.sinks.plots import LEAST_DF, MODEL_STYLES, THIN
from helpers.metrics import rows_of_model
from helpers.metrics.statistics import ROUNDING
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    counting_ticks,
    legend_below,
    theme,
)

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


@theme()
def fig16_causal(effects: pd.DataFrame, correlations: pd.DataFrame, *, model: str) -> Figure:
    """Draw the effect of each head by its margin, without the main effects of heads and relations.

    Parameters
    ----------
    effects, correlations : DataFrame
        The tables head_edge_effects.csv and head_edge_correlations.csv.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 16.  Points are pairs of a head and a relation of the trained model.  The second
        panel has what is left of margin and effect, if what the attention on the edges predicts is
        subtracted from both.  The third panel has the correlations of each measure of the effect in
        the trained model and in its controls.
    """
    trained = rows_of_model(effects)
    by_measure = rows_of_model(correlations).pivot(
        index="measure", columns="predictor", values="correlation"
    )
    measures = list(correlations["measure"].unique())
    heights = [1.25, 0.25 + 0.16 * len(measures) * correlations["model"].nunique()]
    figure = canvas(
        sum(heights) + 0.9,
        _causal_title(by_measure),
        model,
        "a point: a head in one relation",
        "margin: accuracy above the best offset",
        "ranks of heads as shares, without the means of heads and of relations",
        "bars: 95% intervals",
    )
    grid = figure.add_gridspec(2, 2, height_ratios=heights)
    norm = Normalize(1, trained["layer"].max())
    layer_scale = ScalarMappable(norm, style.LAYER_COLORS)
    raw = figure.add_subplot(grid[0, 0])
    partial = figure.add_subplot(grid[0, 1], sharex=raw, sharey=raw)
    ranks = centred_by_relation(trained)
    _draw_ranks(raw, ranks.margin, ranks.effect, ranks.layer, norm)
    margin = ranks.given_attention("margin")
    _draw_ranks(partial, margin, ranks.given_attention("effect"), ranks.layer, norm)
    measure = trained["measure"].iloc[0]
    correlation = positive_zero(by_measure.loc[measure, "margin"])
    given_attention = positive_zero(by_measure.loc[measure, "margin given attention"])
    raw.set(title=f"{TITLES[measure]}: {correlation}", ylabel="Effect (rank)")
    partial.set(title=f"at equal attention: {given_attention}")
    partial.tick_params(labelleft=False)
    raw.locator_params(nbins=4)
    for axes in (raw, partial):
        axes.set_xlabel("Margin (rank)")
    _draw_correlations(figure.add_subplot(grid[1, :]), measures, correlations)
    ticks = counting_ticks(int(trained["layer"].max()), 6)
    figure.colorbar(layer_scale, ax=[raw, partial], label="Layer", ticks=ticks)
    legend_below(figure, columns=correlations["model"].nunique())
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
    axes.axhline(0, **THIN)
    axes.axvline(0, **THIN)


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


def _draw_correlations(axes: Axes, measures: Sequence[str], correlations: pd.DataFrame) -> None:
    """Draw the correlations of each measure in each model: as they are, and at equal attention."""
    models = correlations["model"].unique()
    shifts = np.linspace(-0.3, 0.3, len(models))
    for name, shift in zip(models, shifts, strict=True):
        look = MODEL_STYLES[name]
        rows_of = dict(list(rows_of_model(correlations, name).groupby("predictor")))
        for predictor, below, filled in (
            ("margin", -0.05, look.color), ("margin given attention", 0.05, "white")
        ):  # fmt: skip
            rows = rows_of[predictor].set_index("measure").reindex(measures)
            y = np.arange(len(rows)) + shift + below
            low, high = rows["correlation_low"], rows["correlation_high"]
            axes.hlines(y, low, high, color=look.color, linewidth=1)
            axes.plot(
                rows["correlation"], y, look.marker, color=look.color, markerfacecolor=filled,
                label=look.label if predictor == "margin" else None,
            )  # fmt: skip
    axes.axvline(0, **THIN)
    axes.set_yticks(range(len(measures)), [TITLES[name].replace(", ", ",\n") for name in measures])
    axes.set_xticks(np.linspace(-1, 1, 5))
    axes.set(xlim=(-1, 1), ylim=(len(measures) - 0.5, -0.5), xlabel="Correlation")
    axes.set_title("Correlations; open marks: at equal attention")


@theme()
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
    largest = heads["dropped"].abs().dropna().nlargest(5).index
    ablated = heads.loc[largest].sort_values("dropped")
    title = f"The verb agrees in {pairs['right']:.0f}% of {pairs['pairs']:.0f} pairs"
    for row in ablated.tail(1).itertuples():
        title = (
            f"Without its edge to the subject, head {row.layer}-{row.head} takes {row.dropped:.2g} "
            f"of {pairs['log_odds']:.1f} nats from the right verb"
        )
    figure = canvas(
        4.0,
        f"Figure 19 · {title}",
        model,
        "edges from the place of the verb to its subject",
    )
    points, bars = figure.subplots(2, 1, height_ratios=[3, 2])
    percent = Normalize(0, 100)
    accuracy_scale = ScalarMappable(percent, style.SEQUENTIAL)
    points.scatter(
        heads["attention"], heads["first_order"], c=heads["accuracy"], s=8,
        cmap=style.SEQUENTIAL, norm=percent, edgecolors=style.MUTED, linewidths=0.4,
    )  # fmt: skip
    points.axhline(0, **THIN)
    points.set_title("All heads")
    points.set_xlabel("Mean attention on the edge (fraction)")
    points.set_ylabel("First-order effect (nats)")
    figure.colorbar(accuracy_scale, ax=points, location="top", label="Accuracy for subjects (%)")
    y = np.arange(len(ablated))
    for column, look in AGREEMENT_STYLES.items():
        bars.plot(ablated[column], y, look.marker, color=look.color, label=look.label)
    has_interval = ablated["dropped_df"].fillna(0) >= LEAST_DF
    low, high = [ablated[f"dropped_{end}"][has_interval] for end in ("low", "high")]
    color = AGREEMENT_STYLES["dropped"].color
    bars.hlines(y[has_interval], low, high, color=color, lw=1)
    bars.axvline(0, **THIN)
    bars.set_yticks(y, [f"{row.layer}-{row.head}" for row in ablated.itertuples()])
    bars.set_xlabel("Log-odds lost (nats)")
    bars.set_title("The five heads that take most")
    legend_below(figure, 2)
    return figure
