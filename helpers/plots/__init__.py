"""Tables in, matplotlib figures out."""

from helpers.plots import examples, heads, scores, style

__all__ = ["examples", "heads", "scores", "style"]
