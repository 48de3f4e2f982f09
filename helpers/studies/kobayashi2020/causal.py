"""Does a head's accuracy say what it does?  A causal test of Table 1 of Clark et al. (2019).

Table 1 reads a head that picks the parents of a relation as a head for that relation.  Here the
edges of the relation are removed from one head at a time (`helpers.studies.common.head_edges`), and
the *margin* of the head, its accuracy minus that of the best fixed offset, is correlated with the
*effect*: what happens if the edges are dropped, minus what happens if the other words of the same
row lose as much attention.  Only edges that can be matched in this way count in the difference.

Margins are those of train, and effects are measured on dev.  Heads are a sample of each layer, at
equal distances in the order of margins, because the best heads alone have no range of margins, and
because edges of lower layers can change more of what follows.

A head with a large margin also attends strongly to the edges.  Therefore the margin is also
correlated with the effect *given attention*: the ranks of the mean attention on the edges are
subtracted from both by linear regression (partial rank correlation).

What a probe loses is measured by a bilinear probe of the last layer.  The Attn probe is a sum of
weights times attention, the ablated weights among them, so its loss would follow by construction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import entr
from scipy.stats import rankdata

from helpers.cache import cached
from helpers.errors import InputError
from helpers.metrics.dependency_heads import FUNCTION_MARGIN
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import DIRECTIONS, head_label
from helpers.metrics.statistics import (
    RESAMPLES,
    Clusters,
    Estimate,
    bootstrap_estimate,
    cluster_sums,
    divide,
    resampled_ratios,
)
from helpers.model.encoder import Encoder
from helpers.model.gradients import evenly_spaced
from helpers.probes.bilinear import RANKS, fit_bilinear
from helpers.probes.data import prepare
from helpers.probes.training import candidate_scores
from helpers.store.store import Store
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED
from helpers.studies.common.head_edges import (
    MEASURES,
    RESAMPLED,
    HeadCut,
    Probe,
    WordValues,
    WordVectors,
    edge_effects,
    relation_edges,
    with_vectors,
)
from helpers.studies.kobayashi2020.lenses import SampleSizes, list_articles, with_ratio

MATCHED_HEAD = "dropped in a matched head"
BEST_CHANGES = (DROPPED, MASS_MATCHED, RESAMPLED, MATCHED_HEAD)  # of the best head of a relation
# The measures of effects, and of dropping without a comparison.
TURNS = "turns, matched"
LOSES = "loses, matched"
TURNS_ONLY = "turns"
EFFECTS = (TURNS, LOSES, TURNS_ONLY)
GIVEN_ATTENTION = "margin given attention"
PREDICTORS = {  # the value of a head that is correlated with its effect, and the one held constant
    "margin": ("margin",),
    "attention": ("attention",),
    GIVEN_ATTENTION: ("margin", "attention"),
}
WITHIN = {"all": (-3, -2, -1), "layers": (-3, -1), "relations": (-2, -1)}  # axes of HeadValues
BATCH = 8  # sentences of the same length

HeadValues = Float[np.ndarray, "*resample relation layer head"]
HeadVectors = Float[np.ndarray, "*resample all_heads"]
Sums = tuple[Clusters, Clusters]  # values and totals [article, relation, cut, measure]
Batches = Mapping[str, list[list[int]]]  # of sentences, for each relation


def head_margins(counts: HeadCounts, relation: str) -> Float[np.ndarray, "direction layer head"]:
    """Subtract the accuracy of the best offset from that of each head, on train."""
    train = counts.of_split("train")
    return train.accuracy(relation) - train.offset_accuracy(relation).max(axis=-1, keepdims=True)


def choose_relations(counts: HeadCounts, minimum: int) -> list[str]:
    """List the relations of train whose best head beats the best offset by `FUNCTION_MARGIN`."""
    frequent = counts.of_split("train").frequent(minimum)[1:]  # without "All"
    return [name for name in frequent if head_margins(counts, name).max() >= FUNCTION_MARGIN]


def sample_heads(counts: HeadCounts, relations: Sequence[str], per_layer: int) -> pd.DataFrame:
    """Sample heads of each layer for each relation, at equal distances in the order of margins.

    Parameters
    ----------
    counts
        Counts of a treebank with train sentences.
    relations
        Names of relations.
    per_layer
        Number of heads of each layer.  The first one has the largest margin of the layer.

    Returns
    -------
    DataFrame
        A row for each relation, layer and head: ``relation``, ``layer`` and ``head`` (from 1), the
        ``direction`` in which the head is more accurate, and the ``margin`` on train in percentage
        points.
    """
    rows = []
    for relation in relations:
        margins = head_margins(counts, relation)
        for layer, by_head in enumerate(margins.max(axis=0)):
            order = np.argsort(-by_head, kind="stable").tolist()
            for head in evenly_spaced(order, per_layer):
                direction = DIRECTIONS[margins[:, layer, head].argmax()]
                rows.append((relation, layer + 1, head + 1, direction, by_head[head]))
    return pd.DataFrame(rows, columns=["relation", "layer", "head", "direction", "margin"])


def choose_sentences(store: Store, relations: Sequence[str], count: int) -> Batches:
    """Choose ``count`` batches of dev sentences with each relation, evenly spaced.

    A relation without a batch is left out.
    """
    sentences = {}
    for relation in relations:
        indices = []
        for index, record in enumerate(store.records()):
            if record["split"] == "dev" and relation in record["relations"]:
                indices.append(index)
        batches = batches_of_one_length(store, indices)
        if batches:
            sentences[relation] = evenly_spaced(batches, count)
    return sentences


def batches_of_one_length(store: Store, sentences: Iterable[int]) -> list[list[int]]:
    """Make a batch of the first sentences of each number of tokens, if there are several."""
    by_length = defaultdict(list)
    for sentence in sentences:
        n_tokens = len(store.record(sentence)["inputs"]["input_ids"])
        by_length[n_tokens].append(sentence)
    return [batch[:BATCH] for batch in by_length.values() if len(batch) > 1]


def fit_probe(store: Store) -> Probe:
    """Fit a bilinear probe to the last layer on the intact train sentences (section 5)."""
    data = prepare(store)
    layer = store.layers
    bilinear = fit_bilinear(data, 0, layer=layer, rank=RANKS[0])

    @torch.no_grad()
    def log_probabilities(sentence: int, vectors: WordVectors) -> WordValues:
        sentence_data = with_vectors(data, sentence, layer, vectors)
        scores = candidate_scores(bilinear, sentence_data, [sentence])[0].double()
        parents = data.parses[sentence].heads
        return scores.log_softmax(dim=-1).numpy()[np.arange(len(parents)), parents]

    return log_probabilities


def list_cuts(heads: pd.DataFrame) -> dict[str, list[HeadCut]]:
    """List the ablations of the heads of each relation: each head dropped, then mass-matched.

    ``heads`` is the table of `sample_heads`.
    """
    cuts = defaultdict(list)
    for row in heads.itertuples():
        for mode in (DROPPED, MASS_MATCHED):
            cuts[row.relation].append(HeadCut(row.layer - 1, row.head - 1, row.direction, mode))
    return dict(cuts)


def compare_best_head(
    store: Store, counts: HeadCounts, relation: str, sentences: Sequence[int]
) -> list[HeadCut]:
    """List the `BEST_CHANGES` of the head with the largest margin for a relation.

    The matched head is the head of the same layer without a margin that is most like it in its mean
    attention on the edges of the sentences and in its mean entropy, each in standard deviations
    over the heads of the layer.
    """
    margins = head_margins(counts, relation)
    direction, layer, head = np.unravel_index(margins.argmax(), margins.shape)
    best = HeadCut(int(layer), int(head), DIRECTIONS[direction], DROPPED)
    masses = []
    entropies = []
    for sentence in sentences:
        example = store[sentence]
        attention = example.attention[layer]  # [head, query, key]
        entropies.append(entr(attention).sum(axis=-1).mean(axis=-1))
        for edge in relation_edges(example.record, relation, best.direction):
            masses.append(attention[:, edge.query + example.offset, edge.key + example.offset])
    profiles = np.column_stack([np.mean(masses, axis=0), np.mean(entropies, axis=0)])
    distances = np.linalg.norm((profiles - profiles[head]) / profiles.std(axis=0), axis=1)
    layer_margins = margins[:, layer].max(axis=0)
    has_margin = layer_margins > max(0, layer_margins.min())
    distances[has_margin] = np.inf
    distances[head] = np.inf
    changes = [best._replace(mode=mode) for mode in BEST_CHANGES[:-1]]
    return [*changes, best._replace(head=int(distances.argmin()))]


def measure_cuts(
    encoder: Encoder,
    store: Store,
    sentences: Batches,
    cuts: Mapping[str, Sequence[HeadCut]],
    probe: Probe | None,
) -> Sums:
    """Sum the `edge_effects` of each relation's ablations, which are equally many, by article."""
    articles = np.array(list_articles(store.records()))
    clusters = np.unique(articles)
    sums = []
    for relation, changes in cuts.items():
        batches = sentences[relation]
        effects = edge_effects(encoder, store, batches, relation, changes, probe)
        owner = articles[np.concatenate(batches)]
        sums.append([cluster_sums(values, owner, clusters) for values in effects])
    values, totals = np.stack(sums, axis=2)
    is_used = totals.any(axis=(1, 2, 3))
    return values[is_used], totals[is_used]


def effect_table(heads: pd.DataFrame, sums: Sums) -> pd.DataFrame:
    """Add to the table of `sample_heads` the `head_effects` of each head, over all articles.

    The sums are those of `measure_cuts` for `list_cuts`.
    """
    values, totals = [array.sum(axis=0) for array in sums]
    ratios = divide(values, totals).reshape(len(heads), 2, len(MEASURES))
    return heads.assign(**head_effects(ratios))


def head_effects(ratios: Float[np.ndarray, "*batch head change measure"]) -> dict[str, np.ndarray]:
    """Compute the `EFFECTS` of heads that are dropped and mass-matched, and the attention."""
    dropped, matched = np.moveaxis(ratios, (-2, -1), (0, 1))  # each [measure, ..., head]
    effects = {name: (dropped - matched)[MEASURES.index(name)] for name in (TURNS, LOSES)}
    for name in (TURNS_ONLY, "attention", "unmatched"):
        effects[name] = dropped[MEASURES.index(name)]
    return effects


def rank_correlation(
    effect: HeadValues, within: str, predictor: HeadValues, *held_constant: HeadValues
) -> Float[np.ndarray, "*resample"] | float:
    """Compute Spearman's correlation of a predictor and an effect over heads.

    Parameters
    ----------
    effect
        A value for each head.  A head whose effect is NaN is left out.
    within
        "all": ranks are over all heads.  "layers", "relations": ranks are over the heads of a layer
        or of a relation, centred, and pooled; what layers or relations have in common then does not
        count.
    predictor
        A value for each head.
    *held_constant
        Values of heads: what a linear regression on their ranks predicts is
        subtracted from the ranks of both.

    Returns
    -------
    array or float
        A number for each resample, or one number; NaN if all ranks are equal.
    """
    *constants, x, y = [
        centred_ranks(np.where(np.isnan(effect), np.nan, values), within)
        for values in (*held_constant, predictor, effect)
    ]
    for constant in constants:
        x = unit_length(x - (x * constant).sum(axis=-1, keepdims=True) * constant)
        y = unit_length(y - (y * constant).sum(axis=-1, keepdims=True) * constant)
    return (x * y).sum(axis=-1)


def centred_ranks(values: HeadValues, within: str) -> HeadVectors:
    """Rank heads within groups, minus the mean rank of the group; a vector of length 1.

    A head whose value is NaN has 0.
    """
    axes = WITHIN[within]
    by_group = np.moveaxis(values, axes, range(-len(axes), 0))
    values_in_groups = by_group.reshape(*by_group.shape[: -len(axes)], -1)
    ranks = np.ma.masked_invalid(rankdata(values_in_groups, axis=-1, nan_policy="omit"))
    centred = ranks - ranks.mean(axis=-1, keepdims=True)
    return unit_length(centred.filled(0).reshape(*values.shape[:-3], -1))


def unit_length(vectors: HeadVectors) -> HeadVectors:
    """Divide vectors by their lengths; NaN for a vector of zeros."""
    return divide(vectors, np.linalg.norm(vectors, axis=-1, keepdims=True))


def correlation_table(heads: pd.DataFrame, sums: Sums, seed: int) -> pd.DataFrame:
    """Correlate margins, and attention on the edges, with the effects of the heads.

    Parameters
    ----------
    heads
        The table of `sample_heads`.
    sums
        The sums of `measure_cuts`: each head dropped, then mass-matched.
    seed
        Seed of the resamples.

    Returns
    -------
    DataFrame
        A row for each of the `PREDICTORS`, effect and group within which ranks are compared:
        ``correlation`` with its interval.  Each resample is one of articles and, independently, one
        of relations.  A relation without a word in the resampled articles keeps its value of all
        articles.
    """
    n_articles, n_relations = sums[0].shape[:2]
    by_head = (n_relations, heads["layer"].max(), -1)
    values, totals = [array.reshape(n_articles, *by_head, 2, len(MEASURES)) for array in sums]
    ratios = divide(values.sum(axis=0), totals.sum(axis=0))
    replicates = resampled_ratios(values, totals)
    samples = np.concatenate([ratios[None], np.where(np.isnan(replicates), ratios, replicates)])
    relations = np.random.default_rng(seed).integers(n_relations, size=(RESAMPLES, n_relations))
    relations = np.vstack([np.arange(n_relations), relations])  # the first sample has all of them
    values_of_heads = head_effects(samples[np.arange(len(samples))[:, None], relations])
    values_of_heads["margin"] = heads["margin"].to_numpy().reshape(by_head)[relations]
    rows = []
    for predictor, effect, within in product(PREDICTORS, EFFECTS, WITHIN):
        predictors = [values_of_heads[name] for name in PREDICTORS[predictor]]
        value, *replicates = rank_correlation(values_of_heads[effect], within, *predictors)
        estimate = Estimate(np.nan, df=np.nan)
        if not np.isnan(value):  # NaN if all effects are equal
            estimate = bootstrap_estimate(value, replicates, min(n_articles, n_relations))
        labels = {"predictor": predictor, "effect": effect, "within": within}
        rows.append({**labels, **estimate.columns("correlation", df=True)})
    return pd.DataFrame(rows)


def best_head_table(
    encoder: Encoder, store: Store, counts: HeadCounts, sentences: Batches, probe: Probe
) -> pd.DataFrame:
    """Tabulate what each of the `BEST_CHANGES` of each relation's best head does.

    Parameters
    ----------
    encoder
        The model.
    store
        Its word-level maps of a treebank.
    counts
        The counts of the store.
    sentences
        From `choose_sentences`.
    probe
        From `fit_probe`.

    Returns
    -------
    DataFrame
        A row for each relation, change and measure (`MEASURES`): the ``head``, the
        ``matched_head``, and the ``value`` with its interval over articles.
    """
    cuts = {}
    rows = []
    for relation, batches in sentences.items():
        indices = np.concatenate(batches).tolist()
        cuts[relation] = compare_best_head(store, counts, relation, indices)
        best, *_, matched = [head_label(cut.layer, cut.head) for cut in cuts[relation]]
        for change, measure in product(BEST_CHANGES, MEASURES):
            rows.append((relation, best, matched, change, measure))
    table = pd.DataFrame(rows, columns=["relation", "head", "matched_head", "change", "measure"])
    values, totals = measure_cuts(encoder, store, sentences, cuts, probe)
    return with_ratio(table, "value", values, totals)


def causal_tables(
    encoder: Encoder,
    store: Store,
    counts: HeadCounts,
    relations: Sequence[str],
    size: SampleSizes,
    *,
    with_best: bool = True,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Ablate the edges of relations head by head, and relate the effects to the margins.

    Parameters
    ----------
    encoder
        The model.
    store
        Its word-level maps of a treebank; with ``with_best`` also its vectors.
    counts
        The counts of the store.
    relations
        Names of the relations (`choose_relations`).
    size
        The numbers of batches and of heads.
    with_best
        Whether a probe is fitted, and the best heads are compared with further changes.  Without
        it the effects on the probe are 0.
    seed
        Seed of the resamples.

    Returns
    -------
    dict of str to DataFrame
        ``head_edge_effects``: `effect_table`, with the `EFFECTS`, the attention on the edges, and
        the share of edges that cannot be matched.
        ``head_edge_correlations``: `correlation_table`.
        ``head_edges``: `best_head_table`.

    Raises
    ------
    InputError
        If no dev sentence has one of the relations.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """

    def compute() -> dict[str, pd.DataFrame]:
        sentences = choose_sentences(store, relations, size.batches)
        if not sentences:
            raise InputError(
                f"no head beats its offset by {FUNCTION_MARGIN} percentage points in a relation of "
                "several dev sentences of one length; give a treebank with more sentences"
            )
        heads = sample_heads(counts, list(sentences), size.heads)
        probe = fit_probe(store) if with_best else None
        sums = measure_cuts(encoder, store, sentences, list_cuts(heads), probe)
        tables = {
            "head_edge_effects": effect_table(heads, sums),
            "head_edge_correlations": correlation_table(heads, sums, seed),
        }
        if with_best:
            tables["head_edges"] = best_head_table(encoder, store, counts, sentences, probe)
        return tables

    inputs = {
        "store": store.key,
        "model": encoder.identity,
        "relations": list(relations),
        "size": size,
        "best": with_best,
        "seed": seed,
    }
    return cached("head-edges", compute, inputs=inputs, layer="studies/kobayashi2020")
