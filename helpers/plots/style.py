"""What all figures share: one theme, one palette, one page format, one heat map, one way to save.

Matplotlib and seaborn are imported where something is drawn: the viewer shares the colours and
needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from helpers.paths import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

HeadValues = Float[np.ndarray, "layer head"]
SpecialTokens = Mapping[str, str | None]  # what [CLS] ("cls") and [SEP] ("sep") are in a model

WIDTH = 9.0  # inches: shown 900 pixels wide, 10-point type is 14 pixels high
DPI = 160
TALL, DPI_TALL = 12.0, 110  # inches: keeps the file of a long figure small
HEADING = "heading"  # the label of what a caption says in a paper
# What a map holds, by lens; Kobayashi et al. (2020) for the second.
WEIGHTS = {"attention": "attention", "norm": "norm-weighted attention"}


class Style(NamedTuple):
    """How one kind of thing is drawn; the marker repeats what the colour says."""

    label: str
    color: str
    marker: str


Styles = Mapping[str, Style]

# Told apart with every kind of colour blindness, and 3:1 or more against white (tested).
TOKEN_STYLES = {
    "cls": Style("{cls}", "#0173B2", "o"),
    "sep": Style("{sep}", "#D55E00", "s"),
    "punctuation": Style("periods and commas", "#00A457", "^"),
    "other": Style("other tokens", "#555555", "D"),
}
TOKEN_COLORS = {kind: style.color for kind, style in TOKEN_STYLES.items()}
ATTENDED = {kind: style._replace(label=f"to {style.label}") for kind, style in TOKEN_STYLES.items()}

BEHAVIOUR_STYLES = {
    "broad": Style("attends broadly", "#F0C808", "P"),
    "previous": Style("to the previous token", "#8E3B8A", "<"),
    "current": Style("to the current token", "#6B3F1A", "v"),
    "next": Style("to the next token", "#F29CCB", ">"),
    **{kind: ATTENDED[kind] for kind in ("cls", "sep", "punctuation")},
    "other": Style("no single pattern", "#BDBDBD", "o"),
}  # fmt: skip
CONTROLS = {  # by what the names of their tables begin with
    "control": Style("random weights", "#8A8A8A", "v"),
    "focused": Style("random weights, as focused", "#7A5BA8", "P"),
}

INK = "#222222"
MUTED = "#666666"
BAR = "#8FA8C2"
ACCENT = "#C2185B"  # the paper's numbers, the best head
RIGHT, WRONG = "#5E35B1", "#C2185B"  # a head's choice in an example
SEQUENTIAL = "mako_r"
DIVERGING = "PuOr_r"
# Of tasks, probes and whatever else has a line of its own: not the colours of the token types.
LINES = (
    ("#2F4B7C", "o"), ("#C2185B", "s"), ("#B08900", "D"),
    ("#7A5BA8", "^"), ("#4B9B98", "v"), ("#8A8A8A", "P"),
)  # fmt: skip

LOOK = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "text.color": INK,
    "xtick.minor.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.hashsalt": "attention",  # identifiers in the file are random without it
    "pdf.fonttype": 42,  # whole letters: publishers refuse matplotlib's default, Type 3
}
# Of three rows, a number and the bounds of its interval, seaborn draws the number and the interval.
WITH_BOUNDS = {"estimator": "median", "errorbar": ("pi", 100)}
BOUNDS = ["ci_low", "ci_high"]


@contextmanager
def theme() -> Iterator[None]:
    """Set the look of every figure, inside the context or the decorated function only."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    rc = sns.plotting_context("paper") | sns.axes_style("ticks") | LOOK
    with plt.rc_context(rc):
        yield


def canvas(
    height: float, title: str, subtitle: str = "", note: str = "", *, constrained: bool = True
) -> Figure:
    """Return an empty figure with its title, subtitle and footnote.

    ``height`` (inches) is what the axes get, above the footnote and below the subtitle.  Unless
    ``constrained``, the caller places its axes there, with `bottom_margin` for an origin.
    """
    import matplotlib.pyplot as plt

    bottom = bottom_margin(note)
    total = height + bottom + (0.66 if subtitle else 0.42)
    figure = plt.figure(figsize=(WIDTH, total))
    plt.close(figure)  # otherwise a notebook would display it a second time
    if constrained:
        rect = (0.04 / WIDTH, bottom / total, 1 - 0.08 / WIDTH, height / total)
        figure.set_layout_engine("constrained", rect=rect)
    left = {"x": 0.1 / WIDTH, "ha": "left", "parse_math": False, "label": HEADING}
    heading = figure.suptitle(title, y=1 - 0.1 / total, fontsize=12.5, fontweight="bold", **left)
    heading.set_in_layout(False)
    figure.text(y=1 - 0.36 / total, s=subtitle, va="top", color=MUTED, **left)
    figure.text(y=0.08 / total, s=note, va="bottom", color=MUTED, fontsize=8.5, **left)
    return figure


def nothing(title: str, model: str, needs: str) -> Figure:
    """Return a figure that says what it would need to show anything."""
    return canvas(0.1, title, joined(model, "nothing to draw"), f"It would need {needs}.")


def bottom_margin(note: str) -> float:
    """Return the inches below the axes."""
    return 0.3 if note else 0.05


def joined(*parts: str) -> str:
    """Return the parts that are not empty in one line."""
    return " · ".join(part for part in parts if part)


def named(style: Style, special_tokens: SpecialTokens) -> Style:
    """Return a style whose label has the special tokens of a model, as it writes them."""
    roles = {"cls": "first token", "sep": "separator"}
    names = {role: special_tokens.get(role) or name for role, name in roles.items()}
    return style._replace(label=style.label.format(**names))


def by_style(column: str, styles: Styles) -> dict[str, Any]:
    """Return what makes seaborn draw the rows of each value of ``column`` in its style."""
    return {
        "hue": column,
        "hue_order": list(styles),
        "palette": {value: style.color for value, style in styles.items()},
        "style": column,
        "style_order": list(styles),
        "markers": {value: style.marker for value, style in styles.items()},
    }


def heat_map(
    axes: Axes, values: HeadValues, norm: Normalize, cmap: str = SEQUENTIAL, *, most: int = 24
) -> None:
    """Draw a value for each head: layers down from 1, heads across from 1.

    ``most`` is how many heads are numbered; of more, every second, third ... is.
    """
    layers, heads = values.shape
    extent = (0.5, heads + 0.5, layers + 0.5, 0.5)
    axes.imshow(values, cmap=cmap, norm=norm, extent=extent, aspect="auto", interpolation="nearest")
    axes.set(xticks=counting_ticks(heads, most), yticks=counting_ticks(layers, 12))


def heat_maps(
    maps: Mapping[str, HeadValues],
    title: str,
    subtitle: str,
    unit: str,
    norm: Normalize,
    *,
    columns: int,
    cmap: str = SEQUENTIAL,
) -> Figure:
    """Draw maps side by side on one colour scale, each under its name (of a line or two)."""
    from matplotlib.cm import ScalarMappable

    layers, heads = next(iter(maps.values())).shape
    columns = min(columns, len(maps))
    rows = -(-len(maps) // columns)
    lowest = 1.0 if rows > 1 else 2.0  # the label of the colour scale needs the height
    panel = np.clip((WIDTH - 1.6) / columns * layers / heads, lowest, 3.2)
    above = 0.32 + 0.16 * max(name.count("\n") for name in maps)
    figure = canvas(rows * (panel + above) + 0.35, title, subtitle)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(maps) :]:
        axes.set_axis_off()
    for axes, (name, values) in zip(grid.flat, maps.items(), strict=False):
        heat_map(axes, values, norm, cmap, most=48 // columns // 2)
        axes.set_title(name, parse_math=False)
    for axes in grid.flat[max(len(maps) - columns, 0) : len(maps)]:
        axes.tick_params(labelbottom=True)  # also where the last row ends before this column
    figure.supxlabel("Head", fontsize=9.5)
    figure.supylabel("Layer", fontsize=9.5)
    bar = {"aspect": 30, "pad": 0.015, "format": "%g"}
    figure.colorbar(ScalarMappable(norm, cmap), ax=grid, label=unit, **bar)
    return figure


def counting_ticks(count: int, most: int = 24) -> list[int]:
    """Return 1, ..., ``count``, thinned evenly to at most ``most`` ticks."""
    step = -(-count // most)
    return list(range(1 if step == 1 else step, count + 1, step))


@theme()
def save_figure(figure: Figure, folder: Path, name: str, *, paper: bool = False) -> Path:
    """Write ``folder/name.png`` and ``.svg``, for a ``paper`` also ``.pdf``; return the PNG's path.

    The same figure gives the same bytes: no file holds a date or a random identifier.  StoreError
    where the folder cannot be written to; a file is there whole or not at all.
    """
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    drawn, small, lines = BytesIO(), BytesIO(), BytesIO()
    figure.savefig(drawn, dpi=DPI if figure.get_figheight() < TALL else DPI_TALL)
    figure.set_layout_engine(None)  # it is laid out: most of the time that a figure takes
    # A third of the size; of the methods, this one keeps rare colours as they are.
    palette = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    palette.save(small, "png", optimize=True)
    figure.savefig(lines, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    path = folder / f"{name}.png"
    write_whole(path, small.getvalue())
    write_whole(path.with_suffix(".svg"), _repeatable(lines.getvalue().decode()).encode())
    if paper:
        write_whole(path.with_suffix(".pdf"), _for_paper(figure))
    return path


def _for_paper(figure: Figure) -> bytes:
    """Return a figure as a PDF page without what its caption will say."""
    import matplotlib.pyplot as plt

    page, headings = BytesIO(), figure.findobj(lambda own: own.get_label() == HEADING)
    plt.setp(headings, visible=False)
    metadata = {"CreationDate": None, "Creator": None}
    figure.savefig(page, format="pdf", dpi=DPI, metadata=metadata, bbox_inches="tight")
    plt.setp(headings, visible=True)
    return page.getvalue()


def _repeatable(svg: str) -> str:
    """Return an SVG that comes out the same on every machine.

    Clip paths are numbered: matplotlib names some by memory address.  Places have three decimals
    (of a point): the sixth differs between processors.  Numbers below 1, such as scales, stay.
    """
    names = re.findall(r'<clipPath id="([^"]+)"', svg)
    numbers = {name: f"clip{number}" for number, name in enumerate(names)}
    svg = re.sub(
        r'(<clipPath id="|url\(#)([^")]+)',
        lambda found: found[1] + numbers.get(found[2], found[2]),
        svg,
    )
    return re.sub(r"(?<![\w.])[1-9]\d*\.\d{4,}", lambda found: f"{float(found[0]):.3f}", svg)
