"""Figures 16 and 19: accuracy and effect, and agreement."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from beyond.papers.accuracy_and_function.agreement import ALL
from beyond.papers.accuracy_and_function.causal import (
    AT_EQUAL_ATTENTION,
    GIVEN_ATTENTION,
    MARGIN,
)
from beyond.papers.accuracy_and_function.centred_ranks import double_centred_ranks
from beyond.papers.sinks.plots import MODEL_STYLES, THIN, draw_marks
from helpers.metrics import rows_of_model
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    counting_ticks,
    legend_below,
    theme,
)

MANY_POINTS = 2000
PREDICTORS = {  # of head_edge_correlations.csv
    MARGIN: "as it is",
    GIVEN_ATTENTION: "given the attention",
    AT_EQUAL_ATTENTION: "at equal attention",
}


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
        Figure 16.  Points are pairs of a head and a relation of the trained model: the effect as it
        is, and at equal attention.  Below are the correlations of each model, for its last measure
        that has no sign.
    """
    trained = rows_of_model(effects)
    measure = list(correlations["measure"].unique())[-1]
    rows = correlations[correlations["measure"] == measure]
    values = rows_of_model(rows).set_index("predictor")["correlation"]
    figure = canvas(
        3.3,
        f"Figure 16 · Margin and effect of heads correlate by {positive_zero(values[MARGIN])}; at "
        f"equal attention, by {positive_zero(values[AT_EQUAL_ATTENTION])}",
        model,
        "a point: a head in one relation",
        "margin: accuracy above the best offset",
        "ranks of heads as shares, without the means of heads and of relations",
        "bars: 95% intervals",
    )
    grid = figure.add_gridspec(2, 2, height_ratios=[1.5, 1])
    norm = Normalize(1, trained["layer"].max())
    columns = {"effect": "effect as it is", "effect_at_equal_attention": "at equal attention"}
    by_pair = trained.pivot_table(["margin", *columns], "relation", ["layer", "head"], sort=False)
    layers = np.tile(by_pair["margin"].columns.get_level_values("layer"), len(by_pair))
    ranks = {}
    for name in ("margin", *columns):
        scores = by_pair[name].to_numpy()
        ranks[name] = double_centred_ranks(scores).ravel() / scores.shape[1]
    panels = []
    for number, (name, title) in enumerate(columns.items()):
        share = {"sharey": panels[0]} if panels else {}
        axes = figure.add_subplot(grid[0, number], **share)
        axes.scatter(
            ranks["margin"], ranks[name], s=2 if len(layers) > MANY_POINTS else 4, c=layers,
            cmap=style.LAYER_COLORS, norm=norm, linewidths=0, rasterized=True,
        )  # fmt: skip
        axes.axhline(0, **THIN)
        axes.axvline(0, **THIN)
        axes.locator_params(nbins=4)
        axes.set(title=title, xlabel="Margin (rank)")
        panels.append(axes)
    panels[0].set_ylabel("Effect (rank)")
    panels[1].tick_params(labelleft=False)
    _draw_correlations(figure.add_subplot(grid[1, :]), rows)
    ticks = counting_ticks(int(trained["layer"].max()), 6)
    layer_scale = ScalarMappable(norm, style.LAYER_COLORS)
    figure.colorbar(layer_scale, ax=panels, label="Layer", ticks=ticks)
    legend_below(figure, columns=2)
    return figure


def positive_zero(value: float) -> str:
    """Write a number with two decimals, and zero without a sign."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def _draw_correlations(axes: Axes, correlations: pd.DataFrame) -> None:
    """Draw the correlations of the `PREDICTORS` in each model."""
    models = correlations["model"].unique()
    shifts = np.linspace(-0.2, 0.2, len(models))
    for name, shift in zip(models, shifts, strict=True):
        rows = rows_of_model(correlations, name).set_index("predictor").reindex(PREDICTORS)
        draw_marks(axes, rows, "correlation", MODEL_STYLES[name], shift)
    axes.set_yticks(range(len(PREDICTORS)), PREDICTORS.values())
    axes.set(xlim=(-1, 1), ylim=(len(PREDICTORS) - 0.5, -0.5), xlabel="Correlation with the margin")


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
        Figure 19.  Above, a point is a head.  Below are the heads that are ablated.
    """
    overall = agreement.query(f"subject == '{ALL}' and attractor == '{ALL}'").iloc[0]
    ablated = heads.dropna(subset="dropped").sort_values("dropped")
    title = f"The verb agrees in {overall['right']:.0f}% of the templates"
    for row in ablated.tail(1).itertuples():
        title = (
            f"Without its edge to the subject, head {row.layer}-{row.head} takes {row.dropped:.2g} "
            f"of {overall['log_odds']:.1f} nats from the right verb"
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
    draw_marks(bars, ablated, "dropped", Style("", style.SERIES_COLORS[1], "o"))
    names = [f"{row.layer}-{row.head}" for row in ablated.itertuples()]
    bars.set_yticks(range(len(ablated)), names)
    bars.set_xlabel("Log-odds lost without the edge (nats)")
    bars.set_title("The heads with the largest first-order effect")
    return figure
