"""Figure 16: the margins of heads and what the removal of their edges does."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from helpers.plots import style
from helpers.plots.style import canvas, theme
from helpers.studies.common.fine_tune import concat_with_keys
from helpers.studies.kobayashi2020.causal import TURNS
from helpers.studies.kobayashi2020.plots import DASHED


@theme()
def fig16_causal(
    effects: Mapping[str, pd.DataFrame],
    correlations: Mapping[str, pd.DataFrame],
    *,
    model: str,
) -> Figure:
    """Draw the effect of each head by its margin.

    Parameters
    ----------
    effects, correlations : mapping of str to DataFrame
        The tables head_edge_effects.csv and head_edge_correlations.csv by the name of the model,
        which is the title of its panel.
    model : str, optional
        Name of the model, for the subtitle.

    Returns
    -------
    Figure
        Figure 16.  A point is a head and a relation; the darker, the higher is its layer.  The
        title has the rank correlations over all of them.
    """
    rows = concat_with_keys(correlations, "model")
    rows = rows.query(f"predictor == 'margin' and effect == '{TURNS}'")
    by_group = rows.set_index(["within", "model"])["correlation"]
    values = " and ".join(f"{value:.2f} ({name})" for name, value in by_group["all"].items())
    title = f"Figure 16 · Margin and effect correlate by {values}"
    figure = canvas(
        3.6, title, model, "a point is a head and a relation; the darker, the higher the layer"
    )
    panels = figure.subplots(1, len(effects), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, table) in zip(panels, effects.items(), strict=True):
        axes.scatter(
            "margin", TURNS, c="layer", data=table, s=14, cmap=style.SEQUENTIAL, vmin=-1,
            edgecolors=style.MUTED, linewidths=0.4,
        )  # fmt: skip
        axes.set_title(
            f"{name}: rank correlation {by_group['all', name]:.2f}, "
            f"within layers {by_group['layers', name]:.2f}"
        )
        axes.axhline(0, **DASHED)
        axes.set_xlabel("Margin over the best offset (percentage points)")
    panels[0].set_ylabel("Dropped minus mass-matched (degrees)")
    return figure
