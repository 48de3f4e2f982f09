"""Figures 7 to 9: pattern classes, what fine-tuning changes, what disabling heads does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from textwrap import fill

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from helpers.analysis.heads import by_head
from helpers.plots.style import (
    ACCENT,
    DIVERGING,
    INK,
    MUTED,
    SEQUENTIAL,
    canvas,
    heat_map,
    heat_maps,
    joined,
    theme,
)
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER
from helpers.studies.dark_secrets.links import linked_heads
from helpers.studies.dark_secrets.maps import TextMaps, shaded
from helpers.studies.dark_secrets.patterns import CLASSES

# Apart in lightness too, from "vertical" (dark) to "heterogeneous" (light).
CLASS_COLORS = dict(
    zip(CLASSES, ("#0B3C6F", "#B5432A", "#7D6BB5", "#E6A03C", "#D9D9D9"), strict=True)
)
SURE = 0.05  # p-value


@theme()
def fig7_patterns(
    table: pd.DataFrame, examples: Mapping[str, TextMaps], *, model: str = ""
) -> Figure:
    """Draw Figure 7: a map of each pattern class, and the shares of the classes by layer.

    ``table`` is patterns.csv: task, weights, layer, head, and a column for each class with its
    share of the head's maps (0-1).  Each task has a column, and ``weights`` are below each other.
    ``examples`` are the maps to show, by class and head.
    """
    tasks, weights = (table[column].unique() for column in ("task", "weights"))
    heights = [1.95, 0.25 + 1.9 * len(weights)]
    figure = canvas(
        sum(heights),
        "Figure 7 · Patterns of attention (Kovaleva et al. 2019)",
        joined(model, "above: a typical map of each class; below: shares of the maps of a layer"),
    )
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    top = above.subplots(1, len(CLASSES))
    for axes in top[len(examples) :]:
        axes.set_axis_off()
    for axes, (name, drawn) in zip(top, examples.items(), strict=False):
        draw_map(axes, drawn)
        axes.set_title(fill(name, 20), parse_math=False)
    grid = below.subplots(len(weights), len(tasks), squeeze=False, sharex=True, sharey=True)
    shares = table.melt(["task", "weights", "layer", "head"], CLASSES, "pattern", "share")
    shares["share"] /= table["head"].max()  # what is stacked is a sum over heads
    for axes, (state, task) in zip(grid.flat, product(weights, tasks), strict=True):
        own = shares[(shares["task"] == task) & (shares["weights"] == state)]
        sns.histplot(
            own, x="layer", weights="share", hue="pattern", hue_order=CLASSES[::-1],
            palette=CLASS_COLORS, alpha=1, edgecolor="white", multiple="stack", discrete=True,
            shrink=0.82, legend=False, ax=axes,
        )  # fmt: skip
        axes.set(xlabel="Layer", ylabel=f"{state}\nShare of maps", ylim=(0, 1))
        axes.set_title(fill(task, 22) if state == weights[0] else "", parse_math=False)
        axes.xaxis.set_major_locator(MaxNLocator(12 // len(tasks), integer=True))
    colors = [Patch(color=color, label=name) for name, color in CLASS_COLORS.items()]
    below.legend(handles=colors, loc="outside lower left", ncols=len(CLASSES))
    return figure


def draw_map(axes: Axes, drawn: TextMaps) -> None:
    """Draw one map with a colour scale of its own, ticks at its special tokens."""
    sns.heatmap(
        shaded(drawn.attention), ax=axes, cmap=SEQUENTIAL, vmin=0, vmax=1, square=True, cbar=False
    )
    places = np.flatnonzero(drawn.special) + 0.5
    axes.set(xticks=places, yticks=places, xticklabels=[], yticklabels=[])
    axes.tick_params(color=ACCENT, length=4, width=1)
    for start in np.flatnonzero(np.diff(drawn.segment)) + 1:
        for line in (axes.axvline, axes.axhline):
            line(start, color=ACCENT, linewidth=0.4, dashes=(3, 5))


@theme()
def fig8_finetuning(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 8: similarity of maps before and after, from both starts.

    ``table`` is finetuning_similarity.csv: task, layer, head, similarity, similarity_random
    (cosines).
    """
    starts = {"similarity": "", "similarity_random": "\nfrom random weights"}
    by_task = dict(iter(table.groupby("task", sort=False)))
    return heat_maps(
        {
            f"{task}{start}": by_head(rows, column)
            for column, start in starts.items()
            for task, rows in by_task.items()
        },
        "Figure 8 · What fine-tuning changes",
        joined(model, "cosine similarity of each head's maps before and after fine-tuning"),
        "Cosine (1: unchanged)",
        Normalize(min(0.9, np.floor(10 * table["similarity"].min()) / 10), 1),
        columns=len(by_task),
    )


@theme()
def fig9_disabling(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 9: the change of accuracy without each head, and without each layer.

    ``table`` is disabling.csv: task, layer, head (0: the whole layer), change (percentage
    points), p_value.  A dot marks a change that is significant for itself (McNemar's test).
    """
    last = table["head"].max() + 1
    places = table.assign(head=table["head"].replace(WHOLE_LAYER, last))
    largest = max(1.0, table["change"].abs().max())
    by_task = dict(iter(places.groupby("task", sort=False)))
    figure = heat_maps(
        {task: by_head(rows, "change") for task, rows in by_task.items()},
        "Figure 9 · Accuracy without a head, and without a layer",
        joined(model, "uniform attention instead; last column: of the whole layer; a dot: "
               f"p < {SURE}, each test for itself"),
        "Change (percentage points)", Normalize(-largest, largest), columns=3, cmap=DIVERGING,
    )  # fmt: skip
    for axes, rows in zip(figure.axes, by_task.values(), strict=False):
        axes.axvline(last - 0.5, color="white", linewidth=3)
        _mark(axes, rows[rows["p_value"] < SURE])
    return figure


@theme()
def semantic_links(table: pd.DataFrame, *, links: str, model: str = "") -> Figure:
    """Draw section 4.2: how much more each head attends along semantic links.

    ``table`` is semantic_links.csv: layer, head, linked, random, difference, ci_low, ci_high
    (fractions of attention), p_holm.  ``links`` says which; a dot marks the `linked_heads`.  To
    the right, the differences of all heads in order, with their intervals.
    """
    title = "Kovaleva et al., section 4.2 · Attention along semantic links"
    figure = canvas(
        2.6, title, joined(model, links, "a dot: above chance, p < 0.05 over all heads")
    )
    *maps, ordered = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    largest = table["difference"].abs().max()
    panels = (
        ("linked", "largest weight on a link", Normalize(0, table["linked"].max()), SEQUENTIAL),
        ("difference", "more than on random pairs", Normalize(-largest, largest), DIVERGING),
    )
    for axes, (column, name, norm, cmap) in zip(maps, panels, strict=True):
        heat_map(axes, by_head(table, column), norm, cmap, most=12)
        axes.set(xlabel="Head", ylabel="Layer", title=name)
        figure.colorbar(ScalarMappable(norm, cmap), ax=axes, label="Attention (fraction)")
    _mark(maps[1], linked_heads(table))
    rows = table.sort_values("difference")
    places = range(1, len(rows) + 1)
    ordered.vlines(places, rows["ci_low"], rows["ci_high"], color=MUTED, linewidth=0.9)
    ordered.plot(places, rows["difference"], ".", color=INK, markersize=3)
    ordered.axhline(0, color=INK, linewidth=0.8)
    ordered.set(xlabel="Heads, in order", title="all heads")
    return figure


def _mark(axes: Axes, rows: pd.DataFrame) -> None:
    """Put a dot on the cells of rows."""
    axes.scatter(rows["head"], rows["layer"], s=12, color="white", edgecolors=INK, linewidths=0.8)
