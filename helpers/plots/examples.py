"""Figures 1 and 5: maps of single sentences, drawn as in the paper.

The tokens stand in two columns; a line goes from each token on the left to each token on the
right that it attends to, and is the darker the larger the weight.  Matplotlib is imported where
something is drawn: the viewer chooses the panels and needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from helpers.model.tokens import roles
from helpers.plots.style import (
    INK,
    MUTED,
    RIGHT,
    TOKEN_STYLES,
    WIDTH,
    WRONG,
    SpecialTokens,
    bottom_margin,
    canvas,
    joined,
    theme,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.155  # inches from one token to the next
CHARACTER = 0.07  # inches, of the average character at `FONT_SIZE`
FONT_SIZE = 8.5
PANEL_GAP = 0.25
FAINTEST = 0.004  # a lighter line cannot be seen on white, even where lines cross
MOST_VECTORS = 1500  # an SVG with more lines than this holds them as an image

Weights = Float[np.ndarray, "query key"]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where in a store a panel is from, head and layer from 1, so that it can be looked at."""

    example: int
    layer: int
    head: int
    relation: str = ""
    direction: str = ""


@dataclass(frozen=True)
class PatternPanel:
    """One map of Figure 1: ``weights[query, key]`` of one head over ``tokens``."""

    title: str
    tokens: Sequence[str]
    weights: Weights
    place: Place | None = None


@dataclass(frozen=True)
class HeadPanel:
    """One sentence of Figure 5, at word level.

    ``title`` names the head and its accuracy; the panels of one title share a row.  A pair of
    ``gold`` is (attending, attended), as indices into ``words``: (dependent, head) for a head in
    the direction "dependent attends to head", (head, dependent) in the other.  ``picked`` has
    the pairs that the head chose instead, where it is wrong.  ``special`` has the kind (``cls``,
    ``sep``) of each special token among ``words``.
    """

    title: str
    words: Sequence[str]
    weights: Weights
    gold: Sequence[Pair]
    picked: Sequence[Pair] = ()
    place: Place | None = None
    special: Mapping[int, str] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether the head is right about every pair."""
        return set(self.picked) <= set(self.gold)


@theme()
def fig1_examples(
    panels: Sequence[PatternPanel], special_tokens: SpecialTokens, *, model: str = ""
) -> Figure:
    """Draw Figure 1: heads that show the patterns of section 3.

    The colours are those of Figure 2: a token's and that of the attention to it.  Examples of
    up to about 40 tokens and 12 characters a token are easy to read.
    """
    columns = min(4, len(panels))
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    figure, grid = _grid(
        rows,
        "Figure 1 · Heads that show the patterns",
        joined(model, "each token (left) attends to tokens (right); darker is more"),
    )
    for axes, panel in grid:
        kinds = roles(panel.tokens, special_tokens).kinds()
        colors = [TOKEN_STYLES[kind].color for kind in kinds]
        _columns_of_words(axes, panel.tokens, colors, colors)
        _lines(axes, panel.weights, colors)
        axes.set_title(panel.title, fontweight="bold", pad=6, parse_math=False)
    return figure


@theme()
def fig5_heads(panels: Sequence[HeadPanel], *, model: str = "") -> Figure:
    """Draw Figure 5 (section 4): what single heads find, and where they fail.

    A row for each title, in the order given, with its sentences side by side.  The words in
    question and their line are coloured; where the head is wrong, its own choice has a line and
    the right one a dashed line.  Special tokens have the colours of Figure 1.  Sentences of up
    to about 20 words are easy to read.  Without panels the figure says what it would need.
    """
    from matplotlib.lines import Line2D

    title = "Figure 5 · What single heads find"
    if not panels:
        needs = "a relation of the paper's Figure 5, frequent enough, or mentions near antecedents"
        return canvas(0.1, title, joined(model, "nothing to draw"), f"It would need {needs}.")
    by_title: dict[str, list[HeadPanel]] = {}
    for panel in panels:
        by_title.setdefault(panel.title, []).append(panel)
    rows = list(by_title.values())
    figure, grid = _grid(
        rows,
        title,
        joined(model, "each word (left) attends to words (right); darker is more"),
        headings=True,
        note=" ",  # the legend takes the place of the footnote
    )
    for axes, panel in grid:
        _draw_head_panel(axes, panel)
    handles = [
        Line2D([], [], color=RIGHT, linewidth=2.4, label="the head is right"),
        Line2D([], [], color=WRONG, linewidth=2.4, label="the head is wrong"),
        Line2D([], [], color=WRONG, linewidth=1.6, dashes=(3, 2), label="what would be right"),
    ]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 0), ncols=3, handlelength=2.6
    )
    return figure


def _draw_head_panel(axes: Axes, panel: HeadPanel) -> None:
    color = RIGHT if panel.correct else WRONG
    asked = {query for query, _ in panel.gold}
    answers = {key for _, key in (*panel.gold, *panel.picked)}
    places = range(len(panel.words))
    special = {place: TOKEN_STYLES[kind].color for place, kind in panel.special.items()}
    inks = [color if place in asked else special.get(place, INK) for place in places]
    answer_inks = [color if place in answers else special.get(place, INK) for place in places]
    _columns_of_words(axes, panel.words, inks, answer_inks, bold=color)
    _lines(axes, panel.weights, [special.get(place, MUTED) for place in places], faintest=0.02)
    for query, key in panel.gold if panel.correct else panel.picked:
        # A head may be right with a small weight: its line is light, but never invisible.
        strength = 0.35 + 0.65 * float(panel.weights[query, key])
        axes.plot([0, 1], [query, key], color=color, linewidth=2.4, alpha=strength, zorder=3)
    if not panel.correct:
        for query, key in panel.gold:
            axes.plot([0, 1], [query, key], color=color, linewidth=1.6, dashes=(3, 2), zorder=3)
    verdict = "✓ right" if panel.correct else "✗ wrong"
    axes.set_title(verdict, color=color, fontsize=FONT_SIZE, fontweight="bold", pad=3)


def _grid(
    rows: Sequence[Sequence[PatternPanel | HeadPanel]],
    title: str,
    subtitle: str,
    *,
    headings: bool = False,
    note: str = "",
) -> tuple[Figure, list[tuple[Axes, PatternPanel | HeadPanel]]]:
    """Return a figure and the axes of each panel, all with the same space between tokens.

    With ``headings`` the title of a row's first panel stands above the row.
    """
    above, gap = (0.52 if headings else 0.34), 0.16
    longest = [max(len(panel.weights) for panel in row) for row in rows]
    heights = [ROW * words + above + gap for words in longest]
    figure = canvas(sum(heights), title, subtitle, note, constrained=False)
    total, width = figure.get_figheight(), (WIDTH - 0.2 + PANEL_GAP) / max(map(len, rows))
    placed, top = [], sum(heights) + bottom_margin(note)
    for row, words, height in zip(rows, longest, heights, strict=True):
        if headings:
            figure.text(
                0.1 / WIDTH, (top - 0.08) / total, row[0].title, va="top", parse_math=False,
                fontsize=10, fontweight="bold",
            )  # fmt: skip
        for column, panel in enumerate(row):
            left, bottom = 0.1 + column * width, top - height + gap
            place = (left / WIDTH, bottom / total, (width - PANEL_GAP) / WIDTH, ROW * words / total)
            axes = figure.add_axes(place)
            axes.set_axis_off()
            axes.set_ylim(words - 0.5, -0.5)
            placed.append((axes, panel))
        top -= height
    return figure, placed


def _columns_of_words(
    axes: Axes,
    words: Sequence[str],
    left: Sequence[str],
    right: Sequence[str],
    *,
    bold: str = "",
) -> None:
    """Write the words in both columns, in their colours; those of colour ``bold`` are bold."""
    inches = axes.get_position().width * WIDTH
    most = int((inches - 0.45) / 2 / CHARACTER)  # leaves the lines 0.45 inches
    shown = [word if len(word) <= most else word[: most - 1] + "…" for word in words]
    bold_wider = 1.08 if bold else 1.0
    side = max(len(word) for word in shown) * CHARACTER * bold_wider + 0.06
    middle = inches - 2 * side
    axes.set_xlim(-side / middle, 1 + side / middle)
    for x, align, colors in ((-0.06 / middle, "right", left), (1 + 0.06 / middle, "left", right)):
        for y, (word, color) in enumerate(zip(shown, colors, strict=True)):
            weight = "bold" if color == bold else "normal"
            axes.text(
                x, y, word, ha=align, va="center_baseline", color=color, fontsize=FONT_SIZE,
                fontweight=weight, parse_math=False,
            )  # fmt: skip


def _lines(
    axes: Axes, weights: Weights, colors: Sequence[str], *, faintest: float = FAINTEST
) -> None:
    """Draw a line for each weight that can be seen, in the colour of the attended token."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    queries, keys = np.nonzero(weights >= faintest)
    alphas = np.clip(weights[queries, keys].astype(np.float64), 0, 1)
    lines = LineCollection(
        [((0, query), (1, key)) for query, key in zip(queries, keys, strict=True)],
        colors=[to_rgba(colors[key], alpha) for key, alpha in zip(keys, alphas, strict=True)],
        linewidths=1.4,
        rasterized=len(queries) > MOST_VECTORS,
    )
    axes.add_collection(lines, autolim=False)
