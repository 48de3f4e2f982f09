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
from helpers.metrics.nearest_words import DISTANCES
from helpers.metrics.reference import COMPARED
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    draw_curve,
    draw_intervals,
    heat_maps,
    legend_below,
    panel_grid,
    theme,
)

BAR_INCHES = 0.3  # height of one bar's row
INTERVALS = "bars: measured here, with 95% intervals; diamonds: the paper"
# The paper's probes differ from those here in this, whatever the model and the treebank.
PAPER_PROBES = "The paper's probes: GloVe of 100 dimensions, no separate weights for ROOT."
ARROWS = dict(zip(DIRECTIONS, ("d → p", "p → d"), strict=True))
PREDICTOR_STYLES = {  # by column of accuracy_by_distance.csv
    "head": Style("attention head", "#0173B2", "o"),
    "offset": Style("fixed offset", style.MUTED, "s"),
    "nearest": Style("nearest word of one part of speech", "#D55E00", "^"),
}
HELD_OUT = " (chosen on train, scored on dev)"  # of a system's name


@theme()
def coreference_scores(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw Table 2 (section 4.3): antecedents found in percent, by system and type of mention.

    Each type has a panel.  The bars are grouped by the set of candidates.  To the right of a bar
    are its value and the name of the attention head.

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
    table = table.rename(columns=lambda name: name.replace("accuracy", "value"))
    labels = table["value"].map("{:.1f}  ".format) + table["head"].fillna("")
    names = table["system"].str.replace(HELD_OUT, ", held out")
    names = names.str.replace("head of the type", "best head per type")
    table = table.assign(name=names, label=labels.str.rstrip())
    groups = []
    for candidates, rows in table.groupby("candidates", sort=False):
        groups.append((candidates, f"among {candidates}:"))
        groups += [(candidates, name) for name in rows["name"].unique()]
    by_type = table.groupby("type", sort=False)
    figure = canvas(
        BAR_INCHES * len(groups) + 1.0,
        "Section 4.3 · Antecedents found by rules and by single heads",
        model,
        INTERVALS,
        note="Held out: chosen on train for each type of mention, scored on dev (the smaller n).",
    )
    panels = panel_grid(figure, len(by_type), len(by_type), sharey=True)
    for axes, (mention_type, rows) in zip(panels, by_type, strict=True):
        bars = rows.set_index(["candidates", "name"]).reindex(groups).reset_index()
        _bars(axes, bars)
        counts = [f"{count:,.0f}" for count in rows["n"].dropna().unique()]
        axes.set_title(f"{fill(mention_type, 15)}\nn = {' / '.join(counts)}")
        axes.set_xlabel("Accuracy (%)")
    return figure


@theme()
def probe_scores(table: pd.DataFrame, *, model: str = "", lens: str = "attention") -> Figure:
    """Draw Table 3 (section 5): attachment scores of the probes in percent, without punctuation.

    A probe with another metric than most has it after its name.  To the right of a bar are its
    value and the paper's.

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
    metric = table["metric"].mode()[0]
    names = table["probe"].where(table["metric"] == metric, table["probe"] + ", " + table["metric"])
    labels = table["value"].map("{:.1f}".format)
    paper = table["paper_value"].map(" (paper {:g})".format, na_action="ignore").fillna("")
    title = f"Section 5 · Attachment scores of probes that read {style.WEIGHT_NAMES[lens]}"
    height = BAR_INCHES * len(table) + 0.9
    figure = canvas(height, title, model, INTERVALS, note=PAPER_PROBES)
    axes = figure.subplots()
    _bars(axes, table.assign(name=names, label=labels + paper))
    axes.set_xlabel(f"{metric} (%)")
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
    maps = {}
    best_heads = []
    for (relation, direction), values in accuracies.items():
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        best = f"{head_label(layer, head)}: {values[layer, head]:.0f}%"
        maps[f"{relation}\n{best}, {ARROWS[direction]}"] = values
        best_heads.append((layer, head))
    figure = heat_maps(
        maps,
        "Section 4.2 · Accuracy of single heads by relation",
        model,
        "framed: the best head; d → p: dependents attend to parents",
        unit="Accuracy (%)",
        norm=Normalize(0, 100),
    )
    for axes, (layer, head) in zip(figure.axes, best_heads, strict=False):
        axes.add_patch(
            Rectangle(
                (head + 0.5, layer + 0.5), 1, 1, fill=False, edgecolor=style.ACCENT, linewidth=1.8,
                clip_on=False,
            )
        )  # fmt: skip
    return figure


@theme()
def accuracy_by_distance(
    table: pd.DataFrame, titles: Mapping[str, str], *, model: str = ""
) -> Figure:
    """Draw the accuracy of head, fixed offset and nearest word by the distance of the parent.

    Parameters
    ----------
    table : pandas.DataFrame
        The table accuracy_by_distance.csv.
    titles : mapping of str to str
        The relations that have a panel, and the title of each.
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = canvas(
        2.5 * -(-len(titles) // 3) + 0.5,
        "Section 4.2 · Parents found by single heads and by two rules, by distance",
        model,
        "head, offset, and part of speech and side chosen on train, scored on dev; "
        "bands: 95% intervals",
    )
    panels = panel_grid(figure, len(titles), 3, sharey=True)  # numbers of words differ
    for axes, (relation, title) in zip(panels, titles.items(), strict=True):
        rows = table[table["relation"] == relation].set_index("distance").reindex(DISTANCES)
        rows = rows.reset_index().assign(place=np.arange(len(DISTANCES)))
        for column, series_style in PREDICTOR_STYLES.items():
            if table[column].notna().any():  # the nearest word of a class needs tags
                draw_curve(axes, rows.dropna(subset=column), "place", column, series_style)
        counts = rows["count"].fillna(0).astype(int)
        labels = [
            f"{distance}\nn = {count:,}" for distance, count in zip(DISTANCES, counts, strict=True)
        ]
        axes.set_xticks(rows["place"], labels)
        axes.set(ylim=(-3, 103), xlim=(-0.3, len(DISTANCES) - 0.7))
        axes.set_title(title, parse_math=False)
    for axes in panels[-3:]:  # the lowest of each column
        axes.set_xlabel("Distance of the parent (words)")
    legend_below(figure, columns=len(PREDICTOR_STYLES))
    figure.supylabel("Accuracy (%)")
    return figure


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
        "parents attend to dependents": by_head(table, "w_gain"),
        "dependents attend to parents": by_head(table, "u_gain"),
    }
    return heat_maps(
        maps,
        "Section 5 · What each head adds in the attention-only probe",
        model,
        f"its weight times how much more {style.WEIGHT_NAMES[lens]} the right word gets",
        unit="Gain in score (log-odds)",
        norm=Normalize(-largest, largest),
        cmap=style.DIVERGING,
    )


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar per row with its name, its interval, its label and the paper's value.

    A row without a value has its name only.
    """
    rows = rows.reset_index(drop=True)
    bars = rows.dropna(subset="value")
    y = bars.index
    axes.barh(y, bars["value"], height=0.68, color=style.BAR)
    draw_intervals(
        axes, bars["value_low"], bars["value_high"], y, color=style.INK, elinewidth=1.2,
        capsize=2.7, capthick=1.2,
    )  # fmt: skip
    axes.plot(
        bars["paper_value"], y, "D", color=style.ACCENT, markersize=6, markeredgecolor="white",
        zorder=4,
    )  # fmt: skip
    for position, label in bars["label"].items():
        axes.text(101.5, position, label, va="center")
    axes.set_yticks(rows.index, rows["name"])
    axes.set(xlim=(0, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.xaxis.grid(True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
