"""L-BFGS for a smooth convex function whose values somebody else computes.

`minimise` is a generator.  Several searches can therefore wait for their values at a time, and one
pass over the data computes all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

Position = Float[Tensor, " coordinate"]  # float64

MEMORY = 50  # steps that the curvature is estimated from
MAX_STEPS = 500
SUFFICIENT_DECREASE = 1e-4  # as a share of what the slope promises (Armijo)
SMALLEST_STEP = 1e-6  # below it the function's rounding errors decide


class Point(NamedTuple):
    """A position of the search, with the value and the gradient of the function there.

    Parameters
    ----------
    position
        The position.
    value, gradient
        The function and its gradient.
    details
        Whatever else is to be kept of the optimum.
    """

    position: Position
    value: float
    gradient: Position
    details: Any = None


Evaluate = Callable[[Position], Generator[Any, Any, Point]]


def minimise(evaluate: Evaluate, start: Position, tolerance: float) -> Generator[Any, Any, Point]:
    """Minimise a convex function by L-BFGS (Nocedal and Wright 2006, algorithm 7.5).

    The coordinates should be such that the function is about equally curved in every direction,
    because the first step is as long as the gradient.

    Parameters
    ----------
    evaluate
        Generator function of a position.  It returns the `Point`; what it yields, and is sent, is
        passed on.
    start
        The first position.
    tolerance
        The search ends with the first step that gains no more; it is relative for values above 1.

    Returns
    -------
    Point
        The optimum.
    """
    point = yield from evaluate(start)
    pairs: deque[tuple[Position, Position]] = deque(maxlen=MEMORY)
    for _ in range(MAX_STEPS):
        following = yield from _step(evaluate, point, _direction(point.gradient, pairs))
        gain = point.value - following.value
        pairs.append((following.position - point.position, following.gradient - point.gradient))
        point = following
        if gain <= tolerance * max(1.0, abs(point.value)):
            break
    return point


def _direction(gradient: Position, pairs: deque[tuple[Position, Position]]) -> Position:
    """Multiply the negative gradient by the estimated inverse of the second derivatives."""
    direction = -gradient
    projections = []
    for step, change in reversed(pairs):
        projections.append(step @ direction / (step @ change))
        direction = direction - projections[-1] * change
    if pairs:
        step, change = pairs[-1]
        direction = direction * (step @ change / (change @ change))
    for (step, change), projection in zip(pairs, reversed(projections), strict=True):
        direction = direction + step * (projection - change @ direction / (step @ change))
    return direction


def _step(evaluate: Evaluate, point: Point, direction: Position) -> Generator[Any, Any, Point]:
    """Step along a direction, and less far until the function falls; else stay."""
    slope = (point.gradient @ direction).item()
    size = 1.0
    while size > SMALLEST_STEP:
        following = yield from evaluate(point.position + size * direction)
        promised = SUFFICIENT_DECREASE * size * slope
        if following.value <= point.value + promised:
            return following
        excess = following.value - point.value - size * slope
        # The minimum of the parabola through both values, with the slope.
        size *= min(max(-slope * size / (2 * excess), 0.1), 0.5)
    return point
