"""Figures 7 to 9: pattern classes, what fine-tuning changes, what disabling heads does."""

from __future__ import annotations

from itertools import product
from textwrap import fill

import pandas as pd
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure

from helpers.metrics.heads import by_head
from helpers.plots.style import (
    DIVERGING,
    INK,
    SEQUENTIAL,
    canvas,
    counting_ticks,
    heat_maps,
    theme,
)
from helpers.studies.common.head_removal import MARGIN
from helpers.studies.common.tasks import heads_by_task
from helpers.studies.kovaleva2019.fine_tuning import WHOLE_LAYER
from helpers.studies.kovaleva2019.links import EXCESS, linked_heads
from helpers.studies.kovaleva2019.maps import Map, shaded
from helpers.studies.kovaleva2019.patterns import CLASSES, WITH_COLUMN

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
    map_height = 1.95  # inches
    bar_height = 0.25 + 1.9 * len(weights)
    last_state = weights[-1]
    last_state_rows = table[table["weights"] == last_state]
    with_column = last_state_rows.groupby("task")[WITH_COLUMN].mean().sum(axis=1)
    extremes = [f"{with_column.min():.0%}", f"{with_column.max():.0%}"]  # over tasks
    shares = " to ".join(dict.fromkeys(extremes))
    figure = canvas(
        map_height + bar_height,
        f"Figure 7 · {shares} of the maps have a column, by task ({last_state})",
        model,
        "above: the clearest map of each pattern, a row per query, the darker the more attention",
        "below: shares of maps",
    )
    above, below = figure.add_gridspec(2, 1, height_ratios=[map_height, bar_height])
    # Typical maps side by side, in the order of the legend.
    titles = sorted(examples, key=lambda title: CLASSES.index(title.rpartition(" (")[0]))
    panels = above.subgridspec(1, len(titles)).subplots(squeeze=False)
    for axes, title in zip(panels.flat, titles, strict=True):
        axes.set_axis_off()
        axes.imshow(shaded(examples[title]), cmap=SEQUENTIAL, vmin=0, vmax=1)
        axes.set_title(fill(title, 20), parse_math=False)
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
        axes.set_title(fill(task, 18) if state == weights[0] else "", parse_math=False)
        axes.set_xticks(counting_ticks(int(table["layer"].max()), 24 // len(tasks)))
    figure.legend(
        *grid.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(CLASSES)
    )
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
def fig9_disabling(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Figure 9: the change of accuracy without each head, and without each layer.

    Beyond `MARGIN` the scale is logarithmic, because layers change the accuracy much more than
    heads; below it colours are pale, because changes are of a few examples.

    Parameters
    ----------
    table
        disabling.csv.
    model
        The name of the model, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    layer_column = table["head"].max() + 1  # layers are drawn to the right of the heads
    positioned = table.assign(head=table["head"].replace(WHOLE_LAYER, layer_column))
    panels = heads_by_task(positioned, "change")
    largest = max(MARGIN, table["change"].abs().max())
    is_layer = table["head"] == WHOLE_LAYER
    largest_losses = table["change"].clip(upper=0).abs().groupby(is_layer).max()
    loss_of_head, loss_of_layer = largest_losses.reindex([False, True], fill_value=0)
    figure = heat_maps(
        panels,
        f"Figure 9 · Up to {loss_of_head:.0f} percentage points lost without a head, "
        f"{loss_of_layer:.0f} without a layer",
        model,
        "right of the line: the whole layer; logarithmic beyond ±1",
        unit="Change (percentage points)",
        norm=SymLogNorm(MARGIN, linscale=0.5, vmin=-largest, vmax=largest),
        cmap=DIVERGING,
    )
    heads = counting_ticks(layer_column - 1, 20 // len(panels))
    for axes in figure.axes[: len(panels)]:
        axes.axvline(layer_column - 0.5, color=INK, linewidth=1)
        axes.set_xticks([*heads, layer_column], [*map(str, heads), "layer"])
    return figure


@theme()
def semantic_links(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw section 4.2: by how much each head's attention on links exceeds that on random pairs.

    A dot marks the `linked_heads`.

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
    figure = heat_maps(
        {"attention on links minus random pairs": by_head(table, "difference")},
        "Kovaleva et al., section 4.2 · Verbs, and their subjects and objects",
        model,
        f"a dot: {EXCESS} more than on random pairs",
        unit="Difference (fraction)",
        norm=Normalize(-largest, largest),
        cmap=DIVERGING,
    )
    linked = linked_heads(table)
    figure.axes[0].scatter(
        "head", "layer", data=linked, s=12, color="white", edgecolors=INK, linewidths=0.8
    )
    return figure
