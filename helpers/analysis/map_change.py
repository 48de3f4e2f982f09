"""What fine-tuning does to maps: cosine similarity (Kovaleva et al. 2019, section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

Maps = Float[np.ndarray, "layer head query key"]


def map_similarity(before: Maps, after: Maps) -> Float[np.ndarray, "layer head"]:
    """Return the cosine of the angle between two maps of each head, flattened to vectors."""
    a, b = (maps.reshape(*maps.shape[:2], -1).astype(np.float64) for maps in (before, after))
    product = np.einsum("lhx,lhx->lh", a, b)
    return product / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def mean_similarity(pairs: Iterable[tuple[Maps, Maps]]) -> Float[np.ndarray, "layer head"]:
    """Return the mean over examples of `map_similarity`; ``pairs`` are maps before and after.

    Raises:
        ValueError: there is no example.
    """
    total, count = 0.0, 0
    for before, after in pairs:
        total, count = total + map_similarity(before, after), count + 1
    if not count:
        raise ValueError("no example to compare maps on")
    return total / count
