"""The diagram that grows through the series: from tokens to what a notebook measures."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from helpers.plots.style import BAR, INK, MUTED, RIGHT, SEQUENTIAL, SERIES_COLORS

TOKENS = ("she", "often", "runs")
WEIGHTS = np.array([[0.9, 0.1, 0], [0.7, 0.2, 0.1], [0.75, 0.05, 0.2]])  # [query, key]
PARTS = ("tokens", "query, key, value", "map", "mixture", "measure")
COLORS = SERIES_COLORS[:3]  # of the tokens' values
FAINT = 0.25
# The parts that a notebook is about, the cells of the map that it measures, and its measure.
EVERY_CELL = tuple(np.ndindex(3, 3))
NOTEBOOKS = {
    "00": (PARTS[:4], (), "in the next notebooks"),
    "01": (("map", "measure"), ((1, 0), (2, 1)), "a diagonal"),
    "02": (("map", "measure"), ((0, 0), (1, 0), (2, 0)), "a column"),
    "03": (("map", "measure"), ((2, 0), (2, 1), (2, 2)), "how even a row is"),
    "04": (("map", "measure"), ((2, 0),), "a row's largest cell"),
    "05": (("map", "measure"), EVERY_CELL, "all maps, weighted"),
    "06": (("map", "measure"), EVERY_CELL, "two maps, compared"),
    "07": (("map", "measure"), EVERY_CELL, "the pattern of a map"),
    "08": (("mixture", "measure"), EVERY_CELL, "answers without a head"),
    "09": (("tokens", "measure"), (), "answers from cues"),
    "10": (("map", "mixture", "measure"), ((0, 0), (1, 0), (2, 0)), "without a column"),
    "11": (("mixture", "measure"), ((2, 0),), "the effect of a cell"),
}


def draw(number: str) -> None:
    """Draw the way from tokens to a measure, with the parts of one notebook lit.

    Parameters
    ----------
    number : str
        The number of the notebook, such as "01".
    """
    lit, cells, measure = NOTEBOOKS[number]
    layout = ConstrainedLayoutEngine(wspace=0.25)  # room for arrows
    _, panels = plt.subplots(1, len(PARTS), figsize=(8, 1.4), layout=layout)
    for panel, part in zip(panels, PARTS, strict=True):
        is_lit = part in lit
        panel.set_title(part, fontsize=9, color=RIGHT if is_lit else MUTED)
        panel.set(xlim=(-0.5, 2.5), ylim=(2.5, -0.5), xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        DRAWINGS[part](panel, 1 if is_lit else FAINT)
    for row, column in cells:
        corner = (column - 0.46, row - 0.46)
        panels[-1].add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=RIGHT, lw=2))
    panels[-1].set_xlabel(measure, fontsize=8, color=INK)
    for panel in panels[1:]:
        arrow = {"arrowstyle": "->", "color": MUTED}
        panel.annotate("", (-0.07, 0.5), (-0.21, 0.5), "axes fraction", arrowprops=arrow)


def _draw_tokens(panel: Axes, alpha: float) -> None:
    for row, token in enumerate(TOKENS):
        panel.text(1, row, token, ha="center", va="center", color=INK, alpha=alpha)


def _draw_vectors(panel: Axes, alpha: float) -> None:
    """Draw a query, a key and a value for each token; the value has the token's colour."""
    for row, color in enumerate(COLORS):
        for column, (letter, fill) in enumerate((("q", BAR), ("k", BAR), ("v", color))):
            panel.barh(row, 0.6, 0.7, column - 0.3, color=fill, alpha=alpha)
            panel.text(column, row, letter, ha="center", va="center", alpha=alpha, fontsize=8)


def _draw_map(panel: Axes, alpha: float) -> None:
    panel.imshow(WEIGHTS, SEQUENTIAL, vmin=0, vmax=1.4, alpha=alpha, aspect="auto")


def _draw_mixture(panel: Axes, alpha: float) -> None:
    """Draw how much of each token's value a row takes."""
    starts = 3 * WEIGHTS.cumsum(axis=1) - 3 * WEIGHTS - 0.5
    for column, color in enumerate(COLORS):
        widths = 3 * WEIGHTS[:, column]
        panel.barh(range(3), widths, 0.6, starts[:, column], color=color, alpha=alpha)


DRAWINGS = dict(
    zip(PARTS, (_draw_tokens, _draw_vectors, _draw_map, _draw_mixture, _draw_map), strict=True)
)
