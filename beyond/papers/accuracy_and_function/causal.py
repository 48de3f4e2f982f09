"""Does a head's accuracy say what the head does?  A causal test of Table 1 of Clark et al. (2019).

Table 1 reads a head that picks the parents of a relation as a head for that relation.  Here the
edges of the relation are removed one at a time (`beyond.papers.common.head_edges`), and what the
model loses is compared with the *margin* of the head: its accuracy minus that of the best fixed
offset.  Margins are those of train, and effects are measured on dev.  All heads are measured.

An effect is about the weight of the edge times a vector, and a head with a large margin gives its
edges large weights.  That margin and effect are correlated is therefore an identity.  What is asked
is the effect *at equal attention*: what the edge brings if it has the same weight, `WEIGHT`, in
every head; and the effect *per unit of attention*, which is the effect over the mean attention.

A causal language model loses log-probability in two places:

- *next token*: the edge that Table 1 reads, from the later word of the relation to the earlier one,
  and the log-probability of the token after the later word;
- *later word*: the edge from the position that predicts the later word to the earlier one, and the
  log-probability of the later word.

Their effects are those of first order.  Effects of both signs cancel in a mean over edges.
Therefore there is also the mean *size* of the effects.  A model without such a head, such as a
sentence encoder, has angles: how far dependent and parent turn in the last layer, with true
ablation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from beyond.papers.accuracy_and_function import CODE
from beyond.papers.accuracy_and_function.centred_ranks import estimate_correlation
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from beyond.papers.common.head_edges import (
    NEXT_TOKEN,
    EdgeCase,
    HeadCut,
    RelationEdge,
    attention_and_effects,
    cut_effects,
    edge_attention,
    relation_edges,
    tokens_of_word,
    turns_by_weight,
)
from helpers.cache import cached
from helpers.data.records import Record, cluster_of, evenly_spaced
from helpers.errors import InputError
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import DIRECTIONS, Direction
from helpers.metrics.statistics import (
    Clusters,
    Estimate,
    bootstrap_estimate,
    cluster_sums,
    divide,
    resampled_ratios,
)
from helpers.model.loading import Model
from helpers.settings import Settings
from helpers.store.store import Store

TURNS = "turns"
NEXT = "next token"
LATER = "later word"
SIZE_OF = {NEXT: "next token, size", LATER: "later word, size"}
WEIGHT = 0.3  # of an edge in every head
MARGIN = "margin"
ATTENTION = "attention"
GIVEN_ATTENTION = "margin given attention"
AT_EQUAL_ATTENTION = "margin at equal attention"
PER_ATTENTION = "margin per unit of attention"
OTHER_WORDS = "most accurate head over its most attended other words"
MATCHED_HEADS = "most accurate head over all heads of equal attention"
SPREAD = "90% over 10% of the heads at equal attention"
SAME_ATTENTION = 0.25  # heads of equal attention have at most this share more or less on the edges

HeadScores = Float[np.ndarray, "relation head"]  # heads of all layers
CaseValues = Float[np.ndarray, "case head"]
ResampledScores = Float[np.ndarray, "*resample relation head"]
ResampledRelations = Float[np.ndarray, "*resample relation"]


class Effects(NamedTuple):
    """The attention on each edge in each head, its effect, and its effect at equal attention."""

    attention: CaseValues
    effects: CaseValues
    equal: CaseValues


class Sizes(NamedTuple):
    """How much the test measures.

    Attributes
    ----------
    edges : int
        Edges of each relation, at most.  Angles need two passes for each head, so they are
        measured on a quarter of them.
    minimum : int
        Edges that a relation must have.
    relations : int or None
        Relations at most, the most frequent first.
    templates : int
        Minimal pairs of subject and verb.
    """

    edges: int
    minimum: int
    relations: int | None
    templates: int

    @property
    def of_control(self) -> Sizes:
        """Half of the edges and of the templates, for a control."""
        return self._replace(edges=max(4, self.edges // 2), templates=self.templates // 2)


FULL_SIZES = Sizes(edges=32, minimum=30, relations=None, templates=500)
QUICK_SIZES = Sizes(edges=16, minimum=4, relations=3, templates=16)


def choose_sizes(settings: Settings) -> Sizes:
    """Choose how much a run measures."""
    return QUICK_SIZES if settings.quick else FULL_SIZES


@dataclass(frozen=True)
class RelationCases:
    """Edge cases of several relations.

    Attributes
    ----------
    relations : list of str
        The relations.
    margins : array
        The margin of each head on train, in percentage points.
    cases : list of EdgeCase
        The edges of all relations.
    owner : array
        The relation of each edge, by its number.
    heads_per_layer : int
        Heads are numbered over all layers.
    """

    relations: list[str]
    margins: HeadScores
    cases: list[EdgeCase]
    owner: Int[np.ndarray, " case"]
    heads_per_layer: int

    @property
    def articles(self) -> np.ndarray:
        """The article of each edge."""
        return np.array([case.article for case in self.cases])

    def article_sums(self, values: CaseValues) -> tuple[Clusters, Clusters]:
        """Sum the values of edges by article and relation, and count them.

        Returns
        -------
        sums : array, shape (article, relation, head)
        totals : array, shape (article, relation)
        """
        clusters = np.unique(self.articles)
        is_of_relation = self.owner[:, None] == np.arange(len(self.relations))  # [case, relation]
        sums = cluster_sums(values[:, None] * is_of_relation[:, :, None], self.articles, clusters)
        return sums, cluster_sums(is_of_relation, self.articles, clusters)

    def means(self, values: CaseValues) -> HeadScores:
        """Average values of edges for each relation."""
        sums, totals = self.article_sums(values)
        return sums.sum(axis=0) / totals.sum(axis=0)[:, None]


def head_margins(counts: HeadCounts, relation: str) -> Float[np.ndarray, "direction layer head"]:
    """Subtract the accuracy of the best offset from that of each head, on train."""
    train = counts.of_split("train")
    return train.accuracy(relation) - train.rival_accuracy(relation).max(axis=-1, keepdims=True)


def full_case(_encoder: Model, record: Record, edge: RelationEdge, article: str) -> EdgeCase | None:
    """Make the case of an encoder: dependent and parent may turn."""
    words = (tokens_of_word(record, edge.dependent), tokens_of_word(record, edge.parent))
    return EdgeCase(
        tuple(record["inputs"]["input_ids"]),
        tokens_of_word(record, edge.query),
        tokens_of_word(record, edge.key),
        words,
        article,
    )


def next_token_case(
    encoder: Model, record: Record, edge: RelationEdge, article: str
) -> EdgeCase | None:
    """Make the case of a decoder in which the later word predicts the token that follows it."""
    token_ids = tuple(record["inputs"]["input_ids"])
    queries = tokens_of_word(record, edge.query)
    last = queries[-1]
    following = token_ids[last + 1 : last + 2]
    if not following or following[0] in encoder.special_ids:
        return None
    keys = tokens_of_word(record, edge.key)
    return EdgeCase(token_ids[: last + 1], queries, keys, (), article, last, (following,))


def later_word_case(
    _encoder: Model, record: Record, edge: RelationEdge, article: str
) -> EdgeCase | None:
    """Make the case of a decoder in which the later word is predicted."""
    token_ids = tuple(record["inputs"]["input_ids"])
    word = tokens_of_word(record, edge.query)
    last = word[0] - 1
    keys = tokens_of_word(record, edge.key)
    form = tuple(token_ids[token] for token in word)
    return EdgeCase(token_ids[: word[0]], (last,), keys, (), article, last, (form,))


CASE_MAKERS = {TURNS: full_case, NEXT: next_token_case, LATER: later_word_case}


def relation_cases(
    encoder: Model, store: Store, counts: HeadCounts, outcome: str, sizes: Sizes
) -> RelationCases:
    """Choose edges of dev sentences for each relation that has enough of them.

    A relation is read in the direction in which a head has the largest margin on train, with the
    same edges for all heads.  Under a causal mask an edge goes from the later to the earlier word.

    Parameters
    ----------
    encoder
        The model.
    store
        Its word-level store of a treebank; the records are read, not the maps.
    counts
        The counts of the store.
    outcome
        `TURNS`, `NEXT` or `LATER`.
    sizes
        Numbers of edges and relations.

    Raises
    ------
    InputError
        If no relation has enough edges.
    """
    is_causal = any(layer["causal"] for layer in encoder.visible)
    sentences = [
        (record, cluster_of(record, index))
        for index, record in enumerate(store.records())
        if record["split"] == "dev"
    ]

    def edges_of(relation: str, direction: Direction) -> Iterator[EdgeCase | None]:
        for record, article in sentences:
            for edge in relation_edges(record, relation, direction):
                if edge.key < edge.query or not is_causal:
                    yield CASE_MAKERS[outcome](encoder, record, edge, article)

    n_edges = max(1, sizes.edges // 4) if outcome == TURNS else sizes.edges
    relations = []
    margins = []
    cases: list[EdgeCase] = []
    owner: list[int] = []
    for relation in counts.of_split("train").frequent(1)[1:]:  # without "All"
        relation_margins = head_margins(counts, relation)
        if np.isnan(relation_margins).all(axis=(1, 2)).all():
            continue  # no word of the relation can be seen
        number = int(np.nanargmax(np.nan_to_num(relation_margins, nan=-np.inf).max(axis=(1, 2))))
        edges = [case for case in edges_of(relation, DIRECTIONS[number]) if case is not None]
        is_full = sizes.relations is not None and len(relations) >= sizes.relations
        if len(edges) < sizes.minimum or is_full or np.isnan(relation_margins[number]).any():
            continue
        chosen = evenly_spaced(edges, n_edges)
        owner += [len(relations)] * len(chosen)
        cases += chosen
        relations.append(relation)
        margins.append(relation_margins[number].ravel())
    if len(relations) < 2:
        raise InputError(
            f"fewer than two relations have {sizes.minimum} edges in dev sentences that the model "
            "can see; give a treebank with more sentences"
        )
    return RelationCases(relations, np.stack(margins), cases, np.array(owner), encoder.heads)


def head_effects(encoder: Model, cases: Sequence[EdgeCase], outcome: str) -> Effects:
    """Measure the effects of each edge in each head.

    The effects on a log-probability are those of first order.  Angles are those of true ablation.
    """
    if outcome == TURNS:
        attention = edge_attention(encoder, cases)
        effects, equal = turns_by_weight(encoder, cases, WEIGHT)
    else:
        attention, effects, per_unit = attention_and_effects(encoder, cases)
        equal = WEIGHT * per_unit
    return Effects(*(values.reshape(len(cases), -1) for values in (attention, effects, equal)))


def effect_table(sample: RelationCases, measure: str, values: Effects) -> pd.DataFrame:
    """Tabulate the margin, the attention and the effects of each head in each relation.

    Parameters
    ----------
    sample
        The edges.
    measure
        Name of the measure, for the column of that name.
    values
        The effects of each edge and head.
    """
    n_relations, n_heads = sample.margins.shape
    relation, head = np.indices((n_relations, n_heads)).reshape(2, -1)
    return pd.DataFrame(
        {
            "measure": measure,
            "relation": np.array(sample.relations)[relation],
            "layer": head // sample.heads_per_layer + 1,
            "head": head % sample.heads_per_layer + 1,
            "margin": sample.margins.ravel(),
            "attention": sample.means(values.attention).ravel(),
            "effect": sample.means(values.effects).ravel(),
            "effect_at_equal_attention": sample.means(values.equal).ravel(),
        }
    )


def correlation_rows(
    sample: RelationCases, measure: str, values: Effects, seed: int
) -> pd.DataFrame:
    """Correlate scores of heads with effects, over all heads and relations: a row for each pair.

    The effect correlates with the margin, with the attention, and with the margin given the
    attention; the margin correlates with the effect at equal attention and per unit of it.
    """
    attention, effects, equal = values
    mean_attention = sample.means(attention)
    per_unit = np.nan_to_num(divide(effects, mean_attention[sample.owner]))
    pairs = {  # score, values, scores held constant
        MARGIN: (sample.margins, effects, ()),
        ATTENTION: (mean_attention, effects, ()),
        GIVEN_ATTENTION: (sample.margins, effects, (mean_attention,)),
        AT_EQUAL_ATTENTION: (sample.margins, equal, ()),
        PER_ATTENTION: (sample.margins, per_unit, ()),
    }
    rows = []
    for predictor, (scores, edge_values, held_constant) in pairs.items():
        sums, totals = sample.article_sums(edge_values)
        numbers = estimate_correlation(scores, sums, totals, held_constant, seed=seed)
        labels = {"measure": measure, "predictor": predictor}
        rows.append({**labels, "relations": len(scores), **numbers})
    return pd.DataFrame(rows)


def ratio_rows(
    encoder: Model,
    sample: RelationCases,
    measure: str,
    values: Effects,
) -> pd.DataFrame:
    """Tabulate three ratios of effects that have no sign: a row for each.

    Returns
    -------
    DataFrame
        The table head_edge_ratios.csv.  Each ``value`` is a geometric mean over relations, with its
        interval over relations and articles.  `OTHER_WORDS`: what dropping the edges of the most
        accurate head changes, over what changes if the most attended other words of the row lose as
        much attention (true ablation).  `MATCHED_HEADS`: the effect of this head over the mean of
        those of all other heads whose mean attention on the edges is within `SAME_ATTENTION`;
        relations without such a head are left out.  `SPREAD`: the effect at equal
        attention of the head at the 90th percentile over that of the head at the 10th.
    """
    mass = sample.means(values.attention)
    best = sample.margins.argmax(axis=1)
    numbers = np.arange(len(best))
    own_mass = mass[numbers, best][:, None]
    is_match = np.abs(mass - own_mass) <= SAME_ATTENTION * own_mass
    is_match[numbers, best] = False

    def over_matched_heads(values: ResampledScores) -> ResampledRelations:
        matched = divide((values * is_match).sum(axis=-1), is_match.sum(axis=1))
        return np.log(values[..., numbers, best]) - np.log(matched)

    def spread(values: ResampledScores) -> ResampledRelations:
        low, high = np.percentile(values, (10, 90), axis=-1)
        return np.log(high) - np.log(low)

    def over_other_words(values: ResampledScores) -> ResampledRelations:
        return np.log(values[..., 0]) - np.log(values[..., 1])

    yardstick = yardstick_effects(encoder, sample, best)
    ratios = {
        OTHER_WORDS: (yardstick, over_other_words),
        MATCHED_HEADS: (values.effects, over_matched_heads),
        SPREAD: (values.equal, spread),
    }
    rows = []
    for name, (compared, log_ratio) in ratios.items():
        estimate, count = estimate_ratio(*sample.article_sums(compared), log_ratio)
        labels = {"measure": measure, "ratio": name, "relations": count}
        rows.append(labels | estimate.columns("value", df=True))
    return pd.DataFrame(rows)


def yardstick_effects(
    encoder: Model, sample: RelationCases, heads: Int[np.ndarray, " relation"]
) -> Float[np.ndarray, "case two"]:
    """Measure what dropping each edge changes in a head of its relation, and its most attended."""
    cuts = []
    for head in heads[sample.owner]:
        cut = HeadCut(*divmod(int(head), sample.heads_per_layer))
        cuts.append([cut, cut._replace(mode=MOST_ATTENDED)])
    return np.abs(cut_effects(encoder, sample.cases, cuts))


def estimate_ratio(
    values: Clusters, totals: Clusters, log_ratio: Callable[[ResampledScores], ResampledRelations]
) -> tuple[Estimate, int]:
    """Estimate the geometric mean over relations of a ratio of mean effects.

    Parameters
    ----------
    values
        Sums of effects, ``[article, relation, ...]``.
    totals
        Number of edges, ``[article, relation]``.
    log_ratio
        The logarithm of the ratio of each relation, from mean effects ``[..., relation, ...]``;
        NaN for a relation that has none.

    Returns
    -------
    estimate : Estimate
        Articles and, independently, relations are resampled.  A relation without an edge in the
        resampled articles keeps its effects of all articles.
    count : int
        The number of relations that have the ratio.
    """
    effect = divide(values.sum(axis=0), totals.sum(axis=0)[:, None])
    resampled = resampled_ratios(values, totals[:, :, None])
    resampled = np.where(np.isnan(resampled), effect, resampled)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = log_ratio(effect)
        replicates = log_ratio(resampled)
    # As for edges, a resample in which a ratio does not exist counts with the value of all.
    replicates = np.where(np.isfinite(replicates), replicates, ratio)
    chosen = np.flatnonzero(np.isfinite(ratio))
    if len(chosen) < 2:
        return Estimate(np.nan, df=np.nan), len(chosen)
    drawn = np.random.default_rng(0).choice(chosen, size=(len(replicates), len(chosen)))
    means = np.take_along_axis(replicates, drawn, axis=1).mean(axis=1)
    estimate = bootstrap_estimate(ratio[chosen].mean(), means, min(len(values), len(chosen)))
    bounds = np.array([estimate.value, estimate.low, estimate.high], float)
    return Estimate(*np.exp(bounds), df=estimate.df), len(chosen)


def outcomes_of(encoder: Model) -> tuple[str, ...]:
    """List the outcomes of a model: the log-probabilities of a decoder, or angles."""
    return (NEXT, LATER) if encoder.objective == NEXT_TOKEN else (TURNS,)


def causal_tables(
    encoder: Model, store: Store, counts: HeadCounts, sizes: Sizes, *, seed: int
) -> dict[str, pd.DataFrame]:
    """Remove the edges of relations head by head, and relate the effects to the margins.

    Parameters
    ----------
    encoder
        The model.
    store
        Its word-level store of a treebank; its records are read, not its maps.
    counts
        The counts of the store.
    sizes
        How much is measured.
    seed
        Seed of resamples and of permutations.

    Returns
    -------
    dict of str to DataFrame
        ``head_edge_effects``: `effect_table`, for all heads, of the first outcome.
        ``head_edge_correlations``: `estimate_correlation` for each measure (`correlation_rows`).
        ``head_edge_ratios``: `ratio_rows` of angles, or of sizes of the first outcome's effects.

    Raises
    ------
    InputError
        If fewer than two relations have enough edges.
    ModelError
        If the attention is not computed by a softmax that can be replaced.
    """

    def compute() -> dict[str, pd.DataFrame]:
        tables: dict[str, list[pd.DataFrame]] = {}
        for outcome in outcomes_of(encoder):
            for name, table in outcome_tables(encoder, store, counts, outcome, sizes, seed).items():
                tables.setdefault(name, []).append(table)
        return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}

    inputs = {
        "store": store.key,
        "model": encoder.key,
        "sizes": sizes,
        "seed": seed,
    }
    return cached("head-edges", compute, inputs=inputs, code=CODE)


def outcome_tables(
    encoder: Model, store: Store, counts: HeadCounts, outcome: str, sizes: Sizes, seed: int
) -> Mapping[str, pd.DataFrame]:
    """Compute the tables of `causal_tables` for one outcome."""
    sample = relation_cases(encoder, store, counts, outcome, sizes)
    effects = head_effects(encoder, sample.cases, outcome)
    by_measure = {outcome: effects}
    if outcome in SIZE_OF:
        by_measure[SIZE_OF[outcome]] = Effects(*map(np.abs, effects))
    correlations = []
    for measure, values in by_measure.items():
        correlations.append(correlation_rows(sample, measure, values, seed))
    unsigned = SIZE_OF.get(outcome, outcome)
    tables = {"head_edge_correlations": pd.concat(correlations, ignore_index=True)}
    if outcome == outcomes_of(encoder)[0]:
        ratios = ratio_rows(encoder, sample, unsigned, by_measure[unsigned])
        tables["head_edge_ratios"] = ratios
        tables["head_edge_effects"] = effect_table(sample, outcome, effects)
    return tables
