"""The theme, palette, page format, heat map and file format that all figures share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from PIL import Image

from helpers.files import write_atomic

HeadValues = Float[np.ndarray, "layer head"]
SpecialTokens = Mapping[str, str | None]  # a model's tokens for [CLS] ("cls") and [SEP] ("sep")

WIDTH = 9.0  # inches: shown 900 pixels wide, 10-point type is 14 pixels high
COLUMN_WIDTH = 3.3  # inches, of a column of a paper
COLUMN_TYPE = 7.0  # points, size of the type in a figure for a column
MAX_COLUMNS = 5  # heat maps in a row
TITLE_LETTERS_IN_ROW = 95  # of the titles of a row of heat maps together
MAP_TITLE_LETTERS = 24  # of a line of the title of a heat map, in a figure for a column
MAP_COLUMNS = 2  # the same in a figure for a column
LEFT_MARGIN = 0.1  # inches, of titles
TEXT_WIDTH = 0.96 * (WIDTH - 2 * LEFT_MARGIN)  # the same text is wider at some resolutions
TITLE_FONT = {"fontsize": 12.5, "fontweight": "bold"}
TITLE_LINE = 0.21  # inches
SUBTITLE_FONT = {"fontsize": 9.6}
SUBTITLE_LINE = 0.17  # inches
NOTE_LINE = 0.15  # inches
MANY_POINTS = 16  # of a curve: with more of them, its markers are small
SMALL_MARKER = 4.5  # points
LEGEND_HANDLE = 0.22  # inches, with its gaps
LETTER_WIDTH = 0.55  # of the average letter, in units of the size of the type
DPI = 160
SCREEN_DPI = 96  # of a figure in a notebook
SVG_DPI = 96  # of parts with thousands of points, which are pixels in an SVG, too
NO_GLYPH = "?"  # stands for a character that no installed font can draw
INSTALLABLE_FONT = "Noto Sans CJK (Debian: fonts-noto-cjk)"
HEADING = "heading"  # labels the texts that a paper has in its caption instead
# The name of the weights of a map, by lens; the second is of Kobayashi et al. (2020).
WEIGHT_NAMES = {"attention": "attention", "norm": "norm-weighted attention"}


class Style(NamedTuple):
    """Label, colour and marker of one series; the marker repeats the information of the colour."""

    label: str
    color: str
    marker: str


Styles = Mapping[str, Style]

# Distinguishable with every type of colour blindness, and 3:1 or more against white (tested).
TOKEN_STYLES = {
    "cls": Style("{cls}", "#0173B2", "o"),
    "sep": Style("{sep}", "#D55E00", "s"),
    "punctuation": Style("periods and commas", "#00A457", "^"),
    "other": Style("other tokens", "#555555", "D"),
}
FIRST_TOKEN = Style("the first token", "#7B3F00", "X")  # drawn if it is no special token
ALL_STYLES = {"first": FIRST_TOKEN, **TOKEN_STYLES}
TOKEN_COLORS = {token_type: style.color for token_type, style in ALL_STYLES.items()}
ATTENDED = {
    token_type: style._replace(label=f"to {style.label}")
    for token_type, style in ALL_STYLES.items()
}

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
DIVERGING_COLORS = ["#3B0F70", "#A08CCB", "#FFFFFF", "#F0A24A", "#7F3B08"]
DIVERGING = LinearSegmentedColormap.from_list("purple_to_orange", DIVERGING_COLORS, 257)

FRAME = [withStroke(linewidth=3.2, foreground="white")]  # a frame is seen in dark cells, too
NO_VALUE = "#F0F0F0"  # of cells without a value
# Layers: the higher one is, the darker is its colour.
LAYER_COLORS = LinearSegmentedColormap.from_list("layers", SEQUENTIAL_COLORS[1:], 257)

# DejaVu Sans comes with matplotlib, so Latin, Greek, Cyrillic and Arabic are the same everywhere.
# For other scripts, the first of these fonts that is installed and has the character is used.
FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAexGothic", "PingFang SC",
    "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
    "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai",
    "Noto Sans Arabic", "Noto Sans Ethiopic", "Nirmala UI", "Lohit Devanagari", "FreeSans",
    "Arial Unicode MS", "Unifont",
)  # fmt: skip
INSTALLED_FONTS = [name for name in FONTS if name in font_manager.fontManager.get_font_names()]

RC_PARAMS = {
    "figure.figsize": (WIDTH, WIDTH),  # the height is that of each figure
    "font.size": 8.5,  # of texts in the axes and of notes
    "figure.labelsize": 9.6,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "text.color": INK,
    "xtick.minor.size": 0,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.columnspacing": 1.6,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.hashsalt": "attention",  # identifiers in the file are random without it
    "pdf.fonttype": 42,  # TrueType, because publishers refuse matplotlib's default, Type 3
}
COLUMN_RC_PARAMS = {
    **RC_PARAMS,
    "figure.figsize": (COLUMN_WIDTH, COLUMN_WIDTH),
    "font.size": COLUMN_TYPE,
    "figure.labelsize": COLUMN_TYPE,
    "axes.titlesize": COLUMN_TYPE,
    "axes.labelsize": COLUMN_TYPE,
    "xtick.labelsize": COLUMN_TYPE,
    "ytick.labelsize": COLUMN_TYPE,
    "legend.fontsize": COLUMN_TYPE,
    "axes.linewidth": 0.6,
    "axes.titlepad": 3,
    "axes.labelpad": 2,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2,
    "ytick.major.pad": 2,
    "legend.columnspacing": 0.4,
    "legend.handlelength": 1.0,
    "legend.handletextpad": 0.3,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
}
WHITE_EDGES = {"markeredgecolor": "white", "markeredgewidth": 0.75}  # of markers on lines


@contextmanager
def theme(rc_params: Mapping[str, Any] = RC_PARAMS) -> Iterator[None]:
    """Apply the theme of all figures inside the context, or inside the decorated function."""
    import seaborn as sns  # late: it takes a second to import, and the viewer shares the colours

    page: dict[Any, Any] = {**rc_params, "font.family": INSTALLED_FONTS}
    with sns.plotting_context("paper"), sns.axes_style("ticks"), plt.rc_context(page):
        yield


def for_column(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorate a function that draws a figure: it gets the theme and a second format.

    The figure's ``draw_for_column`` draws it again for a column of a paper: `COLUMN_WIDTH` wide,
    with type of `COLUMN_TYPE`, without title, subtitle and footnote.
    """
    draw_column = theme(COLUMN_RC_PARAMS)(draw)

    @wraps(draw)
    @theme()
    def draw_page(*tables: Any, **options: Any) -> Figure:
        figure = cast("Any", draw(*tables, **options))
        figure.draw_for_column = partial(draw_column, *tables, **options)
        return figure

    return draw_page


def in_column() -> bool:
    """Say whether a figure is drawn for a column of a paper."""
    return plt.rcParams["figure.figsize"][0] == COLUMN_WIDTH


def page_width() -> float:
    """Return the width in inches of the figure that is drawn: of a page or of a column."""
    return COLUMN_WIDTH if in_column() else WIDTH


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
            f"which become {NO_GLYPH}; install a font of their script, such as {INSTALLABLE_FONT}",
            stacklevel=2,
        )
    return dict.fromkeys(missing, NO_GLYPH)


def canvas(height: float, title: str, *subtitles: str, note: str = "") -> Figure:
    """Create an empty figure with a title, subtitle and footnote.

    Parameters
    ----------
    height : float
        Inches for the axes, between the subtitle and the footnote.
    title, note : str
        The title and the footnote.  A figure for a column has neither them nor a subtitle.
    *subtitles : str
        The parts of the subtitle, which a dot separates; empty ones are left out.
    """
    figure = plt.figure(figsize=(page_width(), height), layout="constrained")
    plt.close(figure)  # otherwise a notebook would display it a second time
    if in_column():
        _set_margins(figure, height, side=0.04, top=0.03, bottom=0.05)
        return figure
    title_lines = break_lines(figure, [title], **TITLE_FONT)
    subtitle_lines = break_lines(figure, subtitles, **SUBTITLE_FONT)
    note_lines = break_lines(figure, [note])
    subtitle_top = 0.36 + TITLE_LINE * (len(title_lines) - 1)
    top = subtitle_top + 0.3 + SUBTITLE_LINE * (len(subtitle_lines) - 1)
    bottom = 0.3 + NOTE_LINE * (len(note_lines) - 1) if note else 0.05
    total = _set_margins(figure, height, side=LEFT_MARGIN, top=top, bottom=bottom)
    # Matplotlib would make room for a title of its own (suptitle) among the axes.
    options = {"x": LEFT_MARGIN / WIDTH, "ha": "left", "parse_math": False, "label": HEADING}
    title_y = 1 - 0.1 / total
    figure.text(y=title_y, s="\n".join(title_lines), va="top", **TITLE_FONT, **options)
    subtitle_y = 1 - subtitle_top / total
    figure.text(
        y=subtitle_y, s="\n".join(subtitle_lines), va="top", color=MUTED, **SUBTITLE_FONT, **options
    )
    note = "\n".join(note_lines)
    figure.text(y=0.08 / total, s=note, va="bottom", color=MUTED, **options)
    return figure


def _set_margins(figure: Figure, height: float, *, side: float, top: float, bottom: float) -> float:
    """Add margins, in inches, to a height for the axes, and return the height of the figure."""
    width = page_width()
    total = height + bottom + top
    figure.set_size_inches(width, total)
    rect = (side / width, bottom / total, 1 - 2 * side / width, height / total)
    cast("ConstrainedLayoutEngine", figure.get_layout_engine()).set(rect=rect)
    return total


def title_of(figure: Figure) -> str:
    """Return the title of a figure that `canvas` made; empty for others."""
    headings = [text for text in figure.texts if text.get_label() == HEADING]
    return headings[0].get_text() if headings else ""


def break_lines(figure: Figure, parts: Iterable[str], **font: Any) -> list[str]:
    """Break texts into lines that a page has room for.

    Parameters
    ----------
    figure : Figure
        The figure in which the text is measured.
    parts : iterable of str
        Texts, which dots join.  A line ends between two of them, and within one that is too long.
    **font
        The font, as for ``Figure.text``.

    Returns
    -------
    list of str
        At least one line.
    """

    def fits(line: str) -> bool:
        text = figure.text(0, 0, line, parse_math=False, **font)
        width = text.get_window_extent().width / figure.dpi
        text.remove()
        return width <= TEXT_WIDTH

    lines = [""]
    for part in filter(None, parts):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if fits(longer):
            lines[-1] = longer
            continue
        lines += _wrap(part, fits)
    return lines if lines[0] or len(lines) == 1 else lines[1:]


def _wrap(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Break a text between words; a word that is too long for a line is cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if fits(longer):
            lines[-1] = longer
            continue
        while not fits(word):
            end = next(end for end in range(len(word) - 1, 0, -1) if end == 1 or fits(word[:end]))
            lines.append(word[:end])
            word = word[end:]
        lines.append(word)
    return [line for line in lines if line] or [""]


def legend_below(figure: Figure, columns: int) -> None:
    """Put one legend below all panels of a figure without a footnote; a label has one entry.

    It has ``columns`` columns, or fewer if the page is too narrow for them.
    """
    handles = _legend_handles(figure)
    while columns > 1 and _legend_width(list(handles), columns) > page_width():
        columns -= 1
    figure.legend(handles.values(), handles, loc="outside lower left", ncols=columns)


def _legend_width(labels: Sequence[str], columns: int) -> float:
    """Estimate the width in inches of a legend, whose labels fill one column after the other."""
    lengths = np.array([len(label) for label in labels])
    letters = sum(column.max(initial=0) for column in np.array_split(lengths, columns))
    type_size = plt.rcParams["font.size"] / 72  # inches
    return letters * LETTER_WIDTH * type_size + LEGEND_HANDLE * columns


def legend_inside(figure: Figure, axes: Axes) -> None:
    """Put one legend of all panels of a figure into a panel that is empty."""
    handles = _legend_handles(figure)
    axes.set(visible=True)
    axes.set_axis_off()
    axes.legend(handles.values(), handles, loc="upper left")


def _legend_handles(figure: Figure) -> dict[str, Artist]:
    """Collect the handles of all panels by label; the last one of a label stays."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    return handles


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
        Further options of ``Axes.plot``, such as `WHITE_EDGES`.
    """
    label, color, marker = series_style
    if len(table) > MANY_POINTS:
        size = min(SMALL_MARKER, plt.rcParams["lines.markersize"])
        edge_width = options.get("markeredgewidth", 1) / 2
        options |= {"markersize": size, "markeredgewidth": edge_width}
    axes.plot(table[x], table[y], color=color, marker=marker, label=label, **options)
    if f"{y}_low" in table:
        low = table[f"{y}_low"]
        high = table[f"{y}_high"]
        axes.fill_between(table[x], low, high, color=color, alpha=0.2, linewidth=0)


def draw_intervals(
    axes: Axes,
    low: Float[np.ndarray, " row"],
    high: Float[np.ndarray, " row"],
    y: Float[np.ndarray, " row"],
    **options: Any,
) -> None:
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
    *subtitles: str,
    unit: str,
    norm: Normalize,
    cmap: Colormap = SEQUENTIAL,
) -> Figure:
    """Draw heat maps of one value per head next to each other on one colour scale.

    Layers are from top to bottom, and heads from left to right.

    Parameters
    ----------
    maps : mapping of str to array, shape (layer, head)
        The values by the title of their panel, which may have several lines.
    title, *subtitles : str
        The texts above the figure.
    unit : str
        Label of the colour scale.
    norm : Normalize
        The colour scale.
    cmap : Colormap, optional
        The colours of the scale.
    """
    layers, heads = next(iter(maps.values())).shape
    columns = min(MAP_COLUMNS if in_column() else MAX_COLUMNS, len(maps))
    rows = -(-len(maps) // columns)
    if in_column():
        extra = 0.75  # inches, of the colour scale and the label
        maps_width = COLUMN_WIDTH - 0.4
        min_height, max_height = 0.7, 1.2
        line_height = 0.12
        letters = MAP_TITLE_LETTERS
    else:
        extra = 0.35
        maps_width = WIDTH - 1.6
        min_height = 1.0 if rows > 1 else 2.0  # the label of the colour scale needs the height
        max_height = 3.2 if rows <= 3 else 2.2  # of a model of many layers
        line_height = 0.16
        letters = TITLE_LETTERS_IN_ROW // columns
    maps = {fill_lines(name, letters): values for name, values in maps.items()}
    panel_height = np.clip(maps_width / columns * layers / heads, min_height, max_height)
    title_height = 2 * line_height + line_height * max(name.count("\n") for name in maps)
    figure = canvas(rows * (panel_height + title_height) + extra, title, *subtitles)
    panels = panel_grid(figure, len(maps), columns, sharex=True, sharey=True)
    extent = (0.5, heads + 0.5, layers + 0.5, 0.5)
    colors = cmap.with_extremes(bad=NO_VALUE)
    max_xticks = 27 // columns if not in_column() else 12 // columns
    for axes, (name, values) in zip(panels, maps.items(), strict=True):
        axes.imshow(values, colors, norm, aspect="auto", interpolation="nearest", extent=extent)
        axes.set_title(name, parse_math=False, fontsize="medium")
        axes.set(xticks=counting_ticks(heads, max_xticks), yticks=counting_ticks(layers, 12))
    for axes in panels[-columns:]:
        axes.tick_params(labelbottom=True)  # also where the last row ends before this column
    figure.supxlabel("Head")
    figure.supylabel("Layer")
    draw_color_scale(figure, figure.axes, ScalarMappable(norm, cmap), unit)
    return figure


def draw_color_scale(
    figure: Figure, panels: Sequence[Axes], scale: ScalarMappable, label: str, **options: Any
) -> Colorbar:
    """Draw a colour scale right of panels, or above them in a figure for a column."""
    place: dict[str, Any]
    if in_column():
        place = {"location": "top", "aspect": 40}
        label = " ".join(label.split())
    else:  # a high scale is not wider
        place = {"aspect": max(30, 9 * figure.get_figheight())}
    return figure.colorbar(
        scale, ax=panels, label=label, pad=0.015, format="%g", **(place | options)
    )


def fill_lines(text: str, letters: int) -> str:
    """Break the lines of a text into lines of at most so many letters, but not at "n = 1,234"."""
    lines = text.replace(" = ", "\u00a0=\u00a0").splitlines()
    return "\n".join(fill(line, letters) for line in lines).replace("\u00a0", " ")


def counting_ticks(count: int, max_ticks: int = 24) -> list[int]:
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
    _settle_layout(figure)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=DPI)
    png = BytesIO()
    # A PNG of 256 colours has a third of the size.  Of the methods, this one leaves rare colours
    # unchanged.
    image = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    image.save(png, "png", optimize=True)
    path = folder / f"{name}.png"
    write_atomic(path, png.getvalue())
    title = title_of(figure).replace("\n", " ") or name  # screen readers and browsers show it
    dates = {"svg": "Date", "pdf": "CreationDate"}
    for suffix in dates.keys() & set(formats):
        drawing = BytesIO()
        metadata = {dates[suffix]: None, "Creator": None, "Title": title}
        figure.savefig(drawing, dpi=SVG_DPI, format=suffix, metadata=metadata)
        write_atomic(path.with_suffix(f".{suffix}"), drawing.getvalue())
    return path


def _settle_layout(figure: Figure) -> None:
    """Compute the layout once, not for each format, because it takes most of the time."""
    layout_engine = figure.get_layout_engine()
    if figure.axes and layout_engine is not None:
        layout_engine.execute(figure)
    figure.set_layout_engine(None)
