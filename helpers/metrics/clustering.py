"""Which attention heads behave alike (section 6, Figure 6): distances, and tables made of them.

The Jensen-Shannon distance of two heads on an example is the sum over its tokens of the divergence
of their distributions p and q over keys.  The divergence is a difference of entropies:

    JS(p, q) = H(m) - (H(p) + H(q)) / 2,    m = (p + q) / 2.

It is therefore enough to compute ``H(m)`` for every pair of heads, including each head paired with
itself, which takes one logarithm for each pair and each weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.cache import cached
from helpers.data.records import Roles
from helpers.metrics import CODE
from helpers.metrics.heads import LayerNumbers, head_labels, parse_head
from helpers.metrics.reference import BROAD, FIGURE_5, paper_names
from helpers.metrics.statistics import Real
from helpers.metrics.surface import Maps, Masks
from helpers.progress import progress
from helpers.store.cluster import map_shards
from helpers.store.store import Store

SMOOTHING = 1e-3  # p = 0.999 A + 0.001 / n: no weight is zero, so every logarithm is finite
# Distances take most of the time of section 6: they are measured on the first segments, and without
# special tokens on every eighth of these.
SEGMENTS = 300
WORD_DISTANCE_STRIDE = 8
# Figure 6 colours attention heads by these thresholds, which are those of the released analysis.
# "first" is the first token, if it is neither [CLS] nor [SEP].
THRESHOLDS = {  # shares of a head's attention
    **dict.fromkeys(("previous", "current", "next"), 0.5),
    **dict.fromkeys(("cls", "sep", "first", "punctuation"), 0.6),
}

BEHAVIOURS = (*THRESHOLDS, "broad", "other")

PERMUTATIONS = 10_000

Labels = Int[np.ndarray, " head"]  # of the group of each head


def head_distances(attention: Maps) -> Float[np.ndarray, "heads heads"]:
    """Compute the Jensen-Shannon distances between all pairs of attention heads on one example.

    ``D[a, b] = sum_i JS(A_a[i], A_b[i])``, where ``i`` runs over the queries (section 6).

    Parameters
    ----------
    attention : array, shape (layers, heads, queries, keys)
        The attention maps of one example.

    Returns
    -------
    array of float64, shape (layers * heads, layers * heads)
        Distances in nats, symmetric and with a zero diagonal.  Attention heads are ordered layer
        by layer.
    """
    import torch  # late: tables need no torch

    maps = torch.from_numpy(np.require(attention, np.float32, ["W"])).flatten(0, 1)
    halves = ((1 - SMOOTHING) * maps + SMOOTHING / maps.shape[-1]) / 2  # two add up to their mean
    entropies = torch.zeros(len(maps), len(maps), dtype=torch.float64)  # of means, [head, head]
    for head in range(len(maps)):
        mean = halves[head] + halves[head:]  # [partner, query, key]
        by_query = mean.log().mul_(mean).sum(dim=-1)
        partner_entropies = -by_query.sum(dim=-1, dtype=torch.float64)
        entropies[head, head:] = partner_entropies
        entropies[head:, head] = partner_entropies
    head_entropies = entropies.diagonal()
    return (entropies - (head_entropies[:, None] + head_entropies) / 2).numpy()


def renormalise_over_words(
    attention: Maps, roles: Roles, visible: Masks, *, cross: bool = False
) -> Float[np.ndarray, "layer head kept_query word"]:
    """Remove [CLS] and [SEP] from maps and scale each row to sum to one.

    If all attention of a row went to special tokens, it becomes uniform over the words that it sees
    (``visible``).  An example of special tokens only stays as it is.  In ``cross``-attention the
    roles are those of the keys, and all queries stay.
    """
    is_word = roles.punctuation | roles.other
    if not is_word.any():
        return attention
    queries = slice(None) if cross else is_word
    word_attention = attention[:, :, queries][..., is_word]
    sees_word = visible[:, None, queries][..., is_word]  # [layer, 1, query, key]
    has_weight = word_attention.sum(axis=-1, keepdims=True) > 0
    weights = np.where(has_weight, word_attention, sees_word)
    return weights / weights.sum(axis=-1, keepdims=True)


def shard_distances(store: Store, number: int) -> Float[np.ndarray, "2 heads heads"]:
    """Sum the distances over the examples of a shard, with and without special tokens."""
    n_heads = store.layers * store.heads
    sums = np.zeros((2, n_heads, n_heads))
    for example in store.shard(number):
        if example.index >= SEGMENTS:
            break
        attention = example.attention
        sums[0] += head_distances(attention)
        if example.index % WORD_DISTANCE_STRIDE == 0:
            sums[1] += head_distances(
                renormalise_over_words(
                    attention, example.roles, example.visible_keys, cross=example.is_cross
                )
            )
    return sums


def distances(store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the distances between heads over a store, with and without special tokens, once.

    Parameters
    ----------
    store : Store
        Token-level maps of a text, of which the first `SEGMENTS` examples are measured.

    Returns
    -------
    distances, distances_among_words : DataFrame
        Square tables in nats (section 6); rows and columns are named ``layer-head``.  In the second
        one special tokens are left out; it is measured on one of eight examples.
    """

    def compute() -> dict[str, np.ndarray]:
        numbers = [n for n in range(store.n_shards) if store.indices(n).start < SEGMENTS]
        shards = map_shards(shard_distances, store, numbers)
        bar = progress(shards, "section 6", unit="shard", total=len(numbers))
        token_sums, word_sums = np.sum(list(bar), axis=0)
        n_examples = min(SEGMENTS, len(store))
        n_with_words = math.ceil(n_examples / WORD_DISTANCE_STRIDE)
        return {"all": token_sums / n_examples, "words": word_sums / n_with_words}

    means = cached("section-6", compute, inputs={"store": store.key}, code=CODE)
    labels = (store.layers, store.heads, store.layer_numbers)
    return distance_table(means["all"], *labels), distance_table(means["words"], *labels)


def distance_table(
    distances: Float[np.ndarray, "heads heads"], layers: int, heads: int, numbers: LayerNumbers = ()
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

    points = np.zeros((len(distances), 2))
    stress = 0.0
    # Each unordered pair counts once in scikit-learn's raw stress.
    squares = np.square(distances.to_numpy()).sum() / 2
    if squares:  # there are heads that differ
        scaling = MDS(
            metric="precomputed", init="random", n_init=8, max_iter=1000, random_state=seed
        ).fit(distances)
        points = scaling.embedding_
        stress = np.sqrt(scaling.stress_ / squares)
    x, y = points.T
    behaviour = behaviours["behaviour"]
    return behaviours[["layer", "head"]].assign(x=x, y=y, behaviour=behaviour, stress=stress)


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
    findings = pd.Series(dtype=str)  # names of relations by the label of a head
    if "dependency_heads" in tables:
        table = tables["dependency_heads"].set_index("head")
        names = table["relation"].map(paper_names(table["relation"]))
        is_better = table["accuracy_low"] > table["baseline"]
        findings = names[is_better & names.isin(FIGURE_5)]
    head = coreference_head(tables)
    if head:
        findings = pd.concat([findings, pd.Series("coreference", [head])])
    labels = positions["layer"].astype(str) + "-" + positions["head"].astype(str)
    behaviour = positions["behaviour"].set_axis(labels)
    behaviour.update(findings.groupby(level=0).agg(", ".join))
    return positions.assign(behaviour=behaviour.to_numpy())


def coreference_head(tables: Mapping[str, pd.DataFrame]) -> str:
    """Find the label of the best head of coreference; empty if it is no better than head match."""
    if "coreference" not in tables:
        return ""
    systems = tables["coreference"].drop_duplicates("system").set_index("system")
    is_better = systems.loc["head", "accuracy_low"] > systems.loc["head match", "accuracy"]
    return systems.loc["head", "head"] if is_better else ""


def cohesion_table(
    distances: pd.DataFrame,
    words: pd.DataFrame,
    *,
    seed: int = 0,
    behaviours: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Test whether heads of one layer, or of one behaviour, are close to each other.

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
        - "behaviour", with ``behaviours``: heads of one behaviour against heads of different ones,
          among the heads that have a behaviour.  They are partly close by construction: two heads
          that give most of their attention to one token are alike in that.

        ``within`` and ``between`` are the mean distances (nats) over pairs of heads that share
        the layer or behaviour, and over pairs that do not.  ``p_value`` is the share of
        permutations of the heads, the observed assignment included, whose difference between the
        two means is as small.  Numbers are NaN where they need two layers, or two heads in a layer.
    """
    layer = np.array([parse_head(label)[0] for label in distances.index])
    _, layer = np.unique(layer, return_inverse=True)  # neighbours in the model differ by one
    values = distances.to_numpy()
    rows = [
        ("layer", *_compare(values, layer, seed)),
        ("next layer", *_compare(values, layer, seed, farthest=1)),
        ("next layer, words", *_compare(words.to_numpy(), layer, seed, farthest=1)),
    ]
    if behaviours is not None:
        behaviour = np.asarray(behaviours)
        chosen = behaviour != BEHAVIOURS[-1]
        _, labels = np.unique(behaviour[chosen], return_inverse=True)
        rows.append(("behaviour", *_compare(values[np.ix_(chosen, chosen)], labels, seed)))
    return pd.DataFrame(rows, columns=["by", "within", "between", "p_value"])


def _mean_distances(
    distances: Float[np.ndarray, "head head"], labels: Labels, farthest: Real
) -> tuple[float, ...]:
    """Average the distances of two heads with one label, and with labels up to ``farthest`` apart.

    A head is at a distance of zero from itself, which does not count.
    """
    gap = np.abs(labels[:, None] - labels)
    np.fill_diagonal(gap, -1)
    means = []
    for chosen in (gap == 0, (gap > 0) & (gap <= farthest)):
        n_pairs = chosen.sum()
        means.append(distances.sum(where=chosen) / n_pairs if n_pairs else np.nan)
    return tuple(means)


def _compare(
    distances: Float[np.ndarray, "head head"], labels: Labels, seed: int, farthest: Real = np.inf
) -> tuple[float, float, float]:
    """Average distances as `_mean_distances`, with the permutation p-value of their difference.

    The statistic is the mean within minus the mean between.
    """
    labels = labels.astype(np.int16)  # small integers are faster
    within, between = _mean_distances(distances, labels, farthest)
    if np.isnan(within - between):
        return within, between, np.nan
    # Rounding must not make the observed assignment beat its equals.
    threshold = within - between + 1e-9 * distances.mean()
    rng = np.random.default_rng(seed)
    as_close = 1
    for _ in range(PERMUTATIONS):
        mean_within, mean_between = _mean_distances(distances, rng.permutation(labels), farthest)
        as_close += mean_within - mean_between <= threshold
    return within, between, as_close / (PERMUTATIONS + 1)
