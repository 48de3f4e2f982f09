"""Solutions of the exercises by name, and `HINTS` for known wrong answers."""

from beyond.solutions.in_loops import *  # noqa: F403
from beyond.solutions.wrong_answers import HINTS

__all__ = ["HINTS"]
