"""Which attention heads behave alike (section 6, Figure 6): tables made from their distances."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.metrics.heads import head_labels, head_rows, parse_head
from helpers.metrics.reference import BROAD, FIGURE_5, paper_names

# Figure 6 colours attention heads by these thresholds, which are those of the released analysis.
POSITION_SHARE = 0.5  # of a head's attention, to one relative position
TOKEN_SHARE = 0.6  # of a head's attention, to one type of token

BEHAVIOURS = ("previous", "current", "next", "cls", "sep", "punctuation", "broad", "other")

PERMUTATIONS = 10_000
PERMUTATIONS_AT_ONCE = 256  # bounds the memory of the permutation test


def distance_table(
    distances: Float[np.ndarray, "heads heads"], layers: int, heads: int
) -> pd.DataFrame:
    """Label the distances between attention heads.

    Parameters
    ----------
    distances : array, shape (layers * heads, layers * heads)
        Distances in nats; heads are ordered layer by layer.
    layers, heads : int
        The number of layers, and of attention heads in each.

    Returns
    -------
    DataFrame
        A square table, labelled ``layer-head`` on both sides.
    """
    labels = pd.Index(head_labels(layers, heads), name="head")
    return pd.DataFrame(distances, index=labels, columns=labels.rename(None))


def head_behaviours(heads: pd.DataFrame) -> pd.DataFrame:
    """Name the main behaviour of each attention head, as Figure 6 does.

    A head gets the first of `BEHAVIOURS` that is true of it: its share of attention to a relative
    position is `POSITION_SHARE` or more, its share to a type of token is `TOKEN_SHARE` or more, or
    its entropy is at least `BROAD` times that of uniform attention.  If none is, it is "other".

    Parameters
    ----------
    heads : DataFrame
        One row per head with the columns of section 3, from `surface.head_table`.

    Returns
    -------
    DataFrame
        ``layer`` and ``head`` (from 1), and ``behaviour``.
    """
    conditions = []
    for name in ("previous", "current", "next"):
        conditions.append(heads[name] >= POSITION_SHARE)
    for name in ("cls", "sep", "punctuation"):
        conditions.append(heads[name] >= TOKEN_SHARE)
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
        The table of `head_behaviours`.
    seed : int
        The seed of the random starts.

    Returns
    -------
    DataFrame
        ``layer`` and ``head`` (from 1), ``x`` and ``y`` (nats), ``behaviour``, and ``stress``,
        which is the same in every row: Kruskal's stress-1, 0 if the plane keeps every distance.
    """
    from sklearn.manifold import MDS

    values = distances.to_numpy()
    if len(values) > 2:
        scaling = MDS(
            metric="precomputed", init="random", n_init=8, max_iter=1000, random_state=seed
        ).fit(values)
        points = scaling.embedding_
        raw_stress = scaling.stress_
    else:  # a line is enough for two heads
        points = np.column_stack([values[0] - values[0].mean(), np.zeros(len(values))])
        raw_stress = 0.0
    layers, heads = _shape(distances)
    x, y = points.round(6).T  # further digits differ between runs, which a pixel can show
    positions = head_rows(layers, heads, x=x, y=y)
    positions = positions.merge(behaviours, on=["layer", "head"], how="left", validate="1:1")
    # Each unordered pair counts once in scikit-learn's raw stress.
    squares = np.square(values).sum() / 2
    return positions.assign(stress=np.sqrt(raw_stress / squares) if squares else 0.0)


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

    points = positions[["x", "y"]].to_numpy()
    nearest = []
    for matrix in (distances.to_numpy(copy=True), cdist(points, points)):
        np.fill_diagonal(matrix, np.inf)  # a head is not its own neighbour
        nearest.append(matrix.argmin(axis=1))
    return int(np.sum(nearest[0] == nearest[1]))


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
    found_by = []  # pairs of head and relation
    if "dependency_heads" in tables:
        table = tables["dependency_heads"]
        names = table["relation"].map(paper_names(table["relation"]))
        is_better = table["accuracy_low"] > table["baseline"]
        is_marked = is_better & names.isin(FIGURE_5)
        found_by += zip(table.loc[is_marked, "head"], names[is_marked], strict=True)
    if "coreference" in tables:
        systems = tables["coreference"].drop_duplicates("system").set_index("system")
        if systems.loc["head", "accuracy_low"] > systems.loc["head match", "accuracy"]:
            found_by.append((systems.loc["head", "head"], "coreference"))
    relations = pd.DataFrame(found_by, columns=["head", "relation"])
    findings = relations.groupby("head")["relation"].agg(", ".join).to_dict()
    labels = head_labels(*positions[["layer", "head"]].max())
    behaviours = zip(labels, positions["behaviour"], strict=True)
    return positions.assign(
        behaviour=[findings.get(label, behaviour) for label, behaviour in behaviours]
    )


def cohesion_table(distances: pd.DataFrame, words: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Test whether attention heads of one layer, and heads of one index, are close to each other.

    Parameters
    ----------
    distances : DataFrame
        A `distance_table`.
    words : DataFrame
        The same without special tokens.
    seed : int
        The seed of the permutations.

    Returns
    -------
    DataFrame
        One row for each comparison ``by``:

        - "layer": heads of one layer against heads of different layers (section 6);
        - "next layer": against only the layers before and after, because distant layers are
          likely to differ in any case;
        - "next layer, words": the same with the distances ``words``;
        - "index": heads with one index in different layers, which share a bias in some models,
          against heads with different indices in different layers.

        ``within`` and ``between`` are the mean distances (nats) over pairs of heads that share
        the layer or index, and over pairs that do not.  ``p_value`` is the share of permutations,
        the observed assignment included, whose mean within is as small; for "next layer", whose
        difference between the two means is.  Heads are permuted over all layers; for "index" in
        each layer, so that everything heads of a layer have in common is kept.  The three are
        empty unless there are two layers of two heads.
    """
    layers, heads = _shape(distances)
    layer, index = np.indices((layers, heads)).reshape(2, -1)
    gap = np.abs(layer[:, None] - layer)
    has_same_index = index[:, None] == index
    in_one_layer = (gap == 0) & ~has_same_index
    in_other_layer = gap > 0
    one_block = layer[None]
    by_index = index.reshape(layers, heads)
    with_same_index = in_other_layer & has_same_index
    comparisons = [
        ("layer", distances, one_block, in_one_layer, in_other_layer),
        ("next layer", distances, one_block, in_one_layer, gap == 1),
        ("next layer, words", words, one_block, in_one_layer, gap == 1),
        ("index", distances, by_index, with_same_index, in_other_layer & ~has_same_index),
    ]
    rows = []
    for by, table, groups, is_within, is_between in comparisons:
        values = table.to_numpy()
        within, between, p_value = np.full(3, np.nan)
        if is_within.any():
            within = values[is_within].mean()
        if is_between.any():
            between = values[is_between].mean()
        if is_within.any() and is_between.any():
            p_value = _permutation_p_value(values, groups, seed, adjacent=by.startswith("next"))
        rows.append((by, within, between, p_value))
    return pd.DataFrame(rows, columns=["by", "within", "between", "p_value"])


def layer_cohesion(distances: pd.DataFrame, words: pd.DataFrame) -> pd.DataFrame:
    """Compare, for each layer, the distances between its heads with those to heads of others.

    Parameters
    ----------
    distances, words : DataFrame
        As for `cohesion_table`.

    Returns
    -------
    DataFrame
        One row for each ``layer``.  Mean distances in nats: ``within`` the layer, to the
        ``neighbouring`` layers before and after, and ``between`` it and all other layers; and the
        same without special tokens (``within_words`` ...).  A number is NaN where no pair of heads
        exists.
    """
    layers, heads = _shape(distances)
    layer = np.repeat(np.arange(layers) + 1, heads)
    table = pd.DataFrame({"layer": np.arange(layers) + 1})
    gap = np.abs(table["layer"].to_numpy()[:, None] - table["layer"].to_numpy())
    for ending, square in (("", distances), ("_words", words)):
        # A head is no pair with itself.
        values = np.where(np.eye(len(square), dtype=bool), np.nan, square)
        by_head = pd.DataFrame(values).groupby(layer).mean()  # [layer, head]
        by_layer = by_head.T.groupby(layer).mean()  # [layer, layer]
        table[f"within{ending}"] = np.diag(by_layer)
        table[f"neighbouring{ending}"] = by_layer.where(gap == 1).mean().to_numpy()
        table[f"between{ending}"] = by_layer.where(gap > 0).mean().to_numpy()
    return table


def _permutation_p_value(
    distances: Float[np.ndarray, "heads heads"],
    groups: Int[np.ndarray, "block head"],
    seed: int,
    *,
    adjacent: bool,
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


def _shape(distances: pd.DataFrame) -> tuple[int, int]:
    """Read the number of layers, and of heads in each, from the label of the last head."""
    layer, head = parse_head(distances.index[-1])
    return layer + 1, head + 1
