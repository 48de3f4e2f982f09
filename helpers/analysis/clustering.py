"""Which heads behave alike (section 6, Figure 6): tables made from the distances of heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from sklearn.manifold import MDS

from helpers.analysis.heads import head_labels, parse_head
from helpers.errors import InputError

# What Figure 6 colours heads by; the shares are those of the released analysis.
POSITION_SHARE = 0.5  # of a head's attention, to one relative position
TOKEN_SHARE = 0.5  # of a head's attention, to one type of token
BROAD_SHARE = 0.78  # of the entropy of uniform attention: 3.8 nats at 128 tokens

BEHAVIOURS = (
    "previous",
    "current",
    "next",
    "cls",
    "sep",
    "punctuation",
    "broad",
    "other",
)

PERMUTATIONS_AT_ONCE = 256  # bounds the memory of the permutation test


def distance_table(
    distances: Float[np.ndarray, "heads heads"], layers: int, heads: int
) -> pd.DataFrame:
    """Return distances (nats) as a square table, labelled ``layer-head`` on both sides.

    Raises:
        InputError: the array does not have one row and column for each head.
    """
    if distances.shape != (layers * heads, layers * heads):
        raise InputError(
            f"distances of shape {distances.shape} do not fit {layers} layers of {heads} heads"
        )
    labels = pd.Index(head_labels(layers, heads), name="head")
    return pd.DataFrame(distances, index=labels, columns=labels.rename(None))


def head_behaviours(
    relative_position: pd.DataFrame, token_types: pd.DataFrame, entropy: pd.DataFrame
) -> pd.DataFrame:
    """Name what each head mostly does, from the tables of section 3.

    A head gets the first of `BEHAVIOURS` that holds: its share of attention to a relative
    position is over `POSITION_SHARE`, to a type of token over `TOKEN_SHARE`, or its entropy is
    over `BROAD_SHARE` of that of uniform attention; else "other".

    Returns:
        Columns layer, head (from 1) and behaviour.
    """
    keys = ["layer", "head"]
    table = relative_position.merge(token_types, on=keys, validate="1:1")
    table = table.merge(entropy, on=keys, validate="1:1")
    holds = [
        *(table[name] > POSITION_SHARE for name in ("previous", "current", "next")),
        *(table[name] > TOKEN_SHARE for name in ("cls", "sep", "punctuation")),
        table["entropy"] > BROAD_SHARE * table["uniform"],
    ]
    behaviour = np.select(holds, BEHAVIOURS[:-1], default=BEHAVIOURS[-1])
    return table[keys].assign(behaviour=behaviour)


def head_positions(
    distances: pd.DataFrame, behaviours: pd.DataFrame, *, seed: int = 0
) -> pd.DataFrame:
    """Place heads in the plane so that their distances are kept as well as possible (Figure 6).

    Metric multidimensional scaling: the best of eight random starts.

    Args:
        distances: what `distance_table` returns.
        behaviours: what `head_behaviours` returns.
        seed: of the random starts.

    Returns:
        Columns layer, head (from 1), x, y (nats) and behaviour.  ``attrs["stress"]`` is the
        normalised stress (Kruskal's stress-1): 0 where the plane keeps every distance.
    """
    scaling = MDS(
        n_components=2,
        metric="precomputed",
        metric_mds=True,
        init="random",
        n_init=8,
        max_iter=1000,
        normalized_stress=False,
        random_state=seed,
    )
    points = scaling.fit_transform(distances.to_numpy())
    layer, head = (_indices(distances) + 1).T
    positions = pd.DataFrame({"layer": layer, "head": head, "x": points[:, 0], "y": points[:, 1]})
    positions = positions.merge(behaviours, on=["layer", "head"], how="left", validate="1:1")
    # Each unordered pair counts once in scikit-learn's raw stress.
    squares = np.square(distances.to_numpy()).sum() / 2
    positions.attrs["stress"] = float(np.sqrt(scaling.stress_ / squares)) if squares else 0.0
    return positions


def mark_findings(positions: pd.DataFrame, findings: Mapping[str, str]) -> pd.DataFrame:
    """Return positions in which heads that find something linguistic are named after it.

    ``findings`` maps what is found ("dobj") to a head ("8-10"); a head of several has them all.
    """
    by_head: dict[tuple[int, int], list[str]] = {}
    for name, label in findings.items():
        by_head.setdefault(parse_head(label), []).append(name)
    heads = zip(positions["layer"] - 1, positions["head"] - 1, strict=True)
    names = [", ".join(by_head.get(head, [])) for head in heads]
    behaviour = [name or own for name, own in zip(names, positions["behaviour"], strict=True)]
    return positions.assign(behaviour=behaviour)


@dataclass(frozen=True)
class Cohesion:
    """Whether heads of one layer are closer to each other than to the heads of other layers.

    ``within`` and ``between`` are mean distances (nats) over pairs of different heads.
    ``p_value`` is that of a one-sided permutation test: the share of random assignments of
    heads to layers, the true one counted in, whose ``between - within`` is as large.
    """

    within: float
    between: float
    p_value: float


def layer_cohesion(
    distances: pd.DataFrame, *, permutations: int = 10_000, seed: int = 0
) -> Cohesion:
    """Compare distances within and between layers (section 6: same-layer heads are close).

    Raises:
        InputError: fewer than two layers, or no layer with two heads: nothing to compare.
    """
    values = distances.to_numpy()
    layer = np.unique(_indices(distances)[:, 0], return_inverse=True)[1]
    same = layer[:, None] == layer
    n_within = same.sum() - len(layer)
    n_between = same.size - same.sum()
    if not (n_within and n_between):
        raise InputError("comparing layers takes two layers, and two heads in one of them")

    total = values.sum()
    observed = _within_sums(values, layer[None])[0]
    rng = np.random.default_rng(seed)
    as_close = 0
    for start in range(0, permutations, PERMUTATIONS_AT_ONCE):
        count = min(PERMUTATIONS_AT_ONCE, permutations - start)
        shuffled = rng.permuted(np.tile(layer, (count, 1)), axis=1)
        # The numbers of pairs and the total never change: a smaller sum within layers is a
        # larger difference.  Rounding must not make the true assignment beat its equals.
        as_close += np.sum(_within_sums(values, shuffled) <= observed + 1e-9 * total)
    return Cohesion(
        within=float(observed / n_within),
        between=float((total - observed) / n_between),
        p_value=float((as_close + 1) / (permutations + 1)),
    )


def _within_sums(
    distances: Float[np.ndarray, "heads heads"], layers: Int[np.ndarray, "assignment heads"]
) -> Float[np.ndarray, " assignment"]:
    """Return each assignment's sum of distances within layers: trace(Z' D Z), Z one-hot."""
    one_hot: Bool[np.ndarray, "assignment heads layer"] = layers[..., None] == np.arange(
        layers.max() + 1
    )
    return np.einsum("phl,phl->p", distances @ one_hot, one_hot)


def _indices(distances: pd.DataFrame) -> Int[np.ndarray, "heads 2"]:
    """Return the layer and head of every row, from 0."""
    return np.array([parse_head(label) for label in distances.index])
