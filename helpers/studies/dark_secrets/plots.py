"""Figures 7 to 9: pattern classes, what fine-tuning changes, what disabling heads does."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.analysis.heads import by_head
from helpers.plots.style import (
    ACCENT,
    DIVERGING,
    INK,
    LINES,
    MUTED,
    SEQUENTIAL,
    Style,
    canvas,
    heat_map,
    joined,
    theme,
)
from helpers.studies.dark_secrets.links import linked_heads
from helpers.studies.dark_secrets.maps import DrawnMap, shaded
from helpers.studies.dark_secrets.patterns import CLASSES

# Apart in lightness too, from "vertical" (dark) to "heterogeneous" (light).
CLASS_COLORS = dict(
    zip(CLASSES, ("#0B3C6F", "#B5432A", "#7D6BB5", "#E6A03C", "#D9D9D9"), strict=True)
)
PER_ROW = 3  # tasks side by side
NARROW, WIDE = 13, 22  # letters of a task's name in a line
LAYER = 0.17  # inches: the change without a layer is written into its row
LEGIBLE = 0.12  # the smallest share that is written into its bar
MOST_BARS = 36  # side by side that can be told apart by numbers


def draw_map(axes: Axes, drawn: DrawnMap) -> None:
    """Draw one map, with a colour scale of its own."""
    length = len(drawn.special)
    shades = shaded(drawn.weights)
    axes.imshow(shades, cmap=SEQUENTIAL, norm=Normalize(0, 1), interpolation="nearest")
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

    ``table`` is patterns.csv: task, weights, layer, head, and a column for each class with its
    share of the head's maps (0-1).  Each task has a column, and ``weights`` are below each other.
    ``examples`` are the maps to show, each named by its class and its head.
    """
    tasks, weights = (table[column].unique() for column in ("task", "weights"))
    heights = [1.95, 0.25 + 1.9 * len(weights)]
    figure = canvas(
        sum(heights),
        "Figure 7 · Patterns of attention (Kovaleva et al. 2019)",
        joined(model, "above: a typical map of each class; below: shares of the maps of a layer"),
    )
    above, below = figure.subfigures(2, 1, height_ratios=heights)
    top = above.subplots(1, len(CLASSES), squeeze=False)[0]
    for axes in top[len(examples) :]:
        axes.set_axis_off()
    for axes, drawn in zip(top, examples, strict=False):
        draw_map(axes, drawn)
        axes.set_title(fill(drawn.name, 20), parse_math=False)
    grid = below.subplots(len(weights), len(tasks), squeeze=False, sharex=True, sharey=True)
    step = -(-table["layer"].nunique() * len(tasks) // MOST_BARS)
    for row, state in zip(grid, weights, strict=True):
        for axes, task in zip(row, tasks, strict=True):
            own = table[(table["task"] == task) & (table["weights"] == state)]
            _shares_by_layer(axes, own, step)
        row[0].set_ylabel(f"{state}\nShare of maps")
    for axes, task in zip(grid[0], tasks, strict=True):
        axes.set_title(fill(task, WIDE), parse_math=False)
    for axes in grid[-1]:
        axes.set_xlabel("Layer")
    below.legend(
        *grid.flat[0].get_legend_handles_labels(),
        loc="outside lower left",
        ncols=len(CLASSES),
        columnspacing=1.2,
    )
    return figure


def _shares_by_layer(axes: Axes, rows: pd.DataFrame, step: int) -> None:
    """Draw a bar for each layer; every ``step``-th has a number, and if all do, shares do too."""
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
            if step == 1 and value >= LEGIBLE:
                axes.text(
                    layer, base + value / 2, f"{100 * value:.0f}", color=ink, fontsize=7.5,
                    ha="center", va="center",
                )  # fmt: skip
        bottom = bottom + values
    axes.set(ylim=(0, 1), xticks=shares.index[::step])


CONDITIONS = {
    "pretrained": Style("fine-tuned", "#2F4B7C", ""),
    "classifier alone": Style("classifier alone", "#8FB0D0", ""),
    "random": Style("random weights", "#C9C9C9", ""),
}
BASELINES = {"majority": ("most frequent label", (3, 2)), "bag_of_words": ("bag of words", (1, 1))}
SURE = 0.05  # p-value
WHOLE_LAYER = 0  # what stands in the column ``head`` of a whole layer


@theme()
def fig8_finetuning(similarity: pd.DataFrame, accuracy: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 8: similarity of maps before and after, and accuracy by starting point.

    ``similarity`` is finetuning_similarity.csv: task, layer, head, similarity,
    similarity_random (cosines).  ``accuracy`` is fine_tuning.csv: task, start, accuracy,
    ci_low, ci_high, majority, bag_of_words (percent).
    """
    tasks = list(similarity["task"].unique())
    figure = canvas(
        5.6,
        "Figure 8 · What fine-tuning changes",
        joined(model, "top: cosine similarity of each head's maps before and after fine-tuning"),
    )
    count = len(tasks)
    widths = [*[1.0] * 2 * count, 0.12 * count]
    grid = figure.add_gridspec(2, 2 * count + 1, height_ratios=(1, 1.1), width_ratios=widths)
    maps = [figure.add_subplot(grid[0, 2 * i : 2 * i + 2]) for i in range(count)]
    norm = Normalize(min(0.9, np.floor(10 * similarity["similarity"].min()) / 10), 1)
    for axes, task in zip(maps, tasks, strict=True):
        values = by_head(similarity[similarity["task"] == task], "similarity")
        heat_map(axes, values, norm, most=24 // count)
        axes.set_title(fill(task, NARROW), parse_math=False)
        axes.set_xlabel("Head")
    maps[0].set_ylabel("Layer")
    scale, bar = ScalarMappable(norm, SEQUENTIAL), figure.add_subplot(grid[0, -1])
    figure.colorbar(scale, cax=bar, label="Cosine (1: unchanged)")
    _by_layer(figure.add_subplot(grid[1, :count]), similarity, tasks)
    _accuracies(figure.add_subplot(grid[1, count:]), accuracy, tasks)
    return figure


@theme()
def fig9_disabling(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Figure 9: the change of accuracy without each head, and without each layer.

    ``table`` is disabling.csv: task, layer, head (0: the whole layer), change (percentage
    points), p_value.  A dot marks a change that is significant for itself (McNemar's test).
    """
    tasks = list(table["task"].unique())
    figure = canvas(
        (0.5 + max(1.5, LAYER * table["layer"].max())) * len(tasks),
        "Figure 9 · Accuracy without a head, and without a layer",
        joined(model, f"uniform attention instead; a dot: p < {SURE}, each test for itself"),
    )
    grid = figure.add_gridspec(len(tasks), 3, width_ratios=(table["head"].max(), 1.3, 0.3))
    single, whole = table[table["head"] != WHOLE_LAYER], table[table["head"] == WHOLE_LAYER]
    largest = max(1.0, table["change"].abs().max())
    norm = Normalize(-largest, largest)
    for number, task in enumerate(tasks):
        heads, layers = (figure.add_subplot(grid[number, column]) for column in (0, 1))
        for axes, part in ((heads, single), (layers, whole)):
            own = part[part["task"] == task]
            heat_map(axes, by_head(own, "change"), norm, DIVERGING, most=12)
        _mark(heads, single[(single["task"] == task) & (single["p_value"] < SURE)])
        _write_changes(layers, whole[whole["task"] == task], norm)
        heads.set_title(f"{task}: without one head", parse_math=False)
        heads.set_ylabel("Layer")
        layers.set(xticks=[], yticks=[])
        layers.set_title("the layer")
    heads.set_xlabel("Head")
    scale, bar = ScalarMappable(norm, DIVERGING), figure.add_subplot(grid[:, 2])
    figure.colorbar(scale, cax=bar, label="Change (percentage points)")
    return figure


@theme()
def semantic_links(table: pd.DataFrame, *, links: str, model: str = "") -> Figure:
    """Draw section 4.2: how much more each head attends along semantic links.

    ``table`` is semantic_links.csv: layer, head, linked, random, difference, ci_low, ci_high
    (fractions of attention), p_holm.  ``links`` says which; a dot marks the `linked_heads`.  To
    the right, the differences of all heads in order, with their intervals.
    """
    figure = canvas(
        2.6,
        "Kovaleva et al., section 4.2 · Attention along semantic links",
        joined(model, links, "a dot: above chance, p < 0.05 over all heads"),
    )
    *axes, ordered = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    largest = table["difference"].abs().max()
    panels = (
        ("linked", "largest weight on a link", Normalize(0, table["linked"].max()), SEQUENTIAL),
        ("difference", "more than on random pairs", Normalize(-largest, largest), DIVERGING),
    )
    for panel, (column, title, norm, cmap) in zip(axes, panels, strict=True):
        heat_map(panel, by_head(table, column), norm, cmap, most=12)
        panel.set_title(title)
        panel.set_xlabel("Head")
        figure.colorbar(ScalarMappable(norm, cmap), ax=panel, label="Attention (fraction)")
    _mark(axes[1], linked_heads(table))
    axes[0].set_ylabel("Layer")
    rows = table.sort_values("difference")
    errors = [rows["difference"] - rows["ci_low"], rows["ci_high"] - rows["difference"]]
    ordered.errorbar(
        np.arange(1, len(rows) + 1), rows["difference"], yerr=np.nan_to_num(errors), fmt=".",
        color=INK, ecolor=MUTED, elinewidth=0.9, markersize=3,
    )  # fmt: skip
    ordered.axhline(0, color=INK, linewidth=0.8)
    ordered.set(xlabel="Heads, in order", title="all heads")
    return figure


def _mark(axes: Axes, rows: pd.DataFrame) -> None:
    """Put a dot on the cells of rows."""
    axes.scatter(rows["head"], rows["layer"], s=12, color="white", edgecolors=INK, linewidths=0.8)


def _write_changes(axes: Axes, rows: pd.DataFrame, norm: Normalize) -> None:
    """Write the change into the cell of each whole layer, with a mark where it is significant."""
    for row in rows.itertuples():
        dark = abs(row.change) > 0.5 * norm.vmax
        text = f"{row.change:+.1f}" + ("•" if row.p_value < SURE else "")
        color = "white" if dark else INK
        axes.annotate(text, (1, row.layer), ha="center", va="center", fontsize=8, color=color)


def _by_layer(axes: Axes, similarity: pd.DataFrame, tasks: Sequence[str]) -> None:
    for index, task in enumerate(tasks):
        color, marker = LINES[index % len(LINES)]
        means = similarity[similarity["task"] == task].groupby("layer").mean(numeric_only=True)
        layers = means.index + 0.12 * (index - (len(tasks) - 1) / 2)  # curves may coincide
        axes.plot(layers, means["similarity"], color=color, marker=marker, label=task)
        axes.plot(layers, means["similarity_random"], color=color, marker=marker, linestyle=":",
                  linewidth=1.2, markersize=5, markerfacecolor="white")  # fmt: skip
    axes.set(xlabel="Layer", ylabel="Mean cosine of the layer")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_title("solid: pretrained, dotted: from random weights")
    axes.legend(loc="best")


def _accuracies(axes: Axes, accuracy: pd.DataFrame, tasks: Sequence[str]) -> None:
    """Draw three bars a task, their intervals, and the two baselines."""
    for shift, (start, style) in enumerate(CONDITIONS.items()):
        rows = accuracy[accuracy["start"] == start].set_index("task").loc[tasks]
        x = np.arange(len(tasks)) + 0.28 * (shift - 1)
        errors = np.stack([rows["accuracy"] - rows["ci_low"], rows["ci_high"] - rows["accuracy"]])
        axes.bar(x, rows["accuracy"], width=0.26, color=style.color, label=style.label)
        axes.errorbar(
            x, rows["accuracy"], yerr=np.clip(errors, 0, None), fmt="none", ecolor=INK,
            elinewidth=1.2, capsize=2.5,
        )  # fmt: skip
        for place, value, top in zip(x, rows["accuracy"], rows["ci_high"], strict=True):
            size = 8.5 if len(tasks) <= PER_ROW else 6.5
            axes.annotate(f"{value:.0f}", (place, top + 2), ha="center", fontsize=size)
    for column, (label, dashes) in BASELINES.items():
        for place, value in enumerate(rows[column]):
            axes.plot(
                [place - 0.42, place + 0.42], [value] * 2, color=INK, dashes=dashes, linewidth=1.1,
                label=None if place else label,
            )  # fmt: skip
    narrow = len(tasks) > PER_ROW
    names = [fill(task, NARROW) if narrow else task for task in tasks]
    axes.set_xticks(range(len(tasks)), names, fontsize=7 if narrow else None)
    axes.set(ylabel="Test accuracy (%)", ylim=(0, 108), yticks=range(0, 101, 20))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderpad=0, columnspacing=1.0,
                handlelength=1.4, handletextpad=0.4)  # fmt: skip
