"""Labels of points in a scatter plot, placed so that they do not cover each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from helpers.plots.style import MUTED

RADII = (9, 14, 20, 28, 40, 56, 76, 100)  # points, from the marker to the label's edge
ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
MARGIN = 1.5  # points kept free around a label
MARKER_SIZE = 8.0  # points
LEADER = {"arrowstyle": "-", "linewidth": 0.7, "color": MUTED, "shrinkA": 0, "shrinkB": 3}
# The cost of a position: the area of markers that it covers (square points), plus ...
FORBIDDEN_COST = 50  # ... this per square point of another label or outside the axes,
DISTANCE_COST = 2  # ... and this per point of distance

Boxes = Float[np.ndarray, "box 4"]  # left, bottom, right, top


def label_points(
    axes: Axes, points: Float[np.ndarray, "point 2"], labelled: Sequence[int], labels: Sequence[str]
) -> None:
    """Write labels next to some points, each with a thin line to its point.

    A label is put inside the axes, near its point, not over earlier labels, and over few points.

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
    figure = axes.figure
    figure.draw_without_rendering()  # settles the layout, which decides where points are
    to_points = 72 / figure.dpi
    positions = axes.transData.transform(points) * to_points
    frame = np.array(axes.get_window_extent().extents) * to_points
    markers = _boxes(positions, MARKER_SIZE)
    occupied = markers[list(labelled)]
    for index, label in zip(labelled, labels, strict=True):
        note = axes.annotate(
            label, points[index], xytext=(0, 0), textcoords="offset points", ha="center",
            va="center", fontsize=8.5, parse_math=False, zorder=5, arrowprops=LEADER,
        )  # fmt: skip
        note.set_in_layout(False)
        note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        extent = Text.get_window_extent(note)  # without the line
        size = np.array([extent.width, extent.height]) * to_points + 2 * MARGIN
        offsets = [DIRECTIONS * (size / 2 + radius - MARKER_SIZE / 2) for radius in RADII]
        centres = positions[index] + np.concatenate(offsets)  # [candidate, 2], nearest first
        boxes = _boxes(centres, size)
        outside = size.prod() - _overlaps(boxes, frame[None])[:, 0]
        forbidden = _overlaps(boxes, occupied).sum(axis=1) + outside
        cost = _overlaps(boxes, markers).sum(axis=1) + FORBIDDEN_COST * forbidden
        cost += DISTANCE_COST * np.linalg.norm(centres - positions[index], axis=1)
        best = int(np.argmin(cost.round(6)))
        note.set_position(centres[best] - positions[index])
        occupied = np.vstack([occupied, boxes[best]])


def _boxes(centres: Float[np.ndarray, "box 2"], size: float | np.ndarray) -> Boxes:
    """Make boxes of one size (in points) around their centres."""
    return np.hstack([centres - np.divide(size, 2), centres + np.divide(size, 2)])


def _overlaps(boxes: Boxes, obstacles: Boxes) -> Float[np.ndarray, "box obstacle"]:
    """Compute the area that each box shares with each obstacle."""
    low = np.maximum(boxes[:, None, :2], obstacles[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], obstacles[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=-1)
