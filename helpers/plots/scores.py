"""The figures of sections 4 and 5: scores of attention heads and probes next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from helpers.metrics.coreference import HELD_OUT
from helpers.metrics.heads import DIRECTIONS, Direction, by_head, head_label
from helpers.metrics.nearest_words import DISTANCES, FEWEST_WORDS
from helpers.metrics.reference import ALL, COMPARED
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    draw_curve,
    draw_intervals,
    heat_maps,
    label_ends,
    panel_grid,
    theme,
)

BAR_INCHES = 0.155  # height of one bar's row
CONTROL_BAR = "#D3D3D3"
# How the names of probes begin that do not read the model's attention or hidden states.
CONTROLS = ("random-init", "entropy-matched", "right-branching", "distances")
INTERVALS = "bars: measured here, with 95% intervals; diamonds: the paper"
PREDICTOR_STYLES = {  # by column of accuracy_by_distance.csv
    "head": Style("heads", style.SERIES_COLORS[0], "o"),
    "nearest": Style("nearest word\nof one class", style.SERIES_COLORS[1], "^"),
    "offset": Style("fixed offset", style.MUTED, "s"),
}


@theme()
def coreference_scores(table: pd.DataFrame, *, model: str) -> Figure:
    """Draw Table 2 (section 4.3): antecedents found in percent, by system and type of mention.

    Each type has a panel.  The head was chosen on train, for the type, and is scored on dev.

    Parameters
    ----------
    table : pandas.DataFrame
        The table coreference.csv.
    model : str
        Name of the run, for the note.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = table.rename(columns=lambda name: name.replace("accuracy", "value"))
    is_head = (table["system"] == HELD_OUT) & (table["candidates"] == "mentions")
    drawn = table[is_head | table["system"].isin(["nearest mention", "rule-based"])].iloc[::-1]
    drawn = drawn.assign(
        name=drawn["system"].replace(HELD_OUT, "best head"),
        label=drawn["value"].map("{:.0f}  ".format) + drawn["head"].fillna(""),
    )
    accuracies = drawn[drawn["type"] == "all"].set_index("name")["value"]
    finding = ", ".join(f"{name} {value:.0f}%" for name, value in accuracies.items())
    types = ("all", "pronoun", "proper", "nominal")
    figure = canvas(
        2 * ((1 + len(accuracies)) * BAR_INCHES + 0.2) + 0.3,
        f"Antecedents that are found: {finding}",
        model,
        INTERVALS,
        "n: mentions, and those of dev; a head is chosen on train for its type and scored on dev",
    )
    panels = panel_grid(figure, len(types), 2, sharex=True, sharey=True)
    for axes, name in zip(panels, types, strict=True):
        rows = drawn[drawn["type"] == name]
        draw_bars(axes, rows, style.BAR)
        counts = dict.fromkeys(f"{count:,.0f}" for count in rows["n"].iloc[::-1])
        axes.set(title=f"{name}, n = {', '.join(counts)}", xlabel="Accuracy (%)")
        axes.label_outer()
    return figure


@theme()
def probe_scores(table: pd.DataFrame, *, model: str, lens: str) -> Figure:
    """Draw Table 3 (section 5): attachment scores of the probes in percent, without punctuation.

    A probe with another metric than most has it after its name.

    Parameters
    ----------
    table : pandas.DataFrame
        The table probes.csv.
    model : str
        Name of the run, for the note.
    lens : {"attention", "norm"}
        The kind of weights that the probes read.

    Returns
    -------
    matplotlib.figure.Figure
    """
    table = table[table["metric"].isin(COMPARED)]
    metric = table["metric"].mode()[0]
    with_metric = table["probe"] + ", " + table["metric"]
    rows = table.assign(
        name=table["probe"].where(table["metric"] == metric, with_metric),
        is_control=table["probe"].str.lower().str.startswith(CONTROLS),
        label=table["value"].map("{:.1f}".format),
    )
    rows = rows.sort_values(["is_control", "value"], ascending=[True, False], kind="stable")
    figure = canvas(
        BAR_INCHES * len(rows) + 0.4,
        _probe_title(table[table["metric"] == metric], style.WEIGHT_NAMES[lens]),
        model,
        INTERVALS,
        "grey: controls and baselines",
        "the paper's probes: GloVe of 100 dimensions, no separate weights for ROOT",
    )
    axes = figure.subplots()
    draw_bars(axes, rows, np.where(rows["is_control"], CONTROL_BAR, style.BAR))
    axes.set_xlabel(f"{metric} (%)")
    return figure


def _probe_title(table: pd.DataFrame, weights: str) -> str:
    """Write the title: the attention probes, and random weights."""
    values = table.drop_duplicates("probe").set_index("probe")["value"]
    names = {
        "Attn": f"A probe that reads {weights} finds {{:.0f}}% of parents",
        "Attn + GloVe": "with word vectors, {:.0f}%",
        "Random-init Attn + GloVe": "and with random weights, {:.0f}%",
    }
    parts = [text.format(values[name]) for name, text in names.items() if name in values]
    return ", ".join(parts)


@theme()
def relation_heatmaps(
    accuracies: Mapping[tuple[str, Direction], style.HeadValues],
    *,
    model: str,
    layer_numbers: Sequence[int],
) -> Figure:
    """Draw the accuracy of each attention head for each relation (section 4.2), the best framed.

    Parameters
    ----------
    accuracies : mapping of (str, Direction) to array, shape (layer, head)
        Percentages by relation and by the direction in which the heads are read.
    model : str
        Name of the run, for the note.
    layer_numbers : sequence of int
        The numbers of the layers that attend (`Store.layer_numbers`).

    Returns
    -------
    matplotlib.figure.Figure
    """
    maps = {}
    best_heads = []
    is_found = []  # at least half of its words, by relation
    for (relation, direction), values in accuracies.items():
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        best = f"{head_label(layer, head, layer_numbers)}: {values[layer, head]:.0f}%"
        arrow = "d → p" if direction == DIRECTIONS[0] else "p → d"
        maps[f"{relation}\n{best}, {arrow}"] = values
        best_heads.append((layer, head))
        if relation.split(" (")[0] != ALL:
            is_found.append(values[layer, head] >= 50)
    figure = heat_maps(
        maps,
        f"For {sum(is_found)} of {len(is_found)} relations, one head finds at least half of the "
        "parents",
        model,
        "in brackets: words; framed: the best head; d → p: dependents attend to parents",
        unit="Accuracy (%)",
        norm=Normalize(0, 100),
        layer_numbers=layer_numbers,
    )
    frame = {"fill": False, "edgecolor": style.INK, "linewidth": 1, "path_effects": style.FRAME}
    for axes, (layer, head) in zip(figure.axes, best_heads, strict=False):
        corner = (head + 0.5, layer + 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, clip_on=False, **frame))
    return figure


@theme()
def accuracy_by_distance(table: pd.DataFrame, titles: Mapping[str, str], *, model: str) -> Figure:
    """Draw the accuracy of head, fixed offset and nearest word by the distance of the parent.

    Parameters
    ----------
    table : pandas.DataFrame
        The table accuracy_by_distance.csv.
    titles : mapping of str to str
        The relations that have a panel, and the title of each; the first one has a large panel.
    model : str
        Name of the run, for the note.

    Returns
    -------
    matplotlib.figure.Figure
    """
    first, *further = list(titles)[:5]
    figure = canvas(
        4.0 if further else 1.7,
        _distance_title(table[table["relation"] == first]),
        model,
        f"chosen on train, scored on dev; bands: 95% intervals; –: fewer than {FEWEST_WORDS} words",
    )
    heights = [4, 5] if further else [4]
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)
    upper, *lower = parts[:, 0]
    axes = upper.subplots()
    _draw_distances(axes, table[table["relation"] == first], list(PREDICTOR_STYLES))
    axes.set(title=titles[first], xlabel="Words to the parent, and number of such words")
    label_ends(axes, gap=0.18)
    for part in lower:
        small = panel_grid(part, len(further), 2, sharey=True)
        for axes, relation in zip(small, further, strict=True):
            _draw_distances(axes, table[table["relation"] == relation], ["head", "nearest"])
            axes.set_title(titles[relation])
    figure.supylabel("Accuracy (%)")
    return figure


def _draw_distances(axes: Axes, rows: pd.DataFrame, predictors: list[str]) -> None:
    """Draw the accuracy of predictors at each distance; the nearest word of a class needs tags."""
    rows = rows.set_index("distance").reindex(DISTANCES).reset_index()
    rows["place"] = range(len(rows))
    for column in predictors:
        drawn = rows.dropna(subset=column)
        if len(drawn):
            draw_curve(axes, drawn, "place", column, PREDICTOR_STYLES[column], clip_on=False)
    counts = ["–" if np.isnan(count) else f"{count:,.0f}" for count in rows["count"]]
    axes.set_xticks(rows["place"], [*map("{}\n{}".format, ("1", "2", "3–5", "> 5"), counts)])
    axes.set(ylim=(0, 100), xlim=(-0.2, len(rows) - 0.8))


def _distance_title(table: pd.DataFrame) -> str:
    """Write the title: heads and the nearest word at the smallest and the largest distance."""
    rows = table.dropna(subset=["head", "nearest"]).set_index("distance")
    if not len(rows):
        return "How many parents heads find, by their distance"
    first = rows.iloc[0]
    last = rows.iloc[-1]
    return (
        f"Heads find {first['head']:.0f}% of the parents {first.name} word away and "
        f"{last['head']:.0f}% of those {last.name}; the nearest word of one class is right for "
        f"{first['nearest']:.0f}% and {last['nearest']:.0f}%"
    )


@theme()
def probe_head_gains(table: pd.DataFrame, *, model: str, lens: str) -> Figure:
    """Draw the gain in score of the right word per attention head in the Attn probe (section 5).

    The gain says more than the weight of a head in the probe, because the weight is also large for
    a head that gives words very little attention.

    Parameters
    ----------
    table : pandas.DataFrame
        The table probe_heads.csv.
    model : str
        Name of the run, for the note.
    lens : {"attention", "norm"}
        The kind of weights that the probe reads.

    Returns
    -------
    matplotlib.figure.Figure
    """
    gains = table[["w_gain", "u_gain"]]
    largest = float(gains.abs().max(axis=None))
    layer, head = table.loc[gains.max(axis=1).idxmax(), ["layer", "head"]].astype(int)
    maps = {
        "parents attend to dependents": by_head(table, "w_gain"),
        "dependents attend to parents": by_head(table, "u_gain"),
    }
    return heat_maps(
        maps,
        f"Head {layer}-{head} helps the attention-only probe most",
        model,
        f"its weight times how much more {style.WEIGHT_NAMES[lens]} the right word gets",
        unit="Gain in score (log-odds)",
        norm=Normalize(-largest, largest),
        cmap=style.DIVERGING,
        layer_numbers=np.unique(table["layer"]).tolist(),
    )


def draw_bars(axes: Axes, rows: pd.DataFrame, color: ArrayLike) -> None:
    """Draw a bar per row with its name, its interval, its label and the paper's value."""
    y = np.arange(len(rows))
    axes.barh(y, rows["value"], height=0.68, color=color)
    draw_intervals(
        axes, rows["value_low"], rows["value_high"], y, color=style.INK, elinewidth=0.8, capsize=1.5
    )
    axes.plot(  # an interval below it is seen
        rows["paper_value"], y, "D", color=style.ACCENT, markerfacecolor="none", zorder=4
    )
    for row, label in enumerate(rows["label"]):
        axes.text(102, row, label, va="center")
    axes.set_yticks(y, rows["name"])
    axes.set(xlim=(0, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
