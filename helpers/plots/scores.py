"""The figures of sections 4 and 5: scores of attention heads and probes next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.metrics.heads import DIRECTIONS, Direction, by_head, head_label
from helpers.metrics.nearest_words import DISTANCES, FEWEST_WORDS
from helpers.metrics.reference import ALL, COMPARED
from helpers.plots import style
from helpers.plots.style import (
    Style,
    canvas,
    draw_curve,
    draw_intervals,
    for_column,
    heat_maps,
    legend_below,
    panel_grid,
)

BAR_INCHES = 0.3  # height of one bar's row
COLUMN_BAR_INCHES = 0.155  # the same in a figure for a column
CONTROL_BAR = "#D3D3D3"
# How the names of probes begin that do not read the model's attention or hidden states.
CONTROLS = ("Random-init", "Entropy-matched", "Right-branching", "Distances")
INTERVALS = "bars: measured here, with 95% intervals; diamonds: the paper"
# The paper's probes differ from those here in this, whatever the model and the treebank.
PAPER_PROBES = "The paper's probes: GloVe of 100 dimensions, no separate weights for ROOT."
ARROWS = dict(zip(DIRECTIONS, ("d → p", "p → d"), strict=True))
PREDICTOR_STYLES = {  # by column of accuracy_by_distance.csv
    "head": Style("attention head", style.SERIES_COLORS[0], "o"),
    "offset": Style("fixed offset", style.MUTED, "s"),
    "nearest": Style(
        "nearest word of one class (knows the parts of speech)", style.SERIES_COLORS[1], "^"
    ),
}
HELD_OUT = " (chosen on train, scored on dev)"  # of a system's name
SYSTEM_NAMES = {  # of those in which "head" can be a word or an attention head
    "head": "attention head",
    "head of the type, held out": "best per type, held out",
}


@for_column
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
    names = table["system"].str.replace(HELD_OUT, ", held out").replace(SYSTEM_NAMES)
    table = table.assign(name=names, label=labels.str.rstrip())
    groups = []
    for candidates, rows in table.groupby("candidates", sort=False):
        groups.append((candidates, f"among {candidates}:"))
        groups += [(candidates, name) for name in rows["name"].unique()]
    by_type = table.groupby("type", sort=False)
    columns = 1 if style.in_column() else 3
    n_rows = -(-len(by_type) // columns)
    figure = canvas(
        n_rows * (_bar_inches() * len(groups) + 0.45) + 0.25,
        _coreference_title(table),
        model,
        INTERVALS,
        note="Held out: chosen on train for each type of mention, scored on dev.",
    )
    panels = panel_grid(figure, len(by_type), columns, sharey=True, sharex=True)
    for axes, (mention_type, rows) in zip(panels, by_type, strict=True):
        bars = rows.set_index(["candidates", "name"]).reindex(groups).reset_index()
        _bars(axes, bars)
        count, *counts_held_out = [f"{count:,.0f}" for count in rows["n"].dropna().unique()]
        held_out = f" (held out: {', '.join(counts_held_out)})" if counts_held_out else ""
        gap = "\n" if style.in_column() else ", "
        axes.set_title(f"{mention_type}{gap}n = {count}{held_out}")
    for axes in panels[-columns:]:
        axes.set_xlabel("Accuracy (%)")
        axes.tick_params(labelbottom=True)
    return figure


def _coreference_title(table: pd.DataFrame) -> str:
    """Write the title: the best head and the best rule, on all mentions."""
    all_mentions = table[table["type"] == table["type"].iloc[0]]
    is_head = all_mentions["head"].fillna("") != ""
    is_held_out = all_mentions["name"].str.endswith("held out")
    best = all_mentions[is_head & ~is_held_out].nlargest(1, "value")
    rules = all_mentions[~is_head].nlargest(1, "value")
    parts = []
    for row in best.itertuples():  # the best of many is better than on other mentions
        parts.append(f"head {row.head}, chosen on these mentions, finds {row.value:.0f}%")
    for name, value in zip(rules["name"], rules["value"], strict=True):
        parts.append(f"the best rule ({name}) {value:.0f}%")
    return f"Section 4.3 · Antecedents: {', '.join(parts)}"


@for_column
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
    is_control = table["probe"].str.lower().str.startswith(tuple(map(str.lower, CONTROLS)))
    order = table.assign(is_control=is_control).sort_values(
        ["is_control", "value"], ascending=[True, False], kind="stable"
    )
    labels = table["value"].map("{:.1f}".format)
    if not style.in_column():
        labels += table["paper_value"].map(" (paper {:g})".format, na_action="ignore").fillna("")
    rows = table.assign(name=names, label=labels, is_control=is_control).loc[order.index]
    figure = canvas(
        _bar_inches() * len(table) + 0.9,
        _probe_title(table[table["metric"] == metric], style.WEIGHT_NAMES[lens]),
        model,
        INTERVALS,
        "grey: controls and baselines",
        note=PAPER_PROBES,
    )
    axes = figure.subplots()
    _bars(axes, rows)
    axes.set_xlabel(f"{metric} (%)")
    return figure


def _probe_title(table: pd.DataFrame, weights: str) -> str:
    """Write the title: the attention probes, and what they are compared with."""
    values = table.drop_duplicates("probe").set_index("probe")["value"]
    names = {
        "Attn": f"a probe that reads {weights} finds {{:.0f}}% of parents",
        "Attn + GloVe": "with word vectors {:.0f}%",
        "Distances + GloVe": "distances and word vectors {:.0f}%",
        "Random-init Attn + GloVe": "with random weights {:.0f}%",
    }
    parts = [text.format(values[name]) for name, text in names.items() if name in values]
    if not parts:
        best = values.idxmax()
        parts = [f"{best} has the highest score, {values[best]:.0f}%"]
    finding = ", ".join(parts)
    return f"Section 5 · {finding[0].upper()}{finding[1:]}"


@for_column
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
        _relations_title(accuracies),
        model,
        "framed: the best head; d → p: dependents attend to parents",
        unit="Accuracy (%)",
        norm=Normalize(0, 100),
    )
    for axes, (layer, head) in zip(figure.axes, best_heads, strict=False):
        axes.add_patch(
            Rectangle(
                (head + 0.5, layer + 0.5), 1, 1, fill=False, edgecolor=style.INK, linewidth=1.4,
                clip_on=False, path_effects=style.FRAME,
            )
        )  # fmt: skip
    return figure


def _relations_title(accuracies: Mapping[tuple[str, Direction], style.HeadValues]) -> str:
    """Write the title: the relations whose best heads find least and most."""
    best = {name.split(",")[0]: np.nanmax(values) for (name, _), values in accuracies.items()}
    if len(best) > 1:
        best.pop(ALL, None)  # it has a panel, but is no relation
    least, most = min(best, key=best.__getitem__), max(best, key=best.__getitem__)
    return (
        f"Section 4.2 · The best head of a relation finds {best[least]:.0f}% ({least}) to "
        f"{best[most]:.0f}% ({most}) of parents"
    )


@for_column
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
    columns = 2 if style.in_column() else 3
    height = 1.6 if style.in_column() else 2.5
    figure = canvas(
        height * -(-len(titles) // columns) + 0.6,
        _distance_title(table[table["relation"] == next(iter(titles))]),
        model,
        "head, offset, and part of speech and side chosen on train, scored on dev; "
        "bands: 95% intervals",
    )
    short = style.in_column()  # there is no room for more
    panels = panel_grid(figure, len(titles), columns, sharey=True)  # numbers of words differ
    for axes, (relation, title) in zip(panels, titles.items(), strict=True):
        rows = table[table["relation"] == relation].set_index("distance").reindex(DISTANCES)
        rows = rows.reset_index().assign(place=np.arange(len(DISTANCES)))
        for column, series_style in PREDICTOR_STYLES.items():
            if table[column].notna().any():  # the nearest word of a class needs tags
                draw_curve(
                    axes, rows.dropna(subset=column), "place", column, series_style, clip_on=False
                )
        labels = []
        for distance, count in zip(DISTANCES, rows["count"], strict=True):
            n = f"n < {FEWEST_WORDS}" if pd.isna(count) else f"n = {count:,.0f}"
            words = distance.replace(" to ", "–") if short else distance
            labels.append(f"{words}\n{n.removeprefix('n = ') if short else n}")
        axes.set_xticks(rows["place"], labels)
        axes.set(ylim=(0, 100), xlim=(-0.3, len(DISTANCES) - 0.7))
        axes.set_title(title, parse_math=False)
    for axes in panels[-columns:]:  # the lowest of each column
        axes.set_xlabel("Words apart, and n" if short else "Distance of the parent (words)")
    legend_below(figure, columns=len(PREDICTOR_STYLES))
    figure.supylabel("Accuracy (%)")
    return figure


def _distance_title(table: pd.DataFrame) -> str:
    """Write the title: heads and the nearest word at the smallest and the largest distance."""
    rows = table.dropna(subset=["head", "nearest"]).set_index("distance")
    rows = rows.reindex([distance for distance in DISTANCES if distance in rows.index])
    if not len(rows):
        return "Section 4.2 · Not measured"
    first, last = rows.iloc[0], rows.iloc[-1]
    return (
        f"Section 4.2 · Parents {rows.index[0]} word away: heads find {first['head']:.0f}%, the "
        f"nearest word of one class {first['nearest']:.0f}%; {rows.index[-1]} words: "
        f"{last['head']:.0f}% and {last['nearest']:.0f}%"
    )


@for_column
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
    strongest = table[["w_gain", "u_gain"]].max(axis=1).idxmax()
    layer, head = table.loc[strongest, ["layer", "head"]].astype(int)
    gain = table.loc[strongest, ["w_gain", "u_gain"]].max()
    return heat_maps(
        maps,
        f"Section 5 · Head {layer}-{head} adds most in the attention-only probe: {gain:.2f}",
        model,
        f"its weight times how much more {style.WEIGHT_NAMES[lens]} the right word gets",
        unit="Gain in score (log-odds)",
        norm=Normalize(-largest, largest),
        cmap=style.DIVERGING,
    )


def _bar_inches() -> float:
    """Return the height in inches of one bar's row."""
    return COLUMN_BAR_INCHES if style.in_column() else BAR_INCHES


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a bar per row with its name, its interval, its label and the paper's value.

    A row without a value has its name only.
    """
    rows = rows.reset_index(drop=True)
    bars = rows.dropna(subset="value")
    y = bars.index
    is_control = bars.get("is_control", pd.Series(False, index=bars.index)).astype(bool)
    colors = np.where(is_control, CONTROL_BAR, style.BAR)
    axes.barh(y, bars["value"], height=0.68, color=colors)
    draw_intervals(
        axes, bars["value_low"], bars["value_high"], y, color=style.INK, elinewidth=1.2,
        capsize=2.7, capthick=1.2,
    )  # fmt: skip
    axes.plot(  # an interval below it is seen
        bars["paper_value"], y, "D", color=style.ACCENT, markerfacecolor="none",
        markeredgewidth=1.4, zorder=4,
    )  # fmt: skip
    for position, label in bars["label"].items():
        axes.text(101.5, position, label, va="center")
    axes.set_yticks(rows.index, rows["name"])
    axes.set(xlim=(0, 100), ylim=(len(rows) - 0.5, -0.5))
    axes.xaxis.grid(True, color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
