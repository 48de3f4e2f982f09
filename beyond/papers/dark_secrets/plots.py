"""Figures 7 and 8: pattern classes, and what fine-tuning changes; and semantic links."""

from __future__ import annotations

from itertools import product
from textwrap import fill

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from beyond.papers.common.tasks import heads_by_task
from beyond.papers.dark_secrets.links import EXCESS
from beyond.papers.dark_secrets.maps import Map, darkest_weights, shaded
from beyond.papers.dark_secrets.patterns import CLASSES, WITH_COLUMN
from helpers.metrics.heads import by_head
from helpers.plots.style import (
    DIVERGING,
    INK,
    SEQUENTIAL,
    canvas,
    counting_ticks,
    heat_maps,
    legend_below,
    theme,
)

# In the order of `CLASSES`, from dark ("vertical") to light ("heterogeneous").
COLORS = ("#0B3C6F", "#B5432A", "#7D6BB5", "#E6A03C", "#D9D9D9")


@theme()
def fig7_patterns(table: pd.DataFrame, examples: dict[str, Map], *, model: str) -> Figure:
    """Draw Figure 7: a map of each pattern, and the shares of the patterns by layer.

    Parameters
    ----------
    table
        patterns.csv; there is one panel per task (across) and weights (down).
    examples
        Typical maps by their title, from `typical_maps`.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    tasks = table["task"].unique()
    weights = table["weights"].unique()
    map_rows = max(1, -(-len(examples) // 3))
    map_height = map_rows * 1.4  # inches
    bar_height = 0.25 + 1.2 * len(weights)
    last_state = weights[-1]
    last_state_rows = table[table["weights"] == last_state]
    with_column = last_state_rows.groupby("task")[WITH_COLUMN].mean().sum(axis=1)
    extremes = [f"{with_column.min():.0%}", f"{with_column.max():.0%}"]  # over tasks
    shares = " to ".join(dict.fromkeys(extremes))
    figure = canvas(
        map_height + bar_height + 0.3,
        f"Figure 7 · In {shares} of the maps, many tokens attend to the same few "
        f"({last_state}, by task)",
        model,
        "above: the clearest map of each pattern, on a scale of its own",
        "rows: queries; columns: keys, beginning with the first token",
        "below: shares of maps",
    )
    above, below = figure.add_gridspec(2, 1, height_ratios=[map_height, bar_height])
    # Typical maps side by side, in the order of the legend.
    titles = sorted(examples, key=lambda title: CLASSES.index(title.rpartition(" (")[0]))
    panels = above.subgridspec(map_rows, 3)
    for number, title in enumerate(titles):
        axes = figure.add_subplot(panels[divmod(number, 3)])
        axes.set_axis_off()
        axes.imshow(shaded(examples[title]), cmap=SEQUENTIAL, vmin=0, vmax=1)
        lines = f"{fill(title, 16)}\nblack: {darkest_weights(examples[title]):.2f}"
        axes.set_title(lines)
    grid = below.subgridspec(len(weights), len(tasks)).subplots(
        squeeze=False, sharex=True, sharey=True
    )
    means = table.groupby(["weights", "task", "layer"])[list(CLASSES)].mean()
    for axes, (state, task) in zip(grid.flat, product(weights, tasks), strict=True):
        shares = means.loc[(state, task), :]  # a row per layer
        bottom = 0.0
        for name, color in zip(CLASSES, COLORS, strict=True):
            axes.bar(shares.index, shares[name], 0.82, bottom, color=color, label=name)
            bottom += shares[name]
        axes.set(xlabel="Layer", ylabel=f"{state}\nShare of maps", ylim=(0, 1))
        axes.label_outer()
        letters = 48 // len(tasks)
        axes.set_title(fill(task, letters) if state == weights[0] else "")
        max_ticks = 18 // len(tasks)
        axes.set_xticks(counting_ticks(int(table["layer"].max()), max_ticks))
    legend_below(figure, columns=3)
    return figure


@theme()
def fig8_finetuning(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 8: how far fine-tuning changes the maps of each head.

    Parameters
    ----------
    table
        finetuning_similarity.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = table.assign(change=1 - table["similarity"])
    by_layer = table.groupby("layer")["change"].mean()
    title = f"maps of layer {by_layer.idxmax()} most, by {by_layer.max():.2f} on average"
    return heat_maps(
        heads_by_task(table, "change"),
        f"Figure 8 · Fine-tuning changes {title}",
        model,
        "1 minus the cosine of the maps of a head before and after fine-tuning",
        unit="1 - cosine (0: no change)",
        norm=Normalize(0, max(0.1, table["change"].max())),
    )


@theme()
def semantic_links(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw section 4.2: by how much each head's attention on links exceeds that on random pairs.

    A dot marks the heads whose difference is above `EXCESS`: with many sentences a difference of
    any size is significant, so that its size counts.

    Parameters
    ----------
    table
        semantic_links.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    largest = table["difference"].abs().max()
    linked = table[table["difference"] > EXCESS]
    strongest = table.loc[table["difference"].idxmax()]
    head_name = f"{strongest['layer']:.0f}-{strongest['head']:.0f}"
    figure = heat_maps(
        {"attention on links minus random pairs": by_head(table, "difference")},
        f"Section 4.2 of Kovaleva et al. · {len(linked)} of {len(table)} heads attend more to "
        f"subjects and objects of verbs; most: head {head_name}",
        model,
        f"a dot: over {EXCESS} more than on random pairs",
        unit="Difference (fraction)",
        norm=Normalize(-largest, largest),
        cmap=DIVERGING,
    )
    figure.axes[0].scatter(
        "head", "layer", data=linked, s=5, color="white",
        edgecolors=INK, linewidths=0.8,
    )  # fmt: skip
    return figure
