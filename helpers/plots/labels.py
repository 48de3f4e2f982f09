"""Labels of points in a scatter plot, placed so that they do not cover each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from helpers.plots.style import MUTED

RADII = (9, 12, 16, 22, 30, 40, 52, 66, 82, 100)  # points, from the marker to the label's edge
ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
MARGIN = 1.5  # points kept free around a label
POINT_RADIUS = 4.0
LEADER = {"arrowstyle": "-", "linewidth": 0.7, "color": MUTED, "shrinkA": 0, "shrinkB": 3}
# What a place costs: square points of markers covered, and so many times as much for ...
OVER_LABEL = 50  # ... a square point of another label, its line or its marker
OUTSIDE = 50  # ... a square point outside the axes
DISTANCE = 2  # ... a point of distance

Boxes = Float[np.ndarray, "box 4"]  # left, bottom, right, top


def label_points(
    axes: Axes, points: Float[np.ndarray, "point 2"], labelled: Sequence[int], labels: Sequence[str]
) -> None:
    """Write ``labels`` beside the points at the indices ``labelled``, a thin line to each.

    A label's place is inside the axes, free of earlier labels and their lines, near, and covers
    few other points.  The limits of the axes must be final: distances are of the drawn page.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # settles the layout, which decides where points are
    to_points = 72 / figure.dpi
    at = axes.transData.transform(points) * to_points
    frame = np.array(axes.get_window_extent().extents) * to_points
    markers = _boxes(at, 2 * POINT_RADIUS)
    taken = markers[list(labelled)]
    for index, label in zip(labelled, labels, strict=True):
        note = axes.annotate(
            label, points[index], xytext=(0, 0), textcoords="offset points", ha="center",
            va="center", fontsize=8.5, parse_math=False, zorder=5, arrowprops=LEADER,
        )  # fmt: skip
        note.set_in_layout(False)
        note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        extent = Text.get_window_extent(note)  # without the line
        size = np.array([extent.width, extent.height]) * to_points + 2 * MARGIN
        around = [DIRECTIONS * (size / 2 + radius - POINT_RADIUS) for radius in RADII]
        centres = at[index] + np.concatenate(around)  # [place, 2], the nearest ones first
        boxes = _boxes(centres, size)
        cost = (
            _covered(boxes, markers).sum(axis=1)
            + OVER_LABEL * _covered(boxes, taken).sum(axis=1)
            + OUTSIDE * (size.prod() - _covered(boxes, frame[None])[:, 0])
            + DISTANCE * np.linalg.norm(centres - at[index], axis=1)
        )
        best = int(np.argmin(cost.round(6)))
        note.set_position(centres[best] - at[index])
        line = np.linspace(0.2, 1, 16)[:, None] * (centres[best] - at[index])
        taken = np.vstack([taken, boxes[best], _boxes(at[index] + line, 2.0)])


def _boxes(centres: Float[np.ndarray, "box 2"], size: float | np.ndarray) -> Boxes:
    return np.hstack([centres - np.divide(size, 2), centres + np.divide(size, 2)])


def _covered(boxes: Boxes, others: Boxes) -> Float[np.ndarray, "box other"]:
    """Return the area that each box shares with each of the others."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=-1)
