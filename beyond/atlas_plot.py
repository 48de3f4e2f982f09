"""The atlas of heads: a tile for each attention head, to share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.metrics.atlas import (
    BROAD_HEAD,
    COREFERENCE,
    INDUCTION,
    KINDS,
    MIXED,
    POSITION,
    PUNCTUATION,
    RELATION,
    SAME,
    SINK,
)
from helpers.plots.style import INK, MUTED, TITLE, theme

# Light enough for dark type, and at least 19 apart (CIE 1976) for deuteranopes; a tile has its name
# as well.  Kinds that only say where attention goes have no colour: the bar shows it.
COLORS = dict.fromkeys(KINDS, "#F7F7F7") | {
    RELATION: "#F2A93B",
    COREFERENCE: "#A694E0",
    INDUCTION: "#E5796A",
    SAME: "#FCEB9A",
    POSITION: "#3E9C8B",
    BROAD_HEAD: "#BDBDBD",
}
BAR_COLORS = {"special tokens": "#2F6DB5", "punctuation": "#8CBF3F", "previous and next": "#333333"}
WIDTH, TILE_HEIGHT = 7.5, 0.48  # inches
COLUMN_WIDTH, COLUMN_TILE_HEIGHT = 3.3, 0.24
MARGIN = 0.34  # of the numbers of layers, in inches
HEADING, LEGEND = 0.62, 0.68
BAR = 0.16  # of a tile's height
LETTER_WIDTH = 0.62  # of the size of the type
LARGEST_TYPE, SMALLEST_TYPE = 8.0, 5.0  # points; below the smallest, a tile has its label alone


@theme()
def atlas(table: pd.DataFrame, *, model: str, column: bool = False) -> Figure:
    """Draw the atlas of heads: layers are rows, heads are columns, colours are kinds.

    The bar at the bottom of a tile is all attention of a head: the parts that go to special tokens,
    to periods and commas, and to the previous and the next token; the rest goes elsewhere.

    Parameters
    ----------
    table : pandas.DataFrame
        What `helpers.metrics.atlas.head_atlas` returns.
    model : str
        Name of the run, for the subtitle.
    column : bool
        Whether the picture has the width of a column, with labels instead of names.

    Returns
    -------
    matplotlib.figure.Figure
        Its height grows with the number of layers.
    """
    layers = sorted(table["layer"].unique())
    heads = table["head"].max()
    width, tile_height = (COLUMN_WIDTH, COLUMN_TILE_HEIGHT) if column else (WIDTH, TILE_HEIGHT)
    height = HEADING + tile_height * len(layers) + LEGEND
    figure = Figure(figsize=(width, height))
    title_size = 8 if column else 11
    top = 1 - 0.08 / height
    figure.text(
        0.1 / width, top, atlas_title(table), va="top",
        fontsize=title_size, fontweight="bold", label=TITLE, wrap=True,
    )  # fmt: skip
    figure.text(0.1 / width, 1 - 0.4 / height, model, va="top", fontsize=6.5, color=MUTED)
    tiles_width = width - MARGIN - 0.08
    axes = figure.add_axes(
        (MARGIN / width, LEGEND / height, tiles_width / width, tile_height * len(layers) / height)
    )
    axes.set(xlim=(0.5, heads + 0.5), ylim=(len(layers) + 0.5, 0.5))
    axes.set_yticks(range(1, len(layers) + 1), layers, fontsize=6.5)
    axes.tick_params(length=0, pad=2)
    axes.set_xticks([])
    axes.set_ylabel("layer", fontsize=6.5, labelpad=1)
    for side in axes.spines.values():
        side.set_visible(False)
    tile = (72 * tiles_width / heads, 72 * tile_height * (1 - BAR))  # points
    texts = {head.Index: tile_texts(head, tile, names=not column) for head in table.itertuples()}
    size = min(_largest_type(lines, tile) for lines in texts.values())
    for head in table.itertuples():
        row = layers.index(head.layer) + 1
        _draw_tile(axes, head, row)
        axes.text(
            head.head, row - BAR / 2, "\n".join(texts[head.Index]), ha="center", va="center",
            fontsize=size, color=INK, linespacing=1.1,
        )  # fmt: skip
    _draw_legend(figure, table, ncols=3 if column else 6)
    return figure


def _draw_tile(axes: Axes, head: Any, row: int) -> None:
    """Draw the background of a tile, and its bar."""
    x = head.head - 0.48
    fill = Rectangle((x, row - 0.48), 0.96, 0.96, facecolor=COLORS[head.kind], label="tile")
    if head.kind == BROAD_HEAD:
        fill.set(hatch="....", edgecolor="#D0D0D0", linewidth=0)
    axes.add_patch(fill)
    for name, share in attention_parts(head._asdict()).items():
        color = BAR_COLORS.get(name, "#E0E0E0")
        axes.add_patch(
            Rectangle((x, row + 0.48 - BAR), 0.96 * share, BAR, facecolor=color, linewidth=0)
        )
        x += 0.96 * share


def attention_parts(head: Mapping[Any, Any]) -> dict[str, float]:
    """Divide the attention of a head into the parts of its bar, which sum to one.

    Parameters
    ----------
    head : mapping
        A row of the atlas.

    Returns
    -------
    dict of str to float
        The share of each of `BAR_COLORS`, and of the rest.  A token can be of two kinds; then the
        later ones, and the rest, are shortened.
    """
    value = {name: number if number > 0 else 0.0 for name, number in head.items()
             if isinstance(number, float | int)}  # fmt: skip
    special = value.get("cls", 0.0) + value.get("sep", 0.0)
    shares = {
        "special tokens": max(special, value.get("first", 0.0)),
        "punctuation": value.get("punctuation", 0.0),
        "previous and next": value.get("previous", 0.0) + value.get("next", 0.0),
        "rest": 1.0,
    }
    parts = {}
    remaining = 1.0
    for name, share in shares.items():
        parts[name] = min(share, remaining)
        remaining -= parts[name]
    return parts


def _draw_legend(figure: Figure, table: pd.DataFrame, *, ncols: int) -> None:
    """Explain the colours of tiles, and below those of bars."""
    colors = {kind: COLORS[kind] for kind in KINDS if kind in set(table["kind"])}
    named = {kind: color for kind, color in colors.items() if color != COLORS[MIXED]}
    for height, entries in ((0.46, named), (0.16, BAR_COLORS)):
        handles = [Rectangle((0, 0), 1, 1, facecolor=color) for color in entries.values()]
        figure.legend(
            handles, list(entries), loc="center left", ncols=ncols, frameon=False,
            fontsize=6.5, handlelength=0.9, columnspacing=0.9, handletextpad=0.3,
            bbox_to_anchor=(0.0, height / figure.get_figheight()),
        )  # fmt: skip


def atlas_title(table: pd.DataFrame) -> str:
    """Count the heads of the commonest kinds."""
    words = {
        RELATION: "find a relation",
        COREFERENCE: "find antecedents",
        INDUCTION: "do induction",
        SAME: "look at the same token",
        POSITION: "look a step away",
        SINK: "look at a special token",
        PUNCTUATION: "look at periods and commas",
        BROAD_HEAD: "are broad",
    }
    counts = table.loc[table["kind"] != MIXED, "kind"].value_counts()
    if counts.empty:
        return f"None of {len(table)} heads does one thing by our thresholds"
    parts = [f"{count} {words[name]}" for name, count in counts.head(3).items()]
    return f"Of {len(table)} heads, {', '.join(parts)}"


def tile_texts(head: Any, tile: tuple[float, float], *, names: bool) -> list[str]:
    """Write the lines of a tile: its label and name, and its number, as far as they fit.

    Parameters
    ----------
    head : named tuple
        A row of the atlas.
    tile : (float, float)
        Width and height in points.
    names : bool
        Whether there is more than the label.

    Returns
    -------
    list of str
        At most three lines.
    """
    label = f"{head.layer}-{head.head}"
    name = head.name.replace(" to ", " → ")
    number = head.number.replace("nearest ", "")
    candidates: list[list[str]] = [[label]]
    if names and head.kind == MIXED:
        candidates = [[label, number], [label, *number.split(" ", 1)]]
    elif names:
        in_lines = name.replace(" →", " →\n").replace(" token", "\ntoken").split("\n")
        in_lines = [line.strip() for line in in_lines]
        candidates = [[label, name, number], [label, *in_lines, number]]
        candidates += [[label, name], [label, *in_lines]]
    for lines in candidates:
        if _largest_type(lines, tile) >= SMALLEST_TYPE:
            return lines
    return [label]


def _largest_type(lines: list[str], tile: tuple[float, float]) -> float:
    """Compute the largest type, in points, with which lines fit into a tile."""
    width, height = tile
    longest = max(map(len, lines))
    fitting = min(width / (LETTER_WIDTH * longest), height / (1.15 * len(lines)))
    return min(LARGEST_TYPE, fitting)
