"""The figures of sections 4 and 5: scores of attention heads and probes next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.metrics.heads import DIRECTIONS, Direction, by_head, head_label
from helpers.metrics.reference import COMPARED
from helpers.plots import style
from helpers.plots.style import (
    canvas,
    draw_intervals,
    empty_figure,
    heat_maps,
    join_nonempty,
    panel_grid,
    theme,
)

BAR_INCHES = 0.3  # height of one bar's row
CHARACTER_PERCENT = 6  # of a narrow panel's width, for one character of a head's name
INTERVALS = "bars: here, with 95% intervals; diamonds: the paper"
# The paper's probes differ from those here in this, whatever the model and the treebank.
PAPER_PROBES = "The paper's probes read GloVe of 100 dimensions and have no weights of ROOT's own."
ARROWS = dict(zip(DIRECTIONS, ("d → h", "h → d"), strict=True))


@theme()
def coreference_scores(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Table 2 (section 4.3): antecedents found in percent, by system and type of mention.

    Each type has a panel.  Each system has a bar for each set of candidates.  The name of its
    attention head is written in the bar, or to the right of the interval if the bar is short.

    Parameters
    ----------
    table : pandas.DataFrame
        The table coreference.csv.
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    systems = table["system"].str.replace(" (chosen on train, scored on dev)", ", held out")
    table = table.assign(name=systems + "\namong " + table["candidates"])
    table = table.rename(columns=lambda name: name.replace("accuracy", "value"))
    names = table["name"].unique()
    rows_by_type = dict(iter(table.groupby("type", sort=False)))
    title = "Section 4.3 · Antecedents of mentions (Table 2)"
    held_out = "Held out: chosen on train, scored on dev (the smaller n)."
    figure = canvas(
        BAR_INCHES * len(names) + 1.2, title, join_nonempty(model, INTERVALS), note=held_out
    )
    panels = panel_grid(figure, len(rows_by_type), len(rows_by_type), sharey=True)
    for axes, (mention_type, rows) in zip(panels, rows_by_type.items(), strict=True):
        bars = rows.set_index("name").reindex(names).reset_index()
        _bars(axes, bars)
        for y, bar in bars.dropna(subset="head").iterrows():
            interval_covers_name = bar["value_low"] < 2 + CHARACTER_PERCENT * len(bar["head"])
            x = bar["value_high"] + 3 if interval_covers_name else 2
            axes.text(x, y, bar["head"], va="center", fontsize=8)
        counts = [f"{count:,.0f}" for count in rows["n"].dropna().unique()]
        axes.set_title(f"{fill(mention_type, 15)}\nn = {' / '.join(counts)}")
        axes.set_xlabel("Accuracy (%)")
    return figure


@theme()
def probe_scores(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Table 3 (section 5): attachment scores of the probes in percent, without punctuation.

    If the table has several metrics, the metric of a probe is written after its name.

    Parameters
    ----------
    table : pandas.DataFrame
        The table probes.csv.
    model : str, optional
        Name of the run, for the subtitle.
    lens : {"attention", "norm"}, optional
        The kind of weights that the probes read.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = table[table["metric"].isin(COMPARED)]
    metrics = table["metric"].unique()
    names = table["probe"]
    if len(metrics) > 1:
        names = names + " (" + table["metric"] + ")"
    title = f"Section 5 · Probes of {style.WEIGHT_NAMES[lens]} (Table 3)"
    height = BAR_INCHES * len(table) + 0.9
    figure = canvas(height, title, join_nonempty(model, INTERVALS), note=PAPER_PROBES)
    axes = figure.subplots()
    _bars(axes, table.assign(name=names))
    axes.set_xlabel(f"{' or '.join(metrics)} (%)")
    return figure


@theme()
def relation_heatmaps(
    accuracies: Mapping[tuple[str, Direction], style.HeadValues], *, model: str = ""
) -> Figure:
    """Draw the accuracy of each attention head for each relation (section 4.2), the best framed.

    Parameters
    ----------
    accuracies : mapping of (str, Direction) to array, shape (layer, head)
        Percentages by relation and by the direction in which the heads are read.
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    title = "Section 4.2 · Accuracy of single heads by relation"
    if not accuracies:
        return empty_figure(
            title, model, "a relation that the paper has, too, and that is frequent"
        )
    maps = {}
    best_heads = []
    for (relation, direction), values in accuracies.items():
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        best = f"{head_label(layer, head)}: {values[layer, head]:.0f}%"
        maps[f"{relation}\n{best}, {ARROWS[direction]}"] = values
        best_heads.append((layer, head))
    figure = heat_maps(
        maps,
        title,
        join_nonempty(model, "framed: the best head; d → h: the dependent attends to its head"),
        "Accuracy (%)",
        Normalize(0, 100),
        columns=_panel_columns(len(maps)),
    )
    for axes, (layer, head) in zip(figure.axes, best_heads, strict=False):
        corner = (head + 0.5, layer + 0.5)
        frame = Rectangle(
            corner, 1, 1, fill=False, edgecolor=style.ACCENT, linewidth=1.8, clip_on=False
        )
        axes.add_patch(frame)
    return figure


def _panel_columns(panels: int) -> int:
    """Choose four, five or three columns, in this order, by the fewest gaps in the last row."""
    return min((4, 5, 3), key=lambda columns: -panels % columns)


@theme()
def probe_head_gains(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw the gain in score of the right word per attention head in the Attn probe (section 5).

    The gain says more than the weight of a head in the probe, because the weight is also large for
    a head that gives words very little attention.

    Parameters
    ----------
    table : pandas.DataFrame
        The table probe_heads.csv.
    model : str, optional
        Name of the run, for the subtitle.
    lens : {"attention", "norm"}, optional
        The kind of weights that the probe reads.

    Returns
    -------
    matplotlib.figure.Figure
    """
    largest = float(table[["w_gain", "u_gain"]].abs().max(axis=None))
    maps = {
        "head attends to word": by_head(table, "w_gain"),
        "word attends to head": by_head(table, "u_gain"),
    }
    return heat_maps(
        maps,
        "Section 5 · What each head adds in the attention-only probe",
        join_nonempty(
            model, f"its weight times how much more {style.WEIGHT_NAMES[lens]} the right word gets"
        ),
        "Gain in score (log-odds)",
        Normalize(-largest, largest),
        columns=2,
        cmap=style.DIVERGING,
    )


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar per row with its name, its interval, its value and the paper's value."""
    y = np.arange(len(rows))
    axes.barh(y, rows["value"], height=0.68, color=style.BAR)
    draw_intervals(
        axes, rows["value_low"], rows["value_high"], y, color=style.INK, elinewidth=1.2,
        capsize=2.7, capthick=1.2,
    )  # fmt: skip
    axes.plot(
        rows["paper_value"], y, "D", color=style.ACCENT, markersize=6, markeredgecolor="white",
        zorder=4,
    )  # fmt: skip
    for position, value in zip(y, rows["value"], strict=True):
        if np.isfinite(value):
            axes.text(101.5, position, f"{value:.1f}", va="center", fontsize=8.5)
    axes.set_yticks(y, rows["name"])
    axes.set(xlim=(0, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.xaxis.grid(True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=9)
