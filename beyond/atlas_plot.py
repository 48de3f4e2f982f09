"""The atlas of heads: a tile for each attention head, to share."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.metrics.atlas import (
    BROAD_HEAD,
    COREFERENCE,
    KINDS,
    OTHER,
    POSITION,
    PUNCTUATION,
    RELATION,
    SINK,
)
from helpers.plots import style
from helpers.plots.style import MUTED, TITLE, theme

SIZE = (7.5, 3.9375)  # inches: 1,200 by 630 pixels, as sites preview a link
# Light enough for dark type on them; a tile has its name as well.
COLORS = {
    RELATION: "#C9B8EC",
    COREFERENCE: "#F3B8D2",
    POSITION: "#A9DDD0",
    SINK: "#A8CDE8",
    PUNCTUATION: "#B5E2B0",
    BROAD_HEAD: "#F4DDA6",
    OTHER: "#F2F2F2",
}
TITLE_INCHES = 0.62
LEGEND_INCHES = 0.3
MARGIN_INCHES = 0.32  # of the numbers of layers
# Shares of the size of the type.
LETTER_WIDTH = 0.6
LINE_HEIGHT = 1.2
# Sizes of type that are tried, in points, the largest first.  Below the last, colours have to do.
SIZES_OF_TYPE = [size / 4 for size in range(32, 9, -1)]
# Points of a tile's height: from here on it has its number, too; below, a single line.
LINES_FROM = 34
ONE_LINE_BELOW = 14


@theme()
def atlas(table: pd.DataFrame, *, model: str = "") -> Figure:
    """Draw the atlas of heads: layers are rows, heads are columns, colours are kinds.

    Parameters
    ----------
    table : pandas.DataFrame
        What `helpers.metrics.atlas.head_atlas` returns.
    model : str, optional
        Name of the run, for the subtitle.

    Returns
    -------
    matplotlib.figure.Figure
        It is 1,200 pixels wide and 630 high.
    """
    width, height = SIZE
    figure = Figure(figsize=SIZE)
    heading = {"fontsize": 11, "fontweight": "bold", "label": TITLE}
    figure.text(0.1 / width, 1 - 0.1 / height, atlas_title(table), va="top", **heading)
    figure.text(0.1 / width, 1 - 0.36 / height, model, va="top", fontsize=8, color=MUTED)
    layers, heads = table[["layer", "head"]].max()
    axes_width = width - MARGIN_INCHES - 0.1
    axes_height = height - TITLE_INCHES - LEGEND_INCHES
    corner = (MARGIN_INCHES / width, LEGEND_INCHES / height)
    axes = figure.add_axes((*corner, axes_width / width, axes_height / height))
    axes.set(xlim=(0.5, heads + 0.5), ylim=(layers + 0.5, 0.5))
    axes.set_axis_off()
    tile = (72 * axes_width / heads, 72 * axes_height / layers)  # points
    texts, size = _tile_texts(table, tile)
    for head, text in zip(table.itertuples(), texts, strict=True):
        axes.add_patch(
            Rectangle(
                (head.head - 0.5, head.layer - 0.5), 1, 1,
                facecolor=COLORS[head.kind], edgecolor="white", linewidth=min(1.5, tile[1] / 12),
            )
        )  # fmt: skip
        axes.text(
            head.head, head.layer, text, ha="center", va="center", fontsize=size,
            color=style.MUTED if head.kind == OTHER else style.INK, linespacing=1.15,
        )  # fmt: skip
    present_kinds = [name for name in KINDS if (table["kind"] == name).any()]
    handles = [Rectangle((0, 0), 1, 1, facecolor=COLORS[name]) for name in present_kinds]
    figure.legend(
        handles, present_kinds, loc="lower left", ncols=len(present_kinds), fontsize=7,
        handlelength=1, bbox_to_anchor=(MARGIN_INCHES / width, 0.01),
    )  # fmt: skip
    return figure


def atlas_title(table: pd.DataFrame) -> str:
    """Count the heads of the commonest kinds."""
    named = table[table["kind"] != OTHER]
    if named.empty:
        return f"None of {len(table)} heads does one thing by our thresholds"
    counts = named["kind"].value_counts()
    words = {
        RELATION: "find a relation",
        COREFERENCE: "finds antecedents" if counts.get(COREFERENCE) == 1 else "find antecedents",
        POSITION: "look a step away",
        SINK: "look at a special token",
        PUNCTUATION: "look at periods and commas",
        BROAD_HEAD: "are broad",
    }
    parts = [f"{count} {words[name]}" for name, count in counts.head(3).items()]
    return f"Of {len(table)} heads, {', '.join(parts)}"


def _tile_texts(table: pd.DataFrame, tile: tuple[float, float]) -> tuple[list[str], float]:
    """Write the text of each tile, and find the largest type with which all of them fit."""
    for size in SIZES_OF_TYPE:
        texts = [_tile_text(head, tile, size) for head in table.itertuples()]
        if all(_fits(text, tile, size) for text in texts):
            return texts, size
    labels = [f"{head.layer}-{head.head}" for head in table.itertuples()]
    width, height = tile
    letters = max(map(len, labels))
    return labels, min(SIZES_OF_TYPE[-1], width / (LETTER_WIDTH * letters), height / LINE_HEIGHT)


def _tile_text(head: Any, tile: tuple[float, float], size: float) -> str:
    """Write a tile's label, name and number in as many lines as it has room for."""
    width, height = tile
    label = f"{head.layer}-{head.head}"
    letters = max(int(width / (LETTER_WIDTH * size)), 1)
    fill = partial(textwrap.wrap, width=letters, break_long_words=False)
    if head.kind == OTHER:
        return "\n".join([label, *fill(head.number)]) if height >= LINES_FROM else label
    if height < ONE_LINE_BELOW:
        return f"{label} {head.name}"
    if height < LINES_FROM:
        return "\n".join(fill(f"{label} {head.name}"))
    return "\n".join([label, *fill(head.name), *fill(head.number)])


def _fits(text: str, tile: tuple[float, float], size: float) -> bool:
    """Tell if a text in a size of type, in points, is no larger than a tile."""
    width, height = tile
    lines = text.splitlines()
    longest = max(map(len, lines))
    return LETTER_WIDTH * size * longest <= width and LINE_HEIGHT * size * len(lines) <= height
