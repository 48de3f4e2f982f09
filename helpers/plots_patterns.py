"""Contact sheets of attention maps, to be labelled by eye, and Figure 7: the pattern classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from helpers.analysis.patterns import CLASSES
from helpers.plots_style import ACCENT, INK, SEQUENTIAL, WIDTH, canvas, joined, theme

COLUMNS = 4  # of a contact sheet: a map of 128 tokens gets two pixels a token on a screen
FADE = 0.7  # the exponent of the colour scale: small weights can be seen beside large ones
BRIGHT = 0.995  # the share of a map's weights below the darkest colour
UNIFORM_MULTIPLE = 6  # the darkest colour is at least so many times uniform attention

# Apart in lightness too, from "vertical" (dark) to "heterogeneous" (light).
CLASS_COLORS = dict(
    zip(CLASSES, ("#0B3C6F", "#B5432A", "#7D6BB5", "#E6A03C", "#D9D9D9"), strict=True)
)
PER_ROW = 3  # tasks side by side
LEGIBLE = 0.12  # the smallest share that is written into its bar


@dataclass(frozen=True)
class DrawnMap:
    """A map to draw: ``weights[query, key]``, its special tokens and the text of each key."""

    name: str
    weights: Float[np.ndarray, "query key"]
    special: Bool[np.ndarray, " key"]
    segment: Int[np.ndarray, " key"]


@theme()
def contact_sheet(maps: Sequence[DrawnMap], title: str) -> Figure:
    """Draw maps side by side, four a row, each under its name and nothing else.

    Keys are columns, queries rows, the first token at the top left.  Ticks mark special tokens,
    dashed lines the boundary between two texts.
    """
    rows = -(-len(maps) // COLUMNS)
    figure = canvas(
        rows * (WIDTH / COLUMNS + 0.02),
        title,
        "rows attend to columns; red ticks: special tokens; dashed: where the second text starts",
    )
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes in grid.flat[len(maps) :]:
        axes.set_axis_off()
    for axes, drawn in zip(grid.flat, maps, strict=False):
        draw_map(axes, drawn)
        axes.set_title(drawn.name, parse_math=False)
    return figure


def draw_map(axes: Axes, drawn: DrawnMap) -> None:
    """Draw one map, with a colour scale of its own."""
    length = len(drawn.special)
    darkest = max(float(np.quantile(drawn.weights, BRIGHT)), UNIFORM_MULTIPLE / length)
    norm = PowerNorm(FADE, 0, min(darkest, 1), clip=True)
    axes.imshow(drawn.weights, cmap=SEQUENTIAL, norm=norm, interpolation="nearest")
    places = np.flatnonzero(drawn.special)
    margin = 0.02 * length  # so that neither edge of the map is under a tick
    axes.set(xticks=places, yticks=places, xticklabels=[], yticklabels=[])
    axes.set(
        xlim=(-0.5 - margin, length - 0.5 + margin), ylim=(length - 0.5 + margin, -0.5 - margin)
    )
    axes.tick_params(color=ACCENT, length=4, width=1)
    axes.spines[:].set_visible(False)
    for start in np.flatnonzero(np.diff(drawn.segment)) + 0.5:
        for line in (axes.axvline, axes.axhline):
            line(start, color=ACCENT, linewidth=0.4, dashes=(3, 5))


@theme()
def fig7_patterns(table: pd.DataFrame, examples: Sequence[DrawnMap], *, model: str = "") -> Figure:
    """Draw Figure 7: a map of each pattern class, and the shares of the classes by layer.

    ``table`` is patterns.csv: layer, head, a column for each class with its share of the head's
    maps (0-1) and, where several tasks are in it, task; each task gets a panel.  ``examples`` are
    the maps to show, each named by its class and its head.
    """
    tasks = list(dict.fromkeys(table["task"])) if "task" in table else [""]
    across = min(PER_ROW, len(tasks))
    down = -(-len(tasks) // across)
    heights = [1.95, *[2.5] * down]
    figure = canvas(
        sum(heights),
        "Figure 7 · Patterns of attention (Kovaleva et al. 2019)",
        joined(model, "above: a typical map of each class; below: shares of the maps of a layer"),
    )
    above, below = figure.subfigures(2, 1, height_ratios=[heights[0], sum(heights[1:])])
    top = above.subplots(1, len(CLASSES), squeeze=False)[0]
    for axes in top[len(examples) :]:
        axes.set_axis_off()
    for axes, drawn in zip(top, examples, strict=False):
        draw_map(axes, drawn)
        axes.set_title(drawn.name, parse_math=False)
    grid = below.subplots(down, across, squeeze=False, sharey=True)
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    for axes, task in zip(grid.flat, tasks, strict=False):
        rows = table[table["task"] == task] if task else table
        _shares_by_layer(axes, rows)
        axes.set_title(task, parse_math=False)
    for axes in grid[:, 0]:
        axes.set_ylabel("Share of maps")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower left", ncols=len(CLASSES), columnspacing=1.2)
    return figure


def _shares_by_layer(axes: Axes, rows: pd.DataFrame) -> None:
    shares = rows.groupby("layer")[list(CLASSES)].mean()
    bottom = np.zeros(len(shares))
    for name in CLASSES:
        values = shares[name].to_numpy()
        color = CLASS_COLORS[name]
        axes.bar(
            shares.index, values, 0.82, bottom, color=color, label=name, edgecolor="white",
            linewidth=0.6,
        )  # fmt: skip
        ink = INK if name in ("block", "heterogeneous") else "white"
        for layer, value, base in zip(shares.index, values, bottom, strict=True):
            if value >= LEGIBLE and len(shares) <= 12:
                axes.text(
                    layer, base + value / 2, f"{100 * value:.0f}", color=ink, fontsize=7.5,
                    ha="center", va="center",
                )  # fmt: skip
        bottom = bottom + values
    step = -(-len(shares) // 12)
    axes.set(xlabel="Layer", ylim=(0, 1), xticks=shares.index[::step])
