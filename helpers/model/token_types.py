"""Which positions of an example are [CLS], [SEP], punctuation or something else (section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

PUNCTUATION = (".", ",")
WORD_MARKS = "Ġ▁"  # how byte-level and SentencePiece vocabularies write a leading space


@dataclass(frozen=True)
class Roles:
    """Masks over an example's positions; every position is in exactly one of them.

    ``cls`` or ``sep`` is None where the model has no such token, which is not the same as a
    model that has one and gives it no attention.
    """

    cls: Bool[np.ndarray, " position"] | None
    sep: Bool[np.ndarray, " position"] | None
    punctuation: Bool[np.ndarray, " position"]
    other: Bool[np.ndarray, " position"]

    def masks(self) -> dict[str, Bool[np.ndarray, " position"]]:
        """Return the masks that the model has, by name."""
        return {name: mask for name, mask in vars(self).items() if mask is not None}

    def kinds(self) -> list[str]:
        """Return the name of the mask that each position is in."""
        names, masks = zip(*self.masks().items(), strict=True)
        return [names[index] for index in np.argmax(masks, axis=0)]


def roles(tokens: Sequence[str], special_tokens: Mapping[str, str | None]) -> Roles:
    """Return the role of each token; ``special_tokens`` says what [CLS] and [SEP] are here."""
    cls, sep = (
        None if token is None else np.array([other == token for other in tokens])
        for token in map(special_tokens.get, ("cls", "sep"))
    )
    punctuation = np.array([token.lstrip(WORD_MARKS) in PUNCTUATION for token in tokens])
    taken = [mask for mask in (cls, sep, punctuation) if mask is not None]
    return Roles(cls, sep, punctuation, ~np.any(taken, axis=0))
