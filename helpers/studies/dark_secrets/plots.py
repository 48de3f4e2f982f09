"""Figures 7 to 9: pattern classes, what fine-tuning changes, what disabling heads does."""

from __future__ import annotations

from itertools import product
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.analysis.heads import by_head
from helpers.plots.style import DIVERGING, INK, SEQUENTIAL, canvas, heat_maps, joined, theme
from helpers.studies.dark_secrets.fine_tuning import WHOLE_LAYER
from helpers.studies.dark_secrets.links import ALPHA, linked_heads
from helpers.studies.dark_secrets.maps import TextMaps, shaded
from helpers.studies.dark_secrets.patterns import CLASSES

# Of `CLASSES`; apart in lightness too, from "vertical" (dark) to "heterogeneous" (light).
COLORS = ("#0B3C6F", "#B5432A", "#7D6BB5", "#E6A03C", "#D9D9D9")


@theme()
def fig7_patterns(table: pd.DataFrame, examples: dict[str, TextMaps], *, model: str = "") -> Figure:
    """Draw Figure 7: a map of each pattern class, and the shares of the classes by layer.

    ``table`` is patterns.csv, tasks across, weights down; ``examples`` are maps by class and head.
    """
    tasks, weights = (table[column].unique() for column in ("task", "weights"))
    heights = [1.95, 0.25 + 1.9 * len(weights)]
    title = "Figure 7 · Patterns of attention (Kovaleva et al. 2019)"
    what = "above: the plainest maps; below: shares of the maps of a layer"
    figure = canvas(sum(heights), title, joined(model, what))
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    top = above.subplots(1, len(examples), squeeze=False).ravel()
    for axes, (name, drawn) in zip(top, examples.items(), strict=True):
        axes.set_axis_off()
        axes.imshow(shaded(drawn.attention), cmap=SEQUENTIAL, vmin=0, vmax=1)
        axes.set_title(fill(name, 20), parse_math=False)
    grid = below.subplots(len(weights), len(tasks), squeeze=False, sharex=True, sharey=True)
    means = table.groupby(["weights", "task", "layer"])[list(CLASSES)].mean()
    for axes, (state, task) in zip(grid.flat, product(weights, tasks), strict=True):
        bottom = 0.0
        for name, color in zip(CLASSES, COLORS, strict=True):
            shares = means.loc[(state, task), name]
            axes.bar(shares.index, shares, 0.82, bottom, color=color, label=name)
            bottom += shares
        axes.set(xlabel="Layer", ylabel=f"{state}\nShare of maps", ylim=(0, 1))
        axes.label_outer()
        axes.set_title(fill(task, 18) if state == weights[0] else "", parse_math=False)
        axes.xaxis.set_major_locator(MaxNLocator(24 // len(tasks), integer=True))
    handles = grid.flat[0].get_legend_handles_labels()
    below.legend(*handles, loc="outside lower left", ncols=len(CLASSES))
    return figure


@theme()
def fig8_finetuning(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 8, finetuning_similarity.csv: maps before and after, from both starts."""
    starts = {"similarity": "", "similarity_random": "\nfrom random weights"}
    by_task = dict(iter(table.groupby("task", sort=False)))
    panels = product(starts.items(), by_task.items())
    lowest = min(0.9, np.floor(10 * table["similarity"].min()) / 10)
    return heat_maps(
        {f"{task}{start}": by_head(rows, column) for (column, start), (task, rows) in panels},
        "Figure 8 · What fine-tuning changes",
        joined(model, "cosine similarity of each head's maps before and after fine-tuning"),
        "Cosine (1: unchanged)", Normalize(lowest, 1), columns=len(by_task),
    )  # fmt: skip


@theme()
def fig9_disabling(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 9: the change of accuracy without each head, and without each layer.

    ``table`` is disabling.csv: uniform attention above, and below the same heads zeroed, on the
    same examples.  A dot marks a change that is significant for itself (McNemar's test).  Beyond a
    point the scale is logarithmic: some tasks lose little, layers lose much.
    """
    last = table["head"].max() + 1
    places = table.assign(head=table["head"].replace(WHOLE_LAYER, last))
    largest = max(1.0, table[["change", "zeroed"]].abs().max(axis=None))
    by_task = dict(iter(places.groupby("task", sort=False)))
    panels = product({"change": "uniform attention", "zeroed": "zeroed"}.items(), by_task.items())
    figure = heat_maps(
        {f"{task}\n{what}": by_head(rows, column) for (column, what), (task, rows) in panels},
        "Figure 9 · Accuracy without a head, and without a layer",
        joined(model, "last column: the whole layer; a dot: "
               f"p < {ALPHA}, each test for itself"),
        "Change (percentage points)", SymLogNorm(1, vmin=-largest, vmax=largest),
        columns=len(by_task), cmap=DIVERGING,
    )  # fmt: skip
    for axes, rows in zip(figure.axes, by_task.values(), strict=False):
        axes.axvline(last - 0.5, color="white", linewidth=3)
        _mark(axes, rows[rows["p_value"] < ALPHA])
    return figure


@theme()
def semantic_links(table: pd.DataFrame, *, links: str, model: str = "") -> Figure:
    """Draw section 4.2: how much more each head attends along semantic links.

    ``table`` is semantic_links.csv, ``links`` says which; a dot marks the `linked_heads`.
    """
    largest = table[["linked", "difference"]].abs().max(axis=None)
    figure = heat_maps(
        {"largest weight on a link": by_head(table, "linked"),
         "more than on random pairs": by_head(table, "difference")},
        "Kovaleva et al., section 4.2 · Attention along semantic links",
        joined(model, links, "a dot: above chance, p < 0.05 over all heads"),
        "Attention (fraction)", Normalize(-largest, largest), columns=2, cmap=DIVERGING,
    )  # fmt: skip
    _mark(figure.axes[1], linked_heads(table))
    return figure


def _mark(axes: Axes, rows: pd.DataFrame) -> None:
    axes.scatter(rows["head"], rows["layer"], s=12, color="white", edgecolors=INK, linewidths=0.8)
