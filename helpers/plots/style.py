"""The theme, palette, page format, labels, heat map and file format that all figures share.

A figure has one layout: as wide as a column of a paper (`WIDTH`), with type of at least 6.5 points.
On a screen it is shown at `SCREEN_DPI`, where its type is as large as that of the text.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import font_manager, rc_params_from_file
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from helpers.files import write_atomic
from helpers.metrics.heads import layer_number

HeadValues = Float[np.ndarray, "layer head"]
Rows = Float[np.ndarray, " row"] | pd.Series
SpecialTokens = Mapping[str, str | None]  # a model's tokens for [CLS] ("cls") and [SEP] ("sep")

WIDTH = 3.3  # inches, of a column of a paper
SCREEN_DPI = 150  # of a figure in a notebook
TITLE_LINE = 0.145  # inches
NO_GLYPH = "?"  # stands for a character that no installed font can draw
TITLE = "title"  # labels the title of a figure
# The name of the weights of a map, by lens; the second is of Kobayashi et al. (2020).
WEIGHT_NAMES = {"attention": "attention", "norm": "norm-weighted attention"}


class Style(NamedTuple):
    """Label, colour and marker of one series; the marker repeats the information of the colour."""

    label: str
    color: str
    marker: str


Styles = Mapping[str, Style]

# Distinguishable with every type of colour blindness, and 3:1 or more against white.
TOKEN_STYLES = {
    "cls": Style("{cls}", "#0173B2", "o"),
    "sep": Style("{sep}", "#D55E00", "s"),
    "punctuation": Style("periods and commas", "#00A457", "^"),
    "other": Style("other tokens", "#555555", "D"),
}
# The first token is drawn if it is no special token.
ALL_STYLES = {"first": Style("the first token", "#7B3F00", "X"), **TOKEN_STYLES}
TOKEN_COLORS = {token_type: style.color for token_type, style in ALL_STYLES.items()}

CONTROL_STYLES = {  # by their names in the column ``model``
    "random": Style("random weights", "#8A8A8A", "v"),
    "entropy-matched": Style("random weights, entropy-matched", "#1A1A1A", "P"),
}

INK = "#222222"
MUTED = "#666666"
BAR = "#8FA8C2"
ACCENT = "#C2185B"  # the paper's numbers, and nothing else
RIGHT = "#5E35B1"  # a head's choice in an example
WRONG = "#B26A00"  # lighter than the right choice, also in a grey print
# Series that are neither types of tokens nor the paper's numbers: runs, methods, interventions.
SERIES_COLORS = ("#2F4B7C", "#E08E0B", "#7FB3B0", "#B79AD9", "#111111", "#F4C95D")
# Colour scales of heat maps, in which zero is white.  They have an odd number of colours, so that
# the middle of a scale is one of them.
SEQUENTIAL_COLORS = [  # white, then seaborn's mako_r
    *("#ffffff", "#b7e6c5", "#82d8b0", "#50c6ad", "#3cb2ad", "#359baa", "#3485a5"),
    *("#3670a0", "#3b589a", "#414184", "#3c3162", "#312140", "#1f1220"),
]
SEQUENTIAL = LinearSegmentedColormap.from_list("from_white", SEQUENTIAL_COLORS, 257)
DIVERGING = LinearSegmentedColormap.from_list(
    "purple_to_orange", ["#3B0F70", "#A08CCB", "#FFFFFF", "#F0A24A", "#7F3B08"], 257
)
FRAME = [withStroke(linewidth=3.2, foreground="white")]  # a frame is seen in dark cells, too
# Layers: the higher one is, the darker is its colour.
LAYER_COLORS = LinearSegmentedColormap.from_list("layers", SEQUENTIAL_COLORS[1:], 257)

RC_PARAMS = rc_params_from_file(
    Path(__file__).with_name("figures.mplstyle"), use_default_template=False
)
FONTS = RC_PARAMS["font.family"]  # the first that is installed and has a character draws it
INSTALLED_FONTS = [name for name in FONTS if name in font_manager.fontManager.get_font_names()]
DASHED = {"dashes": (4, 3), "linewidth": 0.8, "zorder": 1.5}  # what chance would give
HALO = [withStroke(linewidth=2, foreground="white")]  # sets a text off from what is below it
LABEL_STEPS = 48  # places for a label from the left to the right of the axes, and upwards


@contextmanager
def theme() -> Iterator[None]:
    """Apply the theme of all figures inside the context, or inside the decorated function."""
    with plt.rc_context({**RC_PARAMS, "font.family": INSTALLED_FONTS}):
        yield


def missing_glyphs(words: Iterable[str]) -> dict[int, str]:
    """Find the characters that no font can draw, with one warning that names the first ones.

    Parameters
    ----------
    words : iterable of str
        The words of a figure.

    Returns
    -------
    dict of int to str
        `NO_GLYPH` for each of these characters, as a table for ``str.translate``.
    """
    missing = set(map(ord, "".join(words)))
    for family in INSTALLED_FONTS:
        font_file = font_manager.fontManager.findfont(family)
        missing -= set(font_manager.get_font(font_file).get_charmap())
    if missing:
        letters = "".join(map(chr, sorted(missing)[:5]))
        warnings.warn(
            f"no installed font draws {len(missing)} characters of this figure, such as {letters}, "
            f"which become {NO_GLYPH}; install a font of their script, such as Noto Sans CJK "
            "(Debian: fonts-noto-cjk)",
            stacklevel=2,
        )
    return dict.fromkeys(missing, NO_GLYPH)


def canvas(height: float, title: str, *notes: str) -> Figure:
    """Create an empty figure with a title above the axes, and notes below them.

    Parameters
    ----------
    height : float
        Inches for the axes.
    title : str
        What is seen, in one sentence.
    *notes : str
        The model, and what marks mean; dots separate them, and empty ones are left out.
    """
    heading = fill(title, 44)
    note = fill(" · ".join(filter(None, notes)), 60)
    above = TITLE_LINE * (heading.count("\n") + 1) + 0.08
    below = 0.115 * (note.count("\n") + 1) + 0.06
    total = above + height + below
    figure = plt.figure(figsize=(WIDTH, total), layout="constrained")
    plt.close(figure)  # otherwise a notebook would display it a second time
    rect = (0.0, below / total, 1.0, height / total)
    cast("ConstrainedLayoutEngine", figure.get_layout_engine()).set(rect=rect, w_pad=0.02)
    title_font = {"fontsize": 8, "fontweight": "bold"}
    figure.text(0.01, 1 - 0.03 / total, heading, va="top", label=TITLE, **title_font)
    figure.text(0.01, 0.03 / total, note, va="bottom", fontsize=6.5, color=MUTED)
    return figure


def title_of(figure: Figure) -> str:
    """Return the title of a figure that `canvas` made; empty for others."""
    titles = [text.get_text() for text in figure.texts if text.get_label() == TITLE]
    return " ".join("".join(titles).split())


def legend_below(figure: Figure, columns: int) -> None:
    """Put one legend of all panels of a figure below them; a label has one entry."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    add_legend(figure, list(handles.values()), columns)


def add_legend(figure: Figure, handles: Sequence[Artist], columns: int) -> None:
    """Put a legend of labelled marks between the axes and the notes of a figure of `canvas`."""
    layout = cast("ConstrainedLayoutEngine", figure.get_layout_engine())
    x, bottom, width, height = layout.get()["rect"]
    location = {"loc": "lower left", "bbox_to_anchor": (0.01, bottom), "borderaxespad": 0}
    legend = figure.legend(handles=handles, ncols=columns, **location)
    share = legend.get_window_extent().height / figure.bbox.height + 0.01
    layout.set(rect=(x, bottom + share, width, height - share))


def label_ends(axes: Axes, *, gap: float) -> None:
    """Write the label of each line at its right end, in its colour, instead of a legend.

    Parameters
    ----------
    axes : Axes
        Its limits must be final.
    gap : float
        The least distance between two labels, as a share of the height of the axes.
    """
    from scipy.optimize import isotonic_regression

    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    to_axes = axes.transScale + axes.transLimits
    ends = [to_axes.transform(np.asarray(line.get_xydata())[-1])[1] for line in lines]
    order = np.argsort(ends)
    steps = gap * np.arange(len(lines))
    heights = isotonic_regression(np.take(ends, order) - steps).x + steps
    options = {"transform": axes.transAxes, "va": "center"}
    for number, height in zip(order, heights, strict=True):
        line = lines[number]
        axes.text(1.02, height, line.get_label(), color=line.get_color(), **options)


def label_points(
    axes: Axes, points: Float[np.ndarray, "point 2"], labelled: Sequence[int], labels: Sequence[str]
) -> None:
    """Write labels next to some points, each with a thin line to its point.

    A label is put inside the axes, near its point, and not over earlier labels.  It covers a point
    only if there is no other place, or, among many points, no other place nearby.

    Parameters
    ----------
    axes : Axes
        Its limits must be final, because distances are measured on the page.
    points : array, shape (point, 2)
        All points that are drawn, in data coordinates.
    labelled : sequence of int
        Indices of the points to label.
    labels : sequence of str
        Their labels, in the same order.
    """
    # This settles the layout, which decides where points are.
    cast("Figure", axes.figure).draw_without_rendering()
    pixels = axes.figure.dpi / 72  # per point
    markers = axes.transData.transform(points)
    radius = 3 * pixels
    leader = {"arrowstyle": "-", "linewidth": 0.7, "color": MUTED, "shrinkA": 0, "shrinkB": 3}
    options = {"textcoords": "offset points", "ha": "center", "va": "center", "zorder": 5}
    options |= {"arrowprops": leader, "in_layout": False, "path_effects": HALO}
    # What a covered marker costs, in pixels of distance; among many points, lines would be long.
    covering_cost = 1_000 if len(points) <= 200 else 6
    occupied = [Bbox([marker, marker]).padded(radius) for marker in markers[labelled]]
    for index, label in zip(labelled, labels, strict=True):
        note = axes.annotate(label, points[index], xytext=(0, 0), **options)
        text_size = np.asarray(Text.get_window_extent(note).size)  # without the line
        size = text_size + 3 * pixels  # with a margin
        lefts = np.linspace(axes.bbox.x0, axes.bbox.x1 - size[0], LABEL_STEPS)
        bottoms = np.linspace(axes.bbox.y0, axes.bbox.y1 - size[1], LABEL_STEPS)
        to_centre = size / 2 - markers[index]  # from the corner of a label at the marker
        costs = {}
        for corner in product(lefts, bottoms):
            box = Bbox.from_bounds(*corner, *size)
            n_covered = box.padded(radius).count_contains(markers)
            cost = np.hypot(*(box.min + to_centre)) + covering_cost * n_covered
            costs[box] = cost + 100_000 * box.count_overlaps(occupied)
        best = min(costs, key=lambda box: costs[box])
        note.set_position((best.min + to_centre) / pixels)
        occupied.append(best)


def draw_curve(
    axes: Axes, table: pd.DataFrame, x: str, y: str, series_style: Style, **options: Any
) -> None:
    """Draw a column of a table by another one, with a band if the table has its interval.

    Parameters
    ----------
    axes : Axes
        The axes to draw on.
    table : pandas.DataFrame
        One row per point, in the order of the line.
    x, y : str
        The columns to draw; the bounds of the interval are ``<y>_low`` and ``<y>_high``.
    series_style : Style
        Label, colour and marker.
    **options
        Further options of ``Axes.plot``.
    """
    label, color, marker = series_style
    size = 3.5 if len(table) <= 16 else 2
    options = {"markersize": size, "markeredgewidth": 0} | options
    axes.plot(table[x], table[y], color=color, marker=marker, label=label, **options)
    if f"{y}_low" in table:
        low = table[f"{y}_low"]
        high = table[f"{y}_high"]
        axes.fill_between(table[x], low, high, color=color, alpha=0.2, linewidth=0)


def draw_intervals(axes: Axes, low: Rows, high: Rows, y: Rows, **options: Any) -> None:
    """Draw horizontal intervals, wherever their values are, with options of ``Axes.errorbar``."""
    axes.errorbar((low + high) / 2, y, xerr=(high - low) / 2, fmt="none", **options)


def panel_grid(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """Make panels row by row, with options of ``Figure.subplots``; the last row may be shorter."""
    rows = -(-count // columns)
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in grid[count:]:
        axes.remove()
    return list(grid[:count])


def heat_maps(
    maps: Mapping[str, HeadValues],
    title: str,
    *notes: str,
    unit: str,
    norm: Normalize,
    cmap: Colormap = SEQUENTIAL,
    layer_numbers: Sequence[int] = (),
) -> Figure:
    """Draw heat maps of one value per head next to each other on one colour scale.

    Layers are from top to bottom, and heads from left to right.

    Parameters
    ----------
    maps : mapping of str to array, shape (layer, head)
        The values by the title of their panel, which may have several lines.
    title, *notes : str
        The texts above and below the figure.
    unit : str
        Label of the colour scale.
    norm : Normalize
        The colour scale.
    cmap : Colormap, optional
        The colours of the scale.
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1; all if there are none.
    """
    layers, heads = next(iter(maps.values())).shape
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    titles = []
    for name in maps:
        titles.append("\n".join(fill(line, 54 // columns) for line in name.splitlines()))
    title_height = 0.13 * (1 + max(text.count("\n") for text in titles))
    map_height = np.clip(2.7 / columns * layers / heads, 0.7, 1.3)
    figure = canvas(rows * (map_height + title_height) + 0.75, title, *notes)
    panels = panel_grid(figure, len(maps), columns, sharex=True, sharey=True)
    extent = (0.5, heads + 0.5, layers + 0.5, 0.5)
    colors = cmap.with_extremes(bad="#F0F0F0")
    rows_with_ticks = counting_ticks(layers, 6)
    names = [str(layer_number(tick - 1, layer_numbers)) for tick in rows_with_ticks]
    for axes, text, values in zip(panels, titles, maps.values(), strict=True):
        axes.imshow(values, colors, norm, aspect="auto", interpolation="nearest", extent=extent)
        axes.set_title(text)
        axes.set_xticks(counting_ticks(heads, 12 // columns))
        axes.set_yticks(rows_with_ticks, names)
    for axes in panels[-columns:]:
        axes.tick_params(labelbottom=True)  # also where the last row ends before this column
        axes.set_xlabel("Head")
    figure.supylabel("Layer")
    scale = {"location": "top", "aspect": 40, "pad": 0.015, "format": "{x:g}"}
    figure.colorbar(panels[0].images[0], ax=panels, label=unit, **scale)
    return figure


def counting_ticks(count: int, max_ticks: int = 12) -> list[int]:
    """List 1, ..., ``count``, thinned evenly to at most ``max_ticks`` ticks."""
    step = -(-count // max_ticks)
    return list(range(step, count + 1, step))


@theme()
def save_figure(
    figure: Figure, folder: Path, name: str, *, formats: Collection[str] = ("png",)
) -> Path:
    """Write a figure as PNG and in other formats.

    No file holds a date or a random identifier.  A file is written completely or not at all.

    Parameters
    ----------
    figure : Figure
        The figure.
    folder : Path
        Created if it does not exist.
    name : str
        File name without suffix.
    formats : collection of str
        Also "svg" and "pdf", as wide as the PNG.

    Returns
    -------
    Path
        The path of the PNG.

    Raises
    ------
    StoreError
        If the folder cannot be written to.
    """
    drawn = BytesIO()
    dpi = 1200 / figure.get_figwidth()
    figure.savefig(drawn, dpi=dpi)
    figure.set_layout_engine("none")  # it takes most of the time, and is settled
    # A PNG of 256 colours has a third of the size.  Of the methods, this one leaves rare colours
    # unchanged.
    image = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    png = BytesIO()
    image.save(png, "png", optimize=True)
    path = folder / f"{name}.png"
    write_atomic(path, png.getvalue())
    title = title_of(figure) or name  # screen readers and browsers show it
    dates = {"svg": "Date", "pdf": "CreationDate"}
    for suffix in dates.keys() & set(formats):
        drawing = BytesIO()
        metadata = {dates[suffix]: None, "Creator": None, "Title": title}
        figure.savefig(drawing, dpi=dpi, format=suffix, metadata=metadata)
        write_atomic(path.with_suffix(f".{suffix}"), drawing.getvalue())
    return path
