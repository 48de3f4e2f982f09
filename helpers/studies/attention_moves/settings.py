"""How much text each part of notebook 10 looks at: what its time depends on, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.settings import Settings


@dataclass(frozen=True)
class Sizes:
    """Numbers of examples.

    Attributes:
        segments: for shares, value norms and sinks.
        control_segments: the same, for the model with random weights.
        sentences: of dev, that heads are taken out for.
        pairs: of paragraphs, for the objective and the similarity of their vectors.
        attributed: pairs whose tokens are left out one at a time.
    """

    segments: int = 300
    control_segments: int = 100
    sentences: int = 200
    pairs: int = 32
    attributed: int = 32


def sizes(settings: Settings) -> Sizes:
    """Return the sizes of a run: no more segments than it has, and fewer in the small profile."""
    most = settings.segments or Sizes.segments
    if settings.small:
        return Sizes(min(most, 12), 8, 12, 8, 4)
    return Sizes(min(most, Sizes.segments))
