"""Which attention heads behave alike (section 6, Figure 6): tables made from their distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.metrics.heads import LayerNumbers, head_labels, parse_head
from helpers.metrics.reference import BROAD, FIGURE_5, paper_names

# Figure 6 colours attention heads by these thresholds, which are those of the released analysis.
POSITION_SHARE = 0.5  # of a head's attention, to one relative position
TOKEN_SHARE = 0.6  # of a head's attention, to one type of token
THRESHOLDS = {
    "previous": POSITION_SHARE,
    "current": POSITION_SHARE,
    "next": POSITION_SHARE,
    "cls": TOKEN_SHARE,
    "sep": TOKEN_SHARE,
    "first": TOKEN_SHARE,  # the first token, if it is neither of these
    "punctuation": TOKEN_SHARE,
}

BEHAVIOURS = (*THRESHOLDS, "broad", "other")

PERMUTATIONS = 10_000
PERMUTATIONS_AT_ONCE = 256  # bounds the memory of the permutation test


def distance_table(
    distances: Float[np.ndarray, "heads heads"],
    layers: int,
    heads: int,
    numbers: LayerNumbers = (),
) -> pd.DataFrame:
    """Label the distances between attention heads.

    Parameters
    ----------
    distances : array, shape (layers * heads, layers * heads)
        Distances in nats; heads are ordered layer by layer.
    layers, heads : int
        The number of layers, and of attention heads in each.
    numbers : sequence of int
        As for `heads.layer_number`.

    Returns
    -------
    DataFrame
        A square table, labelled ``layer-head`` on both sides.
    """
    labels = head_labels(layers, heads, numbers)
    return pd.DataFrame(distances, labels, labels).rename_axis(index="head")


def head_behaviours(heads: pd.DataFrame) -> pd.DataFrame:
    """Name the main behaviour of each attention head, as Figure 6 does.

    A head gets the first of `BEHAVIOURS` that is true of it: its share of attention to a relative
    position or a type of token is at least that in `THRESHOLDS`, or its entropy is at least `BROAD`
    times that of uniform attention.  If none is, it is "other".

    Parameters
    ----------
    heads : DataFrame
        One row per head with the columns of section 3, from `surface.head_table`.

    Returns
    -------
    DataFrame
        ``layer`` and ``head`` (from 1), and ``behaviour``.
    """
    shares = heads.reindex(columns=list(THRESHOLDS))  # the tables of older runs have no "first"
    conditions = [shares[name] >= threshold for name, threshold in THRESHOLDS.items()]
    conditions.append(heads["entropy"] >= BROAD * heads["uniform"])
    behaviours = np.select(conditions, BEHAVIOURS[:-1], default=BEHAVIOURS[-1])
    return heads[["layer", "head"]].assign(behaviour=behaviours)


def head_positions(
    distances: pd.DataFrame, behaviours: pd.DataFrame, *, seed: int = 0
) -> pd.DataFrame:
    """Place attention heads in the plane by multidimensional scaling (Figure 6).

    Metric scaling, the best of eight random starts, keeps the distances as well as it can.

    Parameters
    ----------
    distances : DataFrame
        A `distance_table`.
    behaviours : DataFrame
        The table of `head_behaviours`, in the order of the distances.
    seed : int
        The seed of the random starts.

    Returns
    -------
    DataFrame
        ``layer`` and ``head`` (from 1), ``x`` and ``y`` (nats), ``behaviour``, and ``stress``,
        which is the same in every row: Kruskal's stress-1, 0 if the plane keeps every distance.
    """
    from sklearn.manifold import MDS

    positions = behaviours[["layer", "head"]].assign(
        x=0.0, y=0.0, behaviour=behaviours["behaviour"], stress=0.0
    )
    # Each unordered pair counts once in scikit-learn's raw stress.
    squares = np.square(distances.to_numpy()).sum() / 2
    if squares:  # there are heads that differ
        scaling = MDS(
            metric="precomputed", init="random", n_init=8, max_iter=1000, random_state=seed
        ).fit(distances)
        positions[["x", "y"]] = scaling.embedding_
        positions["stress"] = np.sqrt(scaling.stress_ / squares)
    return positions


def kept_neighbours(distances: pd.DataFrame, positions: pd.DataFrame) -> int:
    """Count the heads whose nearest head is their nearest one in the plane, too.

    Parameters
    ----------
    distances : DataFrame
        A `distance_table`.
    positions : DataFrame
        The table of `head_positions`.
    """
    from scipy.spatial.distance import cdist

    points = positions[["x", "y"]]
    to_itself = np.diag(np.full(len(points), np.inf))  # a head is not its own neighbour
    nearest = (distances.to_numpy() + to_itself).argmin(axis=1)
    nearest_in_plane = (cdist(points, points) + to_itself).argmin(axis=1)
    return int((nearest == nearest_in_plane).sum())


def mark_findings(positions: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Name attention heads after the linguistic relations that they find.

    These are the best head of each relation of the paper's Figure 5 and the best one of
    coreference, if they are better than a fixed offset, or than matching head words.

    Parameters
    ----------
    positions : DataFrame
        The table of `head_positions`.
    tables : mapping of str to DataFrame
        The tables of a run, of which ``dependency_heads`` and ``coreference`` are used if present.

    Returns
    -------
    DataFrame
        The positions.  The ``behaviour`` of those heads is the names of their relations.
    """
    relations = []  # by the label of a head
    if "dependency_heads" in tables:
        table = tables["dependency_heads"].set_index("head")
        names = table["relation"].map(paper_names(table["relation"]))
        is_better = table["accuracy_low"] > table["baseline"]
        relations.append(names[is_better & names.isin(FIGURE_5)])
    if "coreference" in tables:
        systems = tables["coreference"].drop_duplicates("system").set_index("system")
        if systems.loc["head", "accuracy_low"] > systems.loc["head match", "accuracy"]:
            relations.append(pd.Series("coreference", [systems.loc["head", "head"]]))
    labels = head_labels(*positions[["layer", "head"]].max())
    behaviour = positions["behaviour"].set_axis(labels)
    if relations:
        findings = pd.concat(relations).groupby(level=0).agg(", ".join)
        behaviour.loc[findings.index] = findings
    return positions.assign(behaviour=behaviour.to_numpy())


def cohesion_table(
    distances: pd.DataFrame,
    words: pd.DataFrame,
    *,
    seed: int = 0,
    behaviours: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Test whether heads of one layer, of one behaviour, or of one index are close to each other.

    Parameters
    ----------
    distances : DataFrame
        A `distance_table`.
    words : DataFrame
        The same without special tokens.
    seed : int
        The seed of the permutations.
    behaviours : sequence of str, optional
        The behaviour of each head (`head_behaviours`).

    Returns
    -------
    DataFrame
        One row for each comparison ``by``:

        - "layer": heads of one layer against heads of different layers (section 6);
        - "next layer": against only the layers before and after, because distant layers are
          likely to differ in any case;
        - "next layer, words": the same with the distances ``words``;
        - "index": heads with one index in different layers, which share a bias in some models,
          against heads with different indices in different layers;
        - "behaviour", with ``behaviours``: heads of one behaviour against heads of different ones,
          among the heads that have a behaviour.  They are partly close by construction: two heads
          that give most of their attention to one token are alike in that.

        ``within`` and ``between`` are the mean distances (nats) over pairs of heads that share
        the layer or index, and over pairs that do not.  The first three comparisons have a row for
        the heads of each ``layer``, too, without a p-value.  ``p_value`` is the share of
        permutations, the observed assignment included, whose mean within is as small; for
        "next layer", whose difference between the two means is.  Heads are permuted over all
        layers; for "index" in each layer, so that everything heads of a layer have in common is
        kept.  Numbers are NaN where they need two layers, or two heads in a layer.
    """
    last_layer, last_head = parse_head(distances.index[-1])
    layer, index = np.indices((last_layer + 1, last_head + 1)).reshape(2, -1)  # of each head
    has_pairs = last_layer > 0 and last_head > 0
    gap = np.abs(layer[:, None] - layer)  # of two heads, in layers
    is_pair = ~np.eye(len(layer), dtype=bool)
    rows = []
    for by, table, is_between in (
        ("layer", distances, gap > 0),
        ("next layer", distances, gap == 1),
        ("next layer, words", words, gap == 1),
    ):
        values = table.to_numpy()
        is_within = is_pair & (gap == 0)
        groups = layer[None]
        p_value = _p_value(values, groups, seed, adjacent=by != "layer") if has_pairs else np.nan
        rows.append((by, np.nan, _mean(values, is_within), _mean(values, is_between), p_value))
        for number in range(last_layer + 1):
            has_layer = (layer == number)[:, None]
            within = _mean(values, is_within & has_layer)
            rows.append((by, number + 1, within, _mean(values, is_between & has_layer), np.nan))
    values = distances.to_numpy()
    has_same_index = index[:, None] == index
    within = _mean(values, has_same_index & (gap > 0))
    between = _mean(values, ~has_same_index & (gap > 0))
    groups = index.reshape(last_layer + 1, -1)
    p_value = _p_value(values, groups, seed) if has_pairs else np.nan
    rows.append(("index", np.nan, within, between, p_value))
    if behaviours is not None:
        behaviour = np.asarray(behaviours)
        chosen = behaviour != BEHAVIOURS[-1]
        _, group = np.unique(behaviour[chosen], return_inverse=True)
        values = values[np.ix_(chosen, chosen)]
        is_same = group[:, None] == group
        within = _mean(values, is_same & ~np.eye(len(group), dtype=bool))
        between = _mean(values, ~is_same)
        numbers = (np.nan, np.nan, np.nan)
        if np.isfinite(within + between):
            numbers = (within, between, _p_value(values, group[None], seed))
        rows.append(("behaviour", np.nan, *numbers))
    table = pd.DataFrame(rows, columns=["by", "layer", "within", "between", "p_value"])
    return table.astype({"layer": "Int64"})


def _mean(
    distances: Float[np.ndarray, "heads heads"], is_chosen: Bool[np.ndarray, "heads heads"]
) -> float:
    """Average the distances of the chosen pairs of heads; NaN if there are none."""
    return distances[is_chosen].mean() if is_chosen.any() else np.nan


def _p_value(
    distances: Float[np.ndarray, "heads heads"],
    groups: Int[np.ndarray, "block head"],
    seed: int,
    *,
    adjacent: bool = False,
) -> float:
    """Compute the permutation p-value of the mean distance within groups.

    Groups are permuted within blocks.  With ``adjacent``, the statistic is the mean within minus
    the mean distance to the next group.
    """
    observed = _within_sums(distances, groups.reshape(1, -1), adjacent=adjacent)[0]
    # The numbers of pairs and the total never change: a smaller sum within groups is a larger
    # difference.  Rounding must not make the observed assignment beat its equals.
    threshold = observed + 1e-9 * distances.sum()
    rng = np.random.default_rng(seed)
    as_close = 1
    for start in range(0, PERMUTATIONS, PERMUTATIONS_AT_ONCE):
        count = min(PERMUTATIONS_AT_ONCE, PERMUTATIONS - start)
        shuffled = rng.permuted(np.tile(groups, (count, 1, 1)), axis=2).reshape(count, -1)
        as_close += np.sum(_within_sums(distances, shuffled, adjacent=adjacent) <= threshold)
    return float(as_close / (PERMUTATIONS + 1))


def _within_sums(
    distances: Float[np.ndarray, "heads heads"],
    groups: Int[np.ndarray, "assignment heads"],
    *,
    adjacent: bool,
) -> Float[np.ndarray, " assignment"]:
    """Sum the distances within groups for each assignment: trace(Z' D Z), Z one-hot.

    With ``adjacent``, minus those between each group and the next, scaled to as many pairs.
    """
    one_hot = (groups[..., None] == np.arange(groups.max() + 1)).astype(float)
    sums = one_hot.swapaxes(1, 2) @ distances @ one_hot  # [assignment, group, group]
    within = np.trace(sums, axis1=1, axis2=2)
    if not adjacent:
        return within
    n_groups = sums.shape[-1]
    size = len(distances) / n_groups
    pairs_ratio = n_groups * (size - 1) / ((n_groups - 1) * size)
    return within - pairs_ratio * np.trace(sums, offset=1, axis1=1, axis2=2)
