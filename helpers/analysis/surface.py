"""Surface-level patterns of attention (section 3): functions of one example's maps.

Each function takes the maps of one example and returns one value a head.  Averages over a
corpus are taken in :mod:`helpers.analysis.averages`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from helpers.model.tokens import Roles

ENTROPY_SMOOTHING = 1e-4  # keeps the logarithm finite where attention underflows to zero

Maps = Float[np.ndarray, "layer head query key"]
PerHead = Float[np.ndarray, "layer head"]


def relative_position(attention: Maps) -> dict[str, PerHead]:
    """Return the attention to the previous, the current and the next token (section 3.1).

    ``previous = sum_i A[i, i-1] / n``: a share of all attention, so 1 - 1/n at most.
    """
    n = attention.shape[-1]
    return {
        name: np.trace(attention, offset=offset, axis1=-2, axis2=-1) / n
        for name, offset in (("previous", -1), ("current", 0), ("next", 1))
    }


def token_types(attention: Maps, roles: Roles) -> dict[str, PerHead]:
    """Return the attention to [CLS], [SEP] and punctuation (section 3.2, Figure 2).

    ``sep_to_sep`` is what the average [SEP] gives to [SEP], ``other_to_sep`` what the average
    other token gives, and ``uniform_cls`` and ``uniform_sep`` what they would get if all tokens
    got the same.  A type of token that the model does not have is NaN.
    """
    n = attention.shape[-1]
    received = attention.sum(axis=-2) / n  # [layer, head, key]
    evenly = np.broadcast_to(_uniform(attention).mean(axis=0), received.shape)
    missing = np.full(attention.shape[:2], np.nan)
    shares = {
        f"{start}{name}": missing if mask is None else share[..., mask].sum(axis=-1)
        for start, share in (("", received), ("uniform_", evenly))
        for name, mask in (("cls", roles.cls), ("sep", roles.sep))
    }
    shares["punctuation"] = received[..., roles.punctuation].sum(axis=-1)
    if roles.sep is None:
        return {**shares, "sep_to_sep": missing, "other_to_sep": missing}
    to_sep = attention[..., roles.sep].sum(axis=-1)  # [layer, head, query]
    return {
        **shares,
        "sep_to_sep": _mean_at(to_sep, roles.sep),
        "other_to_sep": _mean_at(to_sep, ~roles.sep),
    }


def entropy(attention: Maps, roles: Roles) -> dict[str, PerHead]:
    """Return the entropy of each head's distributions in nats (section 3.3, Figure 4).

    ``entropy`` averages over all queries, ``entropy_from_cls`` is that of [CLS] alone (NaN where
    the model has none), and ``uniform`` is that of uniform attention: ``ln n``, or the mean of
    ``ln(i + 1)`` where position i, from 0, attends to itself and what comes before alone (a
    decoder).  ``largest`` is the mean over queries of the attention to any single token.
    """
    n = attention.shape[-1]
    smoothed = (1 - ENTROPY_SMOOTHING) * attention + ENTROPY_SMOOTHING / n
    each = -np.einsum("lhij,lhij->lhi", smoothed, np.log(smoothed))
    missing = np.full(attention.shape[:2], np.nan)
    return {
        "entropy": each.mean(axis=-1),
        "entropy_from_cls": missing if roles.cls is None else _mean_at(each, roles.cls),
        "uniform": np.full(attention.shape[:2], -np.log(_uniform(attention).max(axis=-1)).mean()),
        "largest": attention.max(axis=-1).mean(axis=-1),
    }


def _uniform(attention: Maps) -> Float[np.ndarray, "query key"]:
    """Return the map that gives all tokens the same, or in a decoder all tokens so far."""
    seen = np.ones(attention.shape[-2:])
    heads = attention.reshape(-1, *seen.shape)
    if not any(np.triu(weights, 1).any() for weights in heads):  # the first one tells, mostly
        seen = np.tril(seen)
    return seen / seen.sum(axis=-1, keepdims=True)


def _mean_at(values: Float[np.ndarray, "layer head query"], mask: np.ndarray) -> PerHead:
    if not mask.any():
        return np.full(values.shape[:2], np.nan)
    return values[..., mask].mean(axis=-1)
