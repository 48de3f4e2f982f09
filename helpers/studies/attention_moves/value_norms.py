"""How much a head moves: attention weights beside the size of what they weigh.

Attention adds ``sum_j A[i, j] f(x_j)`` to position i (`helpers.model.lens`).  Here are one
example's maps, the sizes ``|f(x_j)|`` of its transformed value vectors and its hidden states;
the averages over a corpus come from `helpers.analysis.averages.Sums`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from helpers.model.token_types import Roles

Maps = Float[np.ndarray, "layer head query key"]
Norms = Float[np.ndarray, "layer head key"]
TYPES = ("cls", "sep", "punctuation", "other")
LENSES = ("attention", "norm")
SHARES = tuple(f"{lens}_{kind}" for lens in LENSES for kind in TYPES)
VALUES = tuple(f"value_{kind}" for kind in TYPES)
SINKS = (
    "attention_first", "norm_first", "uniform", "value_first", "state_first", "peak_first",
    "peak_others",
)  # fmt: skip


def lens_values(
    lenses: Mapping[str, Maps], norms: Norms, roles: Roles
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Return what attention and norm lens make of one example, for each head.

    ``lenses`` has its maps as "attention" and as "norm" (`helpers.model.word_attention.norm_maps`).

    ``attention_cls`` ... ``norm_other``: shares of the types of token, NaN for a token that the
    model does not have.  ``value_cls`` ...: the mean ``|f(x)|`` of a type, as a multiple of the
    mean over all tokens of the example (NaN where it has none).  ``same_token``: how often the
    most-attended token is also the one that moves most.
    """
    masks, missing = roles.masks(), np.full(norms.shape[:2], np.nan)
    values = {}
    for lens, maps in lenses.items():
        received = maps.mean(axis=-2)  # [layer, head, key]
        for kind in TYPES:
            own = masks.get(kind)
            values[f"{lens}_{kind}"] = missing if own is None else received[..., own].sum(axis=-1)
    relative = norms / norms.mean(axis=-1, keepdims=True)
    for kind in TYPES:
        own = masks.get(kind)
        there = own is not None and own.any()
        values[f"value_{kind}"] = relative[..., own].mean(axis=-1) if there else missing
    most, moves = (lenses[lens].argmax(axis=-1) for lens in LENSES)
    values["same_token"] = (most == moves).mean(axis=-1)
    return values


def sink_values(
    lenses: Mapping[str, Maps], norms: Norms, states: Float[np.ndarray, "layer position width"]
) -> dict[str, Float[np.ndarray, "layer one"]]:
    """Return what marks the first position as an attention sink, for each layer, a column wide.

    ``attention_first`` and ``norm_first`` are its shares, ``uniform`` that of any position
    (``1 / n``).  ``value_first`` and ``state_first`` are the sizes of its value vector and of its
    hidden state (``states[l]`` goes into layer l), as multiples of the other positions' mean.
    ``peak_first`` is the largest component of that state as a multiple of the example's median
    (absolute values); ``peak_others`` the mean of the same over the other positions.
    """
    values = {f"{lens}_first": maps[..., 0].mean(axis=(1, 2)) for lens, maps in lenses.items()}
    values |= {
        "uniform": np.full(len(norms), 1 / norms.shape[-1]),
        "value_first": (norms[..., 0] / norms[..., 1:].mean(axis=-1)).mean(axis=-1),
    }
    sizes, absolute = np.linalg.norm(states, axis=-1), np.abs(states)
    peaks = absolute.max(axis=-1) / np.median(absolute, axis=(1, 2))[:, None]
    values["state_first"] = sizes[:, 0] / sizes[:, 1:].mean(axis=-1)
    values["peak_first"], values["peak_others"] = peaks[:, 0], peaks[:, 1:].mean(axis=-1)
    return {name: value[:, None] for name, value in values.items()}
