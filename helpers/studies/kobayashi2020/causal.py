"""Does a head's accuracy say what it does?  A causal test of Table 1 of Clark et al. (2019).

Table 1 reads a head that picks the parents of a relation as a head for that relation.  Here the
edges of the relation are removed from one head at a time (`helpers.studies.common.head_edges`), and
the *margin* of the head, its accuracy minus that of the best fixed offset, is correlated with the
*effect*: what happens if the edges are dropped, minus what happens if the other words of the same
row lose as much attention.  Only edges that can be matched in this way count in the difference.

Margins are those of train, and effects are measured on dev.  Heads are a sample of each layer, at
equal distances in the order of margins, because the best heads alone have no range of margins, and
because edges of lower layers can change more of what follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import entr
from scipy.stats import rankdata

from helpers.cache import cached
from helpers.data.records import cluster_of
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
    resampled_ratios,
)
from helpers.model.encoder import Encoder
from helpers.model.forward import model_inputs
from helpers.model.gradients import evenly_spaced
from helpers.probes.bilinear import RANKS, fit_bilinear
from helpers.probes.data import prepare
from helpers.probes.training import candidate_scores
from helpers.settings import Settings
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
)
from helpers.studies.kobayashi2020.lenses import MANY_HEADS, with_ratio

MATCHED_HEAD = "dropped in a matched head"
BEST_CHANGES = (DROPPED, MASS_MATCHED, RESAMPLED, MATCHED_HEAD)  # of the best head of a relation
# The measures of effects, and of dropping without a comparison.
TURNS, LOSES, TURNS_ONLY = EFFECTS = ("turns, matched", "loses, matched", "turns")
PREDICTORS = ("margin", "attention")
WITHIN = {"all": (0, 1, 2), "layers": (0, 2), "relations": (1, 2)}  # of [relation, layer, head]
BATCH = 8  # sentences of the same length

HeadValues = Float[np.ndarray, "*resample relation layer head"]
Sums = tuple[Clusters, Clusters]  # values and totals [article, relation, cut, measure]
Batches = Mapping[str, list[list[int]]]  # of sentences, for each relation


class SampleSize(NamedTuple):
    """Numbers of batches of sentences for each relation, and of heads for each layer."""

    batches: int
    heads: int


def sample_size(settings: Settings, heads: int) -> SampleSize:
    """Choose the size of the sample for a model with some number of heads in all layers."""
    if settings.preset == "small":
        return SampleSize(batches=1, heads=2)
    return SampleSize(batches=3 if heads > MANY_HEADS else 8, heads=3)


def head_margins(counts: HeadCounts, relation: str) -> Float[np.ndarray, "direction layer head"]:
    """Subtract the accuracy of the best offset from that of each head, on train."""
    offsets = counts.accuracy(relation, "train", offsets=True)
    return counts.accuracy(relation, "train") - offsets.max()


def choose_relations(counts: HeadCounts, minimum: int) -> list[str]:
    """List the relations of train whose best head beats the best offset by `FUNCTION_MARGIN`."""
    relations = []
    for relation in counts.frequent(minimum, "train")[1:]:  # without "All"
        if head_margins(counts, relation).max() >= FUNCTION_MARGIN:
            relations.append(relation)
    return relations


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


def choose_sentences(
    encoder: Encoder, store: Store, relations: Sequence[str], count: int
) -> dict[str, list[list[int]]]:
    """Choose ``count`` batches of dev sentences with each relation, evenly spaced.

    The sentences of a batch have the same number of tokens; one without another of its length is
    left out, and so is a relation without any.
    """
    sentences = {}
    for relation in relations:
        by_length = defaultdict(list)
        for index, record in enumerate(store.records()):
            if record["split"] == "dev" and relation in record["relations"]:
                by_length[len(model_inputs(encoder, record)["input_ids"])].append(index)
        batches = [indices[:BATCH] for indices in by_length.values() if len(indices) > 1]
        if batches:
            sentences[relation] = evenly_spaced(batches, count)
    return sentences


def fit_probe(store: Store) -> Probe:
    """Fit a bilinear probe to the last layer on the intact train sentences (section 5)."""
    data = prepare(store)
    layer = store.layers
    bilinear = fit_bilinear(data, 0, layer=layer, rank=RANKS[0])

    @torch.no_grad()
    def log_probabilities(sentence: int, vectors: WordVectors) -> WordValues:
        centred = (vectors - vectors.mean(dim=0)).numpy()
        changed = replace(data, states={(sentence, layer): centred})
        scores = candidate_scores(bilinear, changed, [sentence])[0].double()
        parents = data.parses[sentence].heads
        return scores.log_softmax(dim=-1).numpy()[np.arange(len(parents)), parents]

    return log_probabilities


def match_head(
    store: Store,
    sentences: Sequence[int],
    relation: str,
    cut: HeadCut,
    margins: Float[np.ndarray, " head"],
) -> int:
    """Find the head of the same layer that is most like a head, but has no margin.

    Likeness is in the mean attention on the edges of the relation and in the mean entropy, each in
    standard deviations over the heads of the layer.
    """
    masses = []
    entropies = []
    for sentence in sentences:
        example = store[sentence]
        attention = example.attention[cut.layer]  # [head, query, key]
        entropies.append(entr(attention).sum(axis=-1).mean(axis=-1))
        for *_, query, key in relation_edges(example.record, relation, cut.direction):
            masses.append(attention[:, query + example.offset, key + example.offset])
    profiles = np.column_stack([np.mean(masses, axis=0), np.mean(entropies, axis=0)])
    distances = np.linalg.norm((profiles - profiles[cut.head]) / profiles.std(axis=0), axis=1)
    distances[margins > max(0, margins.min())] = np.inf
    distances[cut.head] = np.inf
    return int(distances.argmin())


def compare_best_heads(
    store: Store, counts: HeadCounts, heads: pd.DataFrame, sentences: Batches
) -> tuple[list[tuple[str, str, str]], dict[str, list[HeadCut]]]:
    """List each relation with its best head and its matched head, and the `BEST_CHANGES`."""
    labels = []
    cuts = {}
    for relation, of_relation in heads.groupby("relation", sort=False):
        best = of_relation.loc[of_relation["margin"].idxmax()]
        cut = HeadCut(best["layer"] - 1, best["head"] - 1, best["direction"], DROPPED)
        margins = head_margins(counts, relation)[:, cut.layer].max(axis=0)
        indices = np.concatenate(sentences[relation]).tolist()
        matched = match_head(store, indices, relation, cut, margins)
        changes = [cut._replace(mode=mode) for mode in BEST_CHANGES[:-1]]
        cuts[relation] = [*changes, cut._replace(head=matched)]
        labels.append((relation, head_label(cut.layer, cut.head), head_label(cut.layer, matched)))
    return labels, cuts


def measure_cuts(
    encoder: Encoder,
    store: Store,
    sentences: Batches,
    cuts: Mapping[str, Sequence[HeadCut]],
    probe: Probe | None,
) -> Sums:
    """Sum the `edge_effects` of each relation's ablations, which are equally many, by article."""
    articles = [cluster_of(record, index) for index, record in enumerate(store.records())]
    clusters = np.unique(articles)
    sums = []
    for relation, changes in cuts.items():
        batches = sentences[relation]
        effects = edge_effects(encoder, store, batches, relation, changes, probe)
        owner = np.array(articles)[np.concatenate(batches)]
        sums.append([cluster_sums(values, owner, clusters) for values in effects])
    values, totals = np.stack(sums, axis=2)
    is_used = totals.any(axis=(1, 2, 3))
    return values[is_used], totals[is_used]


def head_effects(ratios: Float[np.ndarray, "*batch head change measure"]) -> dict[str, np.ndarray]:
    """Compute the `EFFECTS` of heads that are dropped and mass-matched, and the attention."""
    dropped, matched = np.moveaxis(ratios, (-2, -1), (0, 1))  # each [measure, ..., head]
    effects = {name: (dropped - matched)[MEASURES.index(name)] for name in (TURNS, LOSES)}
    for name in (TURNS_ONLY, "attention", "unmatched"):
        effects[name] = dropped[MEASURES.index(name)]
    return effects


def rank_correlation(
    predictor: HeadValues, effect: HeadValues, within: str = "all"
) -> Float[np.ndarray, "*resample"]:
    """Compute Spearman's correlation of a predictor and an effect over heads.

    Parameters
    ----------
    predictor, effect
        A value for each head.  A head whose effect is NaN is left out.
    within
        "all": ranks are over all heads.  "layers", "relations": ranks are over the heads of a layer
        or of a relation, centred, and pooled; what layers or relations have in common then does not
        count.

    Returns
    -------
    array
        A number for each resample; NaN if all ranks are equal.
    """
    axes = [axis - 3 for axis in WITHIN[within]]
    is_measured = _by_group(~np.isnan(effect), axes)
    n_heads = np.maximum(is_measured.sum(axis=-1, keepdims=True), 1)
    ranks = []
    for values in (predictor, effect):
        of_group = _by_group(np.where(np.isnan(effect), np.inf, values), axes)
        of_heads = rankdata(of_group, axis=-1) * is_measured  # infinite values come last
        centred = (of_heads - of_heads.sum(axis=-1, keepdims=True) / n_heads) * is_measured
        ranks.append(centred.reshape(*effect.shape[:-3], -1))
    product_sum = (ranks[0] * ranks[1]).sum(axis=-1)
    squares = (ranks[0] ** 2).sum(axis=-1) * (ranks[1] ** 2).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return product_sum / np.sqrt(squares)


def _by_group(values: HeadValues, axes: Sequence[int]) -> Float[np.ndarray, "*group head"]:
    """Join the last axes over which ranks are compared."""
    moved = np.moveaxis(values, axes, range(-len(axes), 0))
    return moved.reshape(*moved.shape[: -len(axes)], -1)


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
        A row for each predictor, effect and group within which ranks are compared: ``correlation``
        with its interval.  Each resample is one of articles and, independently, one of relations.
        A relation without a word in the resampled articles keeps its value of all articles.
    """
    n_articles, n_relations = sums[0].shape[:2]
    layers = heads["layer"].max()
    by_head = (n_articles, n_relations, layers, -1, 2, len(MEASURES))
    values, totals = [array.reshape(by_head) for array in sums]
    with np.errstate(invalid="ignore"):
        ratios = values.sum(axis=0) / totals.sum(axis=0)
    replicates = resampled_ratios(values, totals, seed, RESAMPLES)
    replicates = np.where(np.isnan(replicates), ratios, replicates)
    chosen = np.random.default_rng(seed).integers(n_relations, size=(RESAMPLES, n_relations))
    effects = head_effects(ratios)
    resampled = head_effects(replicates[np.arange(RESAMPLES)[:, None], chosen])
    effects["margin"] = heads["margin"].to_numpy().reshape(ratios.shape[:3])
    resampled["margin"] = effects["margin"][chosen]
    rows = []
    for predictor, effect, within in product(PREDICTORS, EFFECTS, WITHIN):
        correlations = []
        for by_name in (effects, resampled):
            correlations.append(rank_correlation(by_name[predictor], by_name[effect], within))
        estimate = Estimate(np.nan, df=np.nan)
        if not np.isnan(correlations[0]):
            estimate = bootstrap_estimate(*correlations, min(n_articles, n_relations))
        labels = {"predictor": predictor, "effect": effect, "within": within}
        rows.append({**labels, **estimate.columns("correlation", df=True)})
    return pd.DataFrame(rows)


def causal_tables(
    encoder: Encoder,
    store: Store,
    counts: HeadCounts,
    relations: Sequence[str],
    size: SampleSize,
    *,
    with_best: bool = True,
    seed: int = 0,
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
        The size of the sample.
    with_best
        Whether a probe is fitted, and the best heads are compared with further changes.  Without
        it the effects on the probe are 0.
    seed
        Seed of the resamples.

    Returns
    -------
    dict of str to DataFrame
        ``head_edge_effects``: `sample_heads` with the `EFFECTS`, the attention on the edges, and
        the share of edges that cannot be matched.
        ``head_edge_correlations``: `correlation_table`.
        ``head_edges``: the `MEASURES` of each of the `BEST_CHANGES` of each relation's best head,
        with intervals over articles.

    Raises
    ------
    InputError
        If no dev sentence has one of the relations.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """

    def compute() -> dict[str, pd.DataFrame]:
        sentences = choose_sentences(encoder, store, relations, size.batches)
        if not sentences:
            raise InputError(
                f"no head beats its offset by {FUNCTION_MARGIN} percentage points in a relation of "
                "several dev sentences of one length; give a treebank with more sentences"
            )
        heads = sample_heads(counts, list(sentences), size.heads)
        cuts = defaultdict(list)
        for row in heads.itertuples():
            for mode in (DROPPED, MASS_MATCHED):
                cut = HeadCut(row.layer - 1, row.head - 1, row.direction, mode)
                cuts[row.relation].append(cut)
        probe = fit_probe(store) if with_best else None
        values, totals = measure_cuts(encoder, store, sentences, cuts, probe)
        with np.errstate(invalid="ignore"):
            ratios = values.sum(axis=0) / totals.sum(axis=0)
        effects = head_effects(ratios.reshape(len(heads), 2, len(MEASURES)))
        tables = {
            "head_edge_effects": heads.assign(**effects),
            "head_edge_correlations": correlation_table(heads, (values, totals), seed),
        }
        if with_best:
            labels, cuts = compare_best_heads(store, counts, heads, sentences)
            rows = [(*row, *pair) for row, *pair in product(labels, BEST_CHANGES, MEASURES)]
            columns = ["relation", "head", "matched_head", "change", "measure"]
            table = pd.DataFrame(rows, columns=columns)
            sums = measure_cuts(encoder, store, sentences, cuts, probe)
            tables["head_edges"] = with_ratio(table, "value", *sums)
        return tables

    inputs = {
        "store": store.key,
        "model": encoder.identity,
        "relations": list(relations),
        "size": size,
        "best": with_best,
        "seed": seed,
    }
    return cached("head-edges", compute, inputs=inputs)
