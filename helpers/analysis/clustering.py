"""Which heads behave alike (section 6, Figure 6): tables made from the distances of heads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.analysis.head_distance import closeness
from helpers.analysis.heads import head_labels, head_rows, parse_head
from helpers.analysis.paper import BROAD, FIGURE_5, paper_names

# What Figure 6 colours heads by, with the values of the released analysis.
POSITION_SHARE = 0.5  # of a head's attention, to one relative position
TOKEN_SHARE = 0.6  # of a head's attention, to one type of token

BEHAVIOURS = ("previous", "current", "next", "cls", "sep", "punctuation", "broad", "other")

PERMUTATIONS = 10_000
PERMUTATIONS_AT_ONCE = 256  # bounds the memory of the permutation test


def distance_table(
    distances: Float[np.ndarray, "heads heads"], layers: int, heads: int
) -> pd.DataFrame:
    """Return distances (nats) as a square table, labelled ``layer-head`` on both sides."""
    labels = pd.Index(head_labels(layers, heads), name="head")
    return pd.DataFrame(distances, index=labels, columns=labels.rename(None))


def head_behaviours(heads: pd.DataFrame) -> pd.DataFrame:
    """Name what each head mostly does, from section 3's columns: layer, head (from 1), behaviour.

    A head gets the first of `BEHAVIOURS` that holds: its share of attention to a relative
    position is `POSITION_SHARE` or more, to a type of token `TOKEN_SHARE` or more, or its entropy
    is `BROAD` or more of that of uniform attention; else "other".
    """
    holds = [
        *(heads[name] >= POSITION_SHARE for name in ("previous", "current", "next")),
        *(heads[name] >= TOKEN_SHARE for name in ("cls", "sep", "punctuation")),
        heads["entropy"] >= BROAD * heads["uniform"],
    ]
    behaviour = np.select(holds, BEHAVIOURS[:-1], default=BEHAVIOURS[-1])
    return heads[["layer", "head"]].assign(behaviour=behaviour)


def head_positions(
    distances: pd.DataFrame, behaviours: pd.DataFrame, *, seed: int = 0
) -> pd.DataFrame:
    """Place heads in the plane so that their distances are kept as well as possible (Figure 6).

    Metric multidimensional scaling of a `distance_table`, the best of eight random starts, beside
    `head_behaviours`.  ``x`` and ``y`` are in nats; ``stress``, the same in every row, is Kruskal's
    stress-1: 0 where the plane keeps every distance.
    """
    from sklearn.manifold import MDS

    values, stress = distances.to_numpy(), 0.0
    if len(values) > 2:
        found = MDS(
            metric="precomputed", init="random", n_init=8, max_iter=1000, random_state=seed
        ).fit(values)
        points, stress = found.embedding_, found.stress_
    else:  # one head, or two: there is nothing to choose
        points = np.column_stack([values[0] - values[0].mean(), np.zeros(len(values))])
    positions = head_rows(*_shape(distances), x=points[:, 0], y=points[:, 1])
    positions = positions.merge(behaviours, on=["layer", "head"], how="left", validate="1:1")
    # Each unordered pair counts once in scikit-learn's raw stress.
    squares = np.square(values).sum() / 2
    return positions.assign(stress=np.sqrt(stress / squares) if squares else 0.0)


def mark_findings(positions: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return positions in which heads that find something linguistic are named after it.

    That is the best head of each relation of the paper's Figure 5 and of coreference, as far as
    dependency_heads and coreference are among ``tables`` and the head is better than a fixed
    offset, or than matching head words; a head of several has all their names.
    """
    found: dict[str, list[str]] = {}
    if "dependency_heads" in tables:
        best = tables["dependency_heads"].set_index("relation")
        names = paper_names(best.index)
        for relation, row in best[best["ci_low"] > best["baseline"]].iterrows():
            if names.get(relation) in FIGURE_5:
                found.setdefault(row["head"], []).append(names[relation])
    if "coreference" in tables:
        best = tables["coreference"].drop_duplicates("system").set_index("system")
        if best.loc["head", "ci_low"] > best.loc["head match", "accuracy"]:
            found.setdefault(best.loc["head", "head"], []).append("coreference")
    labels = head_labels(*positions[["layer", "head"]].max())
    both = zip(labels, positions["behaviour"], strict=True)
    return positions.assign(behaviour=[", ".join(found.get(own, [plain])) for own, plain in both])


def cohesion_table(
    distances: pd.DataFrame, words: pd.DataFrame | None = None, *, seed: int = 0
) -> pd.DataFrame:
    """Return whether heads of one layer, and heads of one index, are close to each other.

    A row ``by`` "layer" (section 6: heads of a layer are close), "next layer" (against the layers
    before and after alone: what lies far apart in a model is likely to be so in what it does),
    "next layer, words" (that with distances among ``words``), and "index" (heads of one number in
    different layers, which share a bias in some models).  ``within`` and ``between``: the mean
    distances (nats) over pairs of heads that have it in common, and over those that do not, for
    "index" in different layers alone.  ``p_value``: the share of random assignments, the true one
    counted in, that make the mean within, or for "next layer" its difference from that between, as
    small; heads are shuffled over all layers, for "index" within their layers, so that what layers
    have in common stays.  All three are empty where there are no two layers of two heads.
    """
    layers, per_layer = _shape(distances)
    layer, index = np.indices((layers, per_layer))
    one_row = layer.reshape(1, -1)
    kinds = [
        ("layer", distances, one_row, ("within_layers", "between_layers")),
        ("next layer", distances, one_row, ("within_layers", "neighbouring_layers")),
        ("next layer, words", words, one_row, ("within_layers", "neighbouring_layers")),
        ("index", distances, index, ("within_indices", "between_indices")),
    ]
    rows = []
    for by, square, group, names in kinds:
        if square is not None:
            values = square.to_numpy()
            near = closeness(values, layers, per_layer)
            means = [near[name] for name in names]
            nothing, next_to = np.isnan(means).any(), by.startswith("next")
            p_value = np.nan if nothing else _as_close(values, group, seed, next_to)
            rows.append((by, *means, p_value))
    return pd.DataFrame(rows, columns=["by", "within", "between", "p_value"])


def _as_close(
    values: Float[np.ndarray, "heads heads"],
    groups: Int[np.ndarray, "block head"],
    seed: int,
    next_to: bool,
) -> float:
    """Return the share of assignments, shuffled within blocks, that bring groups as close.

    With ``next_to``, closer than each is to the next group.
    """
    observed = _within_sums(values, groups.reshape(1, -1), next_to)[0]
    rng = np.random.default_rng(seed)
    as_close = 1
    for start in range(0, PERMUTATIONS, PERMUTATIONS_AT_ONCE):
        count = min(PERMUTATIONS_AT_ONCE, PERMUTATIONS - start)
        shuffled = rng.permuted(np.tile(groups, (count, 1, 1)), axis=2).reshape(count, -1)
        # The numbers of pairs and the total never change: a smaller sum within groups is a
        # larger difference.  Rounding must not make the true assignment beat its equals.
        as_close += np.sum(
            _within_sums(values, shuffled, next_to) <= observed + 1e-9 * values.sum()
        )
    return float(as_close / (PERMUTATIONS + 1))


def _within_sums(
    distances: Float[np.ndarray, "heads heads"],
    groups: Int[np.ndarray, "assignment heads"],
    next_to: bool,
) -> Float[np.ndarray, " assignment"]:
    """Return each assignment's sum of distances within groups: trace(Z' D Z), Z one-hot.

    With ``next_to`` less that between each group and the next, of as many pairs as within.
    """
    one_hot = (groups[..., None] == np.arange(groups.max() + 1)).astype(float)
    sums = one_hot.swapaxes(1, 2) @ distances @ one_hot  # [assignment, group, group]
    within = np.trace(sums, axis1=1, axis2=2)
    if not next_to:
        return within
    count, size = sums.shape[-1], len(distances) / sums.shape[-1]
    pairs = count * (size - 1) / ((count - 1) * size)
    return within - pairs * np.trace(sums, offset=1, axis1=1, axis2=2)


def _shape(distances: pd.DataFrame) -> tuple[int, int]:
    """Return how many layers there are, and how many heads in each."""
    layer, head = parse_head(distances.index[-1])
    return layer + 1, head + 1
