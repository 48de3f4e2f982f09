"""Figures 16, 18 and 19: accuracy and effect, doses of an edge, and agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.plots.style import Style, canvas, legend_below, panel_grid, theme
from helpers.studies.common.edge_cuts import MOST_ATTENDED
from helpers.studies.kobayashi2020.causal import (
    DOSES,
    LARGEST,
    MATCHED_HEAD,
    MOST_ACCURATE,
    RANDOM,
    SIZE_OF,
    TURNS,
    UNITS,
)
from helpers.studies.kobayashi2020.centred_ranks import double_centred_ranks
from helpers.studies.plots.kobayashi2020 import DASHED, LEAST_DF

ROLE_STYLES = {
    MOST_ACCURATE: Style("most accurate head", style.ACCENT, "o"),
    LARGEST: Style("heads with the largest effects", "#2F4B7C", "s"),
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


def centred_by_relation(table: pd.DataFrame, column: str) -> np.ndarray:
    """Compute double-centred ranks of a column of head_edge_effects.csv, as shares of the heads."""
    by_pair = table.pivot_table(column, "relation", ["layer", "head"], sort=False).to_numpy()
    return double_centred_ranks(by_pair).ravel() / by_pair.shape[1]


@theme()
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
        The tables head_edge_effects.csv and head_edge_correlations.csv by the name of the model.
    model : str
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 16.  A panel is a measure of the effect and a model; a point is a head and a
        relation, darker in a higher layer.  The title of a panel has the correlation.
    """
    panels = []
    for measure in next(iter(effects.values()))["measure"].unique():
        panels += [(measure, name) for name in effects]
    columns = len(effects)
    rows = len(panels) // columns
    figure = canvas(
        2.9 * rows,
        "Figure 16 · Margin and effect of heads, relation by relation",
        model,
        "centred ranks; the darker, the higher the layer",
    )
    grid = panel_grid(figure, len(panels), columns, sharex=True, sharey=True)
    for number, (axes, (measure, name)) in enumerate(zip(grid, panels, strict=True)):
        table = effects[name].query("measure == @measure")
        values = correlations[name].query("measure == @measure").set_index("predictor")
        values = values["correlation"]
        axes.scatter(
            centred_by_relation(table, "margin"),
            centred_by_relation(table, "effect"),
            c=table["layer"], s=14 if len(table) < MANY_POINTS else 5, cmap=style.SEQUENTIAL,
            vmin=-1, edgecolors=style.MUTED, linewidths=0.3, rasterized=True,
        )  # fmt: skip
        axes.set_title(
            f"{name}\n{TITLES[measure]}: {values['margin']:.2f}\n"
            f"given attention: {values['margin given attention']:.2f}"
        )
        axes.axhline(0, **DASHED)
        axes.axvline(0, **DASHED)
        if number % columns == 0:
            axes.set_ylabel("Effect (rank, centred)")
        if number >= len(panels) - columns:
            axes.set_xlabel("Margin (rank, centred)")
    return figure


@theme()
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
    figure = canvas(
        3.2,
        "Figure 18 · What heads lose with other doses of the edge",
        model,
        "means over relations, 95% intervals over heads and articles",
    )
    marks = {MATCHED_HEAD: -0.6, MOST_ATTENDED: -0.3}
    names = ["other head", "other words", *(f"{dose:g}" for dose in DOSES)]
    for axes, measure in zip(
        panel_grid(figure, len(measures), len(measures)), measures, strict=True
    ):
        measure_doses = doses[doses["measure"] == measure]
        measure_yardsticks = yardsticks[yardsticks["measure"] == measure]
        for role, look in ROLE_STYLES.items():
            rows = measure_doses[measure_doses["role"] == role]
            options: dict[str, Any] = {"color": look.color, "marker": look.marker}
            axes.plot(rows["dose"], rows["value"], label=look.label, **options)
            wide = rows[rows["value_df"] >= LEAST_DF]
            axes.vlines(wide["dose"], wide["value_low"], wide["value_high"], color=look.color, lw=1)
            role_yardsticks = measure_yardsticks[measure_yardsticks["role"] == role]
            x = role_yardsticks["yardstick"].map(marks)
            axes.plot(x, role_yardsticks["yardstick_value"], linestyle="", mfc="white", **options)
        axes.axhline(0, **DASHED)
        axes.set_xticks([*marks.values(), *DOSES], names, rotation=90)
        axes.set_xlabel("Yardsticks; the edge times ...")
        axes.set_ylabel(f"{TITLES[measure]} ({UNITS[measure]})")
    legend_below(figure, len(ROLE_STYLES))
    return figure


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
    right = agreement.set_index("words_between").loc["all"]
    figure = canvas(
        4.4,
        f"Figure 19 · The verb agrees in {right['right']:.0f}% of {right['pairs']:.0f} pairs",
        model,
        "edges from the place of the verb to its subject",
    )
    left_axes, right_axes = figure.subplots(1, 2)
    left_axes.scatter(
        heads["attention"], heads["first_order"], c=heads["accuracy"], s=18, cmap=style.SEQUENTIAL,
        edgecolors=style.MUTED, linewidths=0.4,
    )  # fmt: skip
    left_axes.axhline(0, **DASHED)
    left_axes.set_title("All heads; the darker, the more accurate for subjects")
    left_axes.set_xlabel("Mean attention on the edge (fraction)")
    left_axes.set_ylabel("First-order effect (nats)")
    ablated = heads.dropna(subset=["dropped"]).sort_values("dropped")
    y = np.arange(len(ablated))
    for column, look in {
        "dropped": Style("edge dropped", style.ACCENT, "o"),
        "most_attended": Style("most attended other words lose as much", style.MUTED, "^"),
        "first_order": Style("first order", "#2F4B7C", "|"),
    }.items():
        right_axes.plot(ablated[column], y, look.marker, color=look.color, label=look.label)
    has_interval = ablated["dropped_df"].fillna(0) >= LEAST_DF
    low, high = [ablated[f"dropped_{end}"][has_interval] for end in ("low", "high")]
    right_axes.hlines(y[has_interval], low, high, color=style.ACCENT, lw=1)
    right_axes.axvline(0, **DASHED)
    right_axes.set_yticks(y, [f"{row.layer}-{row.head}" for row in ablated.itertuples()])
    right_axes.set_xlabel("Log-odds lost (nats)")
    right_axes.set_title("The heads with the largest first-order effects")
    legend_below(figure, 3)
    return figure
