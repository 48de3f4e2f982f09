"""The figure of several runs: attention by relative depth, best heads, claims that hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.plots.style import ACCENT, BAR, INK, MUTED, Style, canvas, theme

ROW = 0.24  # inches for one relation
PANEL = 32  # letters of a note that a panel is wide
LONGEST = 40  # characters of a run's name
LINE = 112  # characters in the width of the page
MOST_RELATIONS = 16  # as many as the paper has, where a treebank has none of the paper's
# Not those of the token types or the paper, and told apart with colour blindness (tested).
COLORS = ("#2F4B7C", "#E08E0B", "#7FB3B0", "#B79AD9", "#111111", "#F4C95D")
MARKERS = ("o", "s", "^", "v", "P", "X", "<")
SECTIONS = {
    "3.1": "relative position",
    "3.2": "special tokens",
    "3.3": "entropy",
    "4.2": "syntax",
    "4.3": "coreference",
    "5": "probes",
    "6": "clusters",
}
LAYER_PANELS = {
    "entropy": ("Entropy", "Share of uniform attention's"),
    "sep": ("Attention to the separator", "Average attention (fraction)"),
    "cls": ("Attention to the first token", "Average attention (fraction)"),
}


@theme()
def comparison(
    runs: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    claims: pd.DataFrame,
    best_heads: pd.DataFrame,
    note: str = "",
) -> Figure:
    """Draw several runs in one figure.

    Args:
        runs: the tables of each run by name, of which token_types and entropy are drawn, as
            means of each layer's heads over the layer's share of the depth.
        claims: section, and for each run ``<name> holds``.
        best_heads: relation and ``paper accuracy``, and for each run ``<name> accuracy``,
            ``ci_low``, ``ci_high`` and ``baseline`` (percent); the relations that the paper
            has are drawn.
        note: what else differs between the runs.
    """
    styles = _styles(runs)
    known = best_heads[best_heads["paper accuracy"].notna()]
    best_heads = known if len(known) else best_heads.head(MOST_RELATIONS)
    handles = _handles(styles)
    columns = max(1, LINE // (7 + max(len(handle.get_label()) for handle in handles)))
    rows_below = max(len(best_heads), claims["section"].nunique() + 2)
    heights = [0.25 * -(-len(handles) // columns), 2.6, ROW * rows_below + 0.8]
    figure = canvas(
        sum(heights),
        "Runs compared",
        "curves: mean of a layer's heads; bars: 95% intervals; boxes: claims of the paper",
        note,
    )
    figure.get_layout_engine().set(h_pad=0.08)
    rows = figure.add_gridspec(3, 1, height_ratios=heights)
    _legend(figure.add_subplot(rows[0]), handles, columns)
    above = rows[1].subgridspec(1, len(LAYER_PANELS)).subplots()
    for axes, (quantity, (title, unit)) in zip(above, LAYER_PANELS.items(), strict=True):
        curves = {name: relative_curve(tables, quantity) for name, tables in runs.items()}
        _curves(axes, curves, styles)
        axes.set(title=title, ylabel=unit)
    below = rows[2].subgridspec(1, 2, width_ratios=[1.75, 1])
    _accuracies(figure.add_subplot(below[0]), best_heads, styles)
    _verdicts(figure.add_subplot(below[1]), claims, styles)
    return figure


def relative_curve(tables: Mapping[str, pd.DataFrame], quantity: str) -> pd.Series:
    """Return a quantity by relative depth (the last layer: 1), without layers that lack it.

    A run without the table has an empty one.

    ``entropy`` is the mean entropy of a layer's heads as a share of that of uniform attention;
    ``sep`` and ``cls`` are the mean attention to that token.
    """
    table = tables.get("entropy" if quantity == "entropy" else "token_types")
    if table is None:
        return pd.Series(dtype=float)
    values = table[quantity] / (table["uniform"] if quantity == "entropy" else 1)
    by_layer = values.groupby(table["layer"]).mean()
    by_layer.index = by_layer.index / by_layer.index.max()
    return by_layer.dropna()


def _styles(names: Sequence[str]) -> dict[str, Style]:
    """Return a look for each run; colours and markers repeat together only after 42 runs."""
    return {
        name: Style(_short(name), COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)])
        for index, name in enumerate(names)
    }


def _short(name: str) -> str:
    """Return a name without its middle where it would take half of the page."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}"


def _curves(axes: Axes, curves: Mapping[str, pd.Series], styles: Mapping[str, Style]) -> None:
    for name, curve in curves.items():
        if curve.empty:  # of an empty line, the layout would not find the size
            continue
        style = styles[name]
        axes.plot(
            curve.index, curve, color=style.color, marker=style.marker, markersize=5.5,
            markeredgecolor="white", markeredgewidth=0.7, clip_on=False,
        )  # fmt: skip
    lacking = [styles[name].label for name, curve in curves.items() if curve.empty]
    if lacking:
        text = "none in these runs" if len(lacking) == len(curves) else f"none in {lacking[0]}"
        text += f" and {len(lacking) - 1} more" if 1 < len(lacking) < len(curves) else ""
        note = axes.text(
            0.03, 0.97, fill(text, PANEL), transform=axes.transAxes, va="top", color=MUTED,
            fontsize=8.5, parse_math=False,
        )  # fmt: skip
        note.set_in_layout(False)  # a long name would take the panels' room
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Layer, as a share of the depth")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])


def _accuracies(axes: Axes, table: pd.DataFrame, styles: Mapping[str, Style]) -> None:
    """Draw each relation's best heads with their intervals, the paper's, and fixed offsets."""
    y = np.arange(len(table))
    for index, (name, style) in enumerate(styles.items()):
        part = table.reindex(
            columns=[f"{name} {part}" for part in ("accuracy", "ci_low", "ci_high", "baseline")]
        )
        accuracy, low, high, baseline = part.to_numpy(float).T
        place = y + 0.5 * ((index + 0.5) / len(styles) - 0.5)
        axes.plot(baseline, place, "|", color=MUTED, markersize=5, markeredgewidth=1.4)
        axes.hlines(place, low, high, color=style.color, linewidth=1.1)
        axes.plot(
            accuracy, place, style.marker, color=style.color, markersize=5.5,
            markeredgecolor="white", markeredgewidth=0.6, zorder=3,
        )  # fmt: skip
    axes.plot(
        table["paper accuracy"], y, "D", color=ACCENT, markersize=5, markerfacecolor="none",
        markeredgewidth=1.2, zorder=2,
    )  # fmt: skip
    axes.set_yticks(y, table["relation"], parse_math=False)
    axes.set(
        title="Best head for each relation", xlabel="Accuracy (%)",
        xlim=(0, 100), ylim=(len(table) - 0.45, -0.55),
    )  # fmt: skip
    axes.hlines(y[:-1] + 0.5, 0, 100, color="#EDEDED", linewidth=0.8, zorder=0)
    axes.tick_params(axis="y", length=0)


def _verdicts(axes: Axes, claims: pd.DataFrame, styles: Mapping[str, Style]) -> None:
    """Draw how many claims of each section hold in each run, of those measured there."""
    holds = claims[[f"{name} holds" for name in styles]]
    sections = [*claims["section"].unique(), "all"]
    groups = [claims["section"] == section for section in sections[:-1]]
    groups.append(pd.Series(True, index=claims.index))
    yes = np.array([(holds[group] == "yes").sum() for group in groups])  # [section, run]
    out = ["not measured", "no evidence"]  # what random weights meet too is not counted
    measured = np.array([(~holds[group].isin(out)).sum() for group in groups])
    share = np.divide(yes, measured, out=np.full(yes.shape, np.nan), where=measured > 0)
    axes.pcolormesh(
        share, cmap=LinearSegmentedColormap.from_list("share", ["white", BAR]), vmin=0, vmax=1,
        edgecolors="white", linewidth=1.5,
    )  # fmt: skip
    for (row, column), count in np.ndenumerate(yes):
        text = f"{count}/{measured[row, column]}" if measured[row, column] else "–"
        weight = "bold" if row == len(sections) - 1 else "normal"
        axes.text(
            column + 0.5, row + 0.5, text, ha="center", va="center", weight=weight, fontsize=9
        )
    for column, style in enumerate(styles.values()):
        axes.plot(column + 0.5, -0.35, style.marker, color=style.color, markersize=8, clip_on=False)
    axes.axhline(len(sections) - 1, color=INK, linewidth=0.8)
    names = [f"{section} {SECTIONS.get(section, '')}".strip() for section in sections]
    axes.set_yticks(np.arange(len(sections)) + 0.5, names)
    axes.set(title="Claims that hold, of those measured", xticks=[], ylim=(len(sections), -0.8))
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)


def _handles(styles: Mapping[str, Style]) -> list[Line2D]:
    hollow = {"linestyle": "", "markerfacecolor": "none", "markeredgewidth": 1.3}
    return [
        *(
            Line2D([], [], color=style.color, marker=style.marker, markersize=6, label=style.label)
            for style in styles.values()
        ),
        Line2D([], [], marker="D", color=ACCENT, markersize=5, label="the paper", **hollow),
        Line2D([], [], marker="|", color=MUTED, markersize=7, label="best fixed offset", **hollow),
    ]


def _legend(axes: Axes, handles: Sequence[Line2D], columns: int) -> None:
    axes.set_axis_off()
    legend = axes.legend(
        handles=handles, loc="upper left", ncols=columns, borderpad=0, borderaxespad=0
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
