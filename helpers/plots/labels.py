"""Labels of points in a scatter plot, placed so that they do not cover each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import cast

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from helpers.plots.style import HALO, MUTED

STEPS = 48  # places for a label from the left to the right of the axes, and from bottom to top
MARKER_RADIUS = 3  # points
LEADER = {"arrowstyle": "-", "linewidth": 0.7, "color": MUTED, "shrinkA": 0, "shrinkB": 3}
# What a place for a label costs besides its distance from the point, in pixels.
COVERING_COST = 1_000  # for each marker that the label covers or touches
CROWDED_COST = 6  # the same among many points, so that lines do not cross the axes
MANY_POINTS = 200
FORBIDDEN_COST = 100_000  # for each label and each labelled marker that it covers


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
    radius = MARKER_RADIUS * pixels
    covering_cost = CROWDED_COST if len(points) > MANY_POINTS else COVERING_COST
    occupied = [Bbox([marker, marker]).padded(radius) for marker in markers[labelled]]
    for index, label in zip(labelled, labels, strict=True):
        note = axes.annotate(
            label, points[index], xytext=(0, 0), textcoords="offset points", ha="center",
            va="center", zorder=5, arrowprops=LEADER, in_layout=False,
            path_effects=HALO,
        )  # fmt: skip
        text_size = np.asarray(Text.get_window_extent(note).size)  # without the line
        size = text_size + 3 * pixels  # with a margin
        lefts = np.linspace(axes.bbox.x0, axes.bbox.x1 - size[0], STEPS)
        bottoms = np.linspace(axes.bbox.y0, axes.bbox.y1 - size[1], STEPS)
        to_centre = size / 2 - markers[index]  # from the corner of a label at the marker
        costs = {}
        for corner in product(lefts, bottoms):
            box = Bbox.from_bounds(*corner, *size)
            n_covered = box.padded(radius).count_contains(markers)
            cost = np.hypot(*(box.min + to_centre)) + covering_cost * n_covered
            costs[box] = cost + FORBIDDEN_COST * box.count_overlaps(occupied)
        best = min(costs, key=lambda box: costs[box])
        note.set_position((best.min + to_centre) / pixels)
        occupied.append(best)
