"""Does a head's accuracy say what the head does?  A causal test of Table 1 of Clark et al. (2019).

Table 1 reads a head that picks the parents of a relation as a head for that relation.  Here the
edges of the relation are removed one at a time (`beyond.papers.common.head_edges`), and what the
model loses is compared with the *margin* of the head: its accuracy minus that of the best fixed
offset.  Margins are those of train, and effects are measured on dev.  All heads are measured.

A causal language model loses log-probability in two places:

- *next token*: the edge that Table 1 reads, from the later word of the relation to the earlier one,
  and the log-probability of the token after the later word;
- *later word*: the edge from the position that predicts the later word to the earlier one, and the
  log-probability of the later word.

Their effects are those of first order.  Effects of both signs cancel in a mean over edges.
Therefore there is also the mean *size* of the effects.  A model without such a head, such as a
sentence encoder, has angles: how far dependent and parent turn in the last layer.

Some heads are also ablated: those with the largest effects, some at random, and the most accurate
one of each relation.  They are chosen on every second edge and ablated on the others, because an
effect that is chosen for its size is too large on the edges that it was chosen on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from beyond.papers.accuracy_and_function import CODE
from beyond.papers.accuracy_and_function.centred_ranks import estimate_correlation
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from beyond.papers.common.head_edges import (
    ANGLE,
    EFFECTS,
    LOG_PROBABILITY,
    NEXT_TOKEN,
    EdgeCase,
    HeadCut,
    RelationEdge,
    attention_and_effects,
    cut_effects,
    edge_attention,
    relation_edges,
    tokens_of_word,
)
from helpers.cache import cached
from helpers.data.records import Record, cluster_of, evenly_spaced
from helpers.errors import InputError
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import DIRECTIONS, Direction, head_label
from helpers.metrics.statistics import (
    RESAMPLES,
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
MEASURES = (NEXT, SIZE_OF[NEXT], LATER, SIZE_OF[LATER], TURNS)  # the functional ones first
UNITS = {SIZE_OF[NEXT]: "nats", SIZE_OF[LATER]: "nats", TURNS: "degrees"}
SIZE = "size of the change of the log-probability"

PREDICTORS = {  # the score of a head that is correlated with its effect, and the one held constant
    "margin": ("margin",),
    "attention": ("attention",),
    "margin given attention": ("margin", "attention"),
}
# What is measured in the ablations of each outcome, and which effect that is.
ABLATED_EFFECTS = {
    TURNS: {TURNS: ANGLE},
    NEXT: {NEXT: LOG_PROBABILITY, SIZE_OF[NEXT]: SIZE, TURNS: ANGLE},
    LATER: {LATER: LOG_PROBABILITY, SIZE_OF[LATER]: SIZE},
}
ROLES = MOST_ACCURATE, LARGEST, RANDOM = "most accurate", "largest effect", "random"
DOSES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
MATCHED_HEAD = "a head with the same attention"
YARDSTICKS = (MOST_ATTENDED, MATCHED_HEAD)
SAME_ATTENTION = 0.25  # a matched head has at most this share more or less attention on the edges

HeadScores = Float[np.ndarray, "relation head"]  # heads of all layers
CaseValues = Float[np.ndarray, "case head"]


class Sizes(NamedTuple):
    """How much the test measures.

    Attributes
    ----------
    edges : int
        Edges of each relation, at most.
    heads : int
        Heads with the largest effect, and random heads, that are ablated for each relation.
    minimum : int
        Edges that a relation must have.
    relations : int or None
        Relations at most, the most frequent first.
    pairs : int
        Minimal pairs of subject and verb, at most.
    """

    edges: int
    heads: int
    minimum: int
    relations: int | None
    pairs: int

    @property
    def of_control(self) -> Sizes:
        """Half of the edges, for a control."""
        return self._replace(edges=max(4, self.edges // 2))


FULL_SIZES = Sizes(edges=32, heads=10, minimum=30, relations=None, pairs=150)
QUICK_SIZES = Sizes(edges=4, heads=2, minimum=4, relations=3, pairs=6)


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
    directions : list of str
        The direction in which each is read.
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
    directions: list[Direction]
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

    def means(self, values: CaseValues, chosen: np.ndarray | None = None) -> HeadScores:
        """Average values of edges, all or some of them, for each relation."""
        is_chosen = np.ones(len(self.cases), bool) if chosen is None else np.asarray(chosen)
        numbers = range(len(self.relations))
        return np.stack([values[is_chosen & (self.owner == n)].mean(axis=0) for n in numbers])

    @property
    def is_for_choice(self) -> np.ndarray:
        """Mark every second edge of each relation, on which heads are chosen."""
        marks = np.zeros(len(self.cases), bool)
        for number in range(len(self.relations)):
            marks[np.flatnonzero(self.owner == number)[::2]] = True
        return marks


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
    words = ((last,),)
    return EdgeCase(token_ids[: last + 1], queries, keys, words, article, last, (following,))


def later_word_case(
    _encoder: Model, record: Record, edge: RelationEdge, article: str
) -> EdgeCase | None:
    """Make the case of a decoder in which the later word is predicted."""
    token_ids = tuple(record["inputs"]["input_ids"])
    word = tokens_of_word(record, edge.query)
    last = word[0] - 1
    keys = tokens_of_word(record, edge.key)
    form = tuple(token_ids[token] for token in word)
    return EdgeCase(token_ids[: word[0]], (last,), keys, ((last,),), article, last, (form,))


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

    relations = []
    directions = []
    margins = []
    cases: list[EdgeCase] = []
    owner: list[int] = []
    for relation in counts.of_split("train").frequent(1)[1:]:  # without "All"
        of_relation = head_margins(counts, relation)
        if np.isnan(of_relation).all(axis=(1, 2)).all():
            continue  # no word of the relation can be seen
        number = int(np.nanargmax(np.nan_to_num(of_relation, nan=-np.inf).max(axis=(1, 2))))
        found = [case for case in edges_of(relation, DIRECTIONS[number]) if case is not None]
        is_full = sizes.relations is not None and len(relations) >= sizes.relations
        if len(found) < sizes.minimum or is_full or np.isnan(of_relation[number]).any():
            continue
        chosen = evenly_spaced(found, sizes.edges)
        owner += [len(relations)] * len(chosen)
        cases += chosen
        relations.append(relation)
        directions.append(DIRECTIONS[number])
        margins.append(of_relation[number].ravel())
    if len(relations) < 2:
        raise InputError(
            f"fewer than two relations have {sizes.minimum} edges in dev sentences that the model "
            "can see; give a treebank with more sentences"
        )
    return RelationCases(
        relations, directions, np.stack(margins), cases, np.array(owner), encoder.heads
    )


def head_effects(
    encoder: Model, cases: Sequence[EdgeCase], outcome: str
) -> tuple[CaseValues, CaseValues]:
    """Measure the attention on each edge, and its effect, in every head.

    The effect on a log-probability is that of first order.  The angle is that of true ablation.
    """
    if outcome == TURNS:
        attention = edge_attention(encoder, cases)
        heads = product(range(encoder.layers), range(encoder.heads))
        cuts = [HeadCut(layer, head) for layer, head in heads]
        effects = cut_effects(encoder, cases, cuts)[..., EFFECTS.index(ANGLE)]
    else:
        attention, effects = attention_and_effects(encoder, cases)
    return attention.reshape(len(cases), -1), effects.reshape(len(cases), -1)


def effect_table(
    sample: RelationCases, measure: str, attention: CaseValues, effects: CaseValues
) -> pd.DataFrame:
    """Tabulate the margin, the attention and the effect of each head in each relation.

    Parameters
    ----------
    sample
        The edges.
    measure
        Name of the measure, for the column of that name.
    attention, effects
        Of each edge and head.
    """
    n_relations, n_heads = sample.margins.shape
    relation, head = np.indices((n_relations, n_heads)).reshape(2, -1)
    counts = np.bincount(sample.owner)
    return pd.DataFrame(
        {
            "measure": measure,
            "relation": np.array(sample.relations)[relation],
            "direction": np.array(sample.directions)[relation],
            "layer": head // sample.heads_per_layer + 1,
            "head": head % sample.heads_per_layer + 1,
            "edges": counts[relation],
            "margin": sample.margins.ravel(),
            "attention": sample.means(attention).ravel(),
            "effect": sample.means(effects).ravel(),
        }
    )


def correlation_rows(
    sample: RelationCases, measure: str, attention: CaseValues, effects: CaseValues, seed: int
) -> pd.DataFrame:
    """Correlate the scores of heads with their effects: a row for each of the `PREDICTORS`."""
    values, totals = sample.article_sums(effects)
    scores = {"margin": sample.margins, "attention": sample.means(attention)}
    rows = []
    for predictor, names in PREDICTORS.items():
        first, *held_constant = [scores[name] for name in names]
        numbers = estimate_correlation(first, values, totals, held_constant, seed=seed)
        n_relations, n_heads = sample.margins.shape
        labels = {"measure": measure, "predictor": predictor}
        rows.append({**labels, "relations": n_relations, "heads": n_heads, **numbers})
    return pd.DataFrame(rows)


class AblatedHead(NamedTuple):
    """A head that is ablated for a relation; heads are numbered over all layers, from 0.

    ``sign`` is that of its effect on the edges on which heads are chosen.  ``matched`` is the head
    with the same attention, if there is one.  ``effect`` is that of `head_effects` on the edges on
    which the head is ablated, with the sign of the others.
    """

    relation: int
    role: str
    head: int
    sign: int
    matched: int | None
    effect: float


def choose_heads(
    sample: RelationCases, attention: CaseValues, effects: CaseValues, count: int, seed: int
) -> list[AblatedHead]:
    """Choose the heads that are ablated for each relation, on every second edge.

    Parameters
    ----------
    sample
        The edges.
    attention, effects
        Of each edge and head.
    count
        Number of heads with the largest effects, and of random ones among the others.
    seed
        Seed of the random ones.

    Returns
    -------
    list of AblatedHead
        For each relation, the head with the largest margin, those with the largest effects, up or
        down, and the random ones.  The matched head does not beat the best offset, and has the
        attention on the edges that is nearest, at most `SAME_ATTENTION` away.
    """
    generator = np.random.default_rng(seed)
    is_for_choice = sample.is_for_choice
    effect = sample.means(effects, is_for_choice)
    ablated_effect = sample.means(effects, ~is_for_choice)
    mass = sample.means(attention, is_for_choice)
    chosen = []
    for relation, margins in enumerate(sample.margins):
        order = np.argsort(-np.abs(effect[relation]), kind="stable")
        random = generator.permutation(order[count:])[:count]
        by_role = {MOST_ACCURATE: [margins.argmax()], LARGEST: order[:count], RANDOM: random}
        for role, heads in by_role.items():
            for head in heads:
                matched = matched_head(int(head), margins, mass[relation])
                sign = 1 if effect[relation, head] >= 0 else -1
                signed = sign * ablated_effect[relation, head]
                chosen.append(AblatedHead(relation, role, int(head), sign, matched, signed))
    return chosen


def matched_head(
    head: int, margins: Float[np.ndarray, " head"], attention: Float[np.ndarray, " head"]
) -> int | None:
    """Find the head with the nearest attention that does not beat the best offset, if any is near.

    Near means at most `SAME_ATTENTION` of the head's own attention.
    """
    distances = np.abs(attention - attention[head])
    distances[margins > 0] = np.inf
    distances[head] = np.inf
    nearest = int(distances.argmin())
    return nearest if distances[nearest] <= SAME_ATTENTION * attention[head] else None


def list_cuts(ablated: AblatedHead, heads_per_layer: int) -> list[HeadCut | None]:
    """List the changes of a head: the `DOSES`, the most attended words, the matched head.

    None is a change that is not computed: a dose of 1, which changes nothing, or a head without a
    matched one.
    """
    layer, head = divmod(ablated.head, heads_per_layer)
    cuts = [None if dose == 1 else HeadCut(layer, head, dose) for dose in DOSES]
    cuts.append(HeadCut(layer, head, mode=MOST_ATTENDED))
    if ablated.matched is None:
        return [*cuts, None]
    return [*cuts, HeadCut(*divmod(ablated.matched, heads_per_layer))]


@dataclass(frozen=True)
class Ablations:
    """The losses of some heads under each change, with the sign of the effect on other edges.

    Attributes
    ----------
    heads : list of AblatedHead
        The heads.
    sums : array, shape (article, ablated head, change)
        Over edges.  The changes are the `DOSES` and the `YARDSTICKS`.
    totals : array, shape (article, ablated head)
        Number of edges.
    """

    heads: list[AblatedHead]
    sums: Clusters
    totals: Clusters

    @property
    def means(self) -> Float[np.ndarray, "head change"]:
        """The mean of each head and change over edges; NaN for a head without a matched one."""
        means = divide(self.sums.sum(axis=0), self.totals.sum(axis=0)[:, None])
        has_match = [ablated.matched is not None for ablated in self.heads]
        means[~np.array(has_match), -1] = np.nan
        return means

    def estimate(self, values: Clusters, chosen: np.ndarray) -> Estimate:
        """Estimate the mean of a value over some ablated heads, ``values[article, head]``.

        Articles and, independently, heads are resampled.  A head that is ablated for several
        relations is one cluster.
        """
        if not chosen.any():
            return Estimate(np.nan, df=np.nan)
        sums = values[:, chosen]
        totals = self.totals[:, chosen]
        means = divide(sums.sum(axis=0), totals.sum(axis=0))
        resampled = resampled_ratios(sums, totals)
        resampled = np.where(np.isnan(resampled), means, resampled)  # [resample, ablated head]
        owners = np.array([ablated.head for ablated in self.heads])[chosen]
        clusters, owner = np.unique(owners, return_inverse=True)
        shares = np.full(len(clusters), 1 / len(clusters))
        generator = np.random.default_rng(0)
        weights = generator.multinomial(len(clusters), shares, size=RESAMPLES)[:, owner]
        replicates = divide((weights * resampled).sum(axis=1), weights.sum(axis=1))
        n_articles = int((totals.sum(axis=1) > 0).sum())
        return bootstrap_estimate(means.mean(), replicates, min(n_articles, len(clusters)))


def ablate_heads(
    encoder: Model, sample: RelationCases, heads: list[AblatedHead]
) -> dict[str, Ablations]:
    """Ablate the chosen heads of each relation on the edges on which they were not chosen.

    Parameters
    ----------
    encoder
        The model.
    sample
        The edges.
    heads
        From `choose_heads`.

    Returns
    -------
    dict of str to Ablations
        For each of the `head_edges.EFFECTS`, and for the `SIZE`.  A loss of log-probability has the
        sign of the head's effect on the edges on which it was chosen; its size and an angle have
        none, and can be compared between heads.
    """
    clusters = np.unique(sample.articles)
    sums: dict[str, list] = {effect: [] for effect in (*EFFECTS, SIZE)}
    totals = []
    for relation in range(len(sample.relations)):
        relation_heads = [ablated for ablated in heads if ablated.relation == relation]
        signs = np.array([ablated.sign for ablated in relation_heads])
        is_measured = (sample.owner == relation) & ~sample.is_for_choice
        cases = [sample.cases[index] for index in np.flatnonzero(is_measured)]
        changes = []
        for ablated in relation_heads:
            changes += list_cuts(ablated, encoder.heads)
        is_computed = np.array([cut is not None for cut in changes])
        lost = np.zeros((len(cases), len(changes), len(EFFECTS)))
        cuts = [cut for cut in changes if cut is not None]
        lost[:, is_computed] = cut_effects(encoder, cases, cuts)
        by_head = lost.reshape(len(cases), len(relation_heads), -1, len(EFFECTS))
        loss, angle = np.moveaxis(by_head, -1, 0)
        by_effect = {LOG_PROBABILITY: loss * signs[:, None], ANGLE: angle, SIZE: np.abs(loss)}
        articles = sample.articles[is_measured]
        for effect, values in by_effect.items():
            sums[effect].append(cluster_sums(values, articles, clusters))
        totals.append(cluster_sums(np.ones(angle.shape[:2]), articles, clusters))
    numbers = np.concatenate(totals, axis=1)
    return {
        effect: Ablations(heads, np.concatenate(parts, axis=1), numbers)
        for effect, parts in sums.items()
    }


def ablation_table(sample: RelationCases, measure: str, ablations: Ablations) -> pd.DataFrame:
    """Tabulate what each ablated head loses under each change; see `Ablations`."""
    heads_per_layer = sample.heads_per_layer
    rows = []
    for ablated, means in zip(ablations.heads, ablations.means, strict=True):
        matched = ""
        if ablated.matched is not None:
            matched = head_label(*divmod(ablated.matched, heads_per_layer))
        row = {
            "measure": measure,
            "relation": sample.relations[ablated.relation],
            "role": ablated.role,
            "layer": ablated.head // heads_per_layer + 1,
            "head": ablated.head % heads_per_layer + 1,
            "margin": sample.margins[ablated.relation, ablated.head],
            "matched_head": matched,
            "effect": np.nan if measure in SIZE_OF.values() else ablated.effect,
        }
        names = [*(f"dose_{dose:g}" for dose in DOSES), "most_attended", "in_matched_head"]
        rows.append({**row, **dict(zip(names, means, strict=True))})
    return pd.DataFrame(rows)


def yardstick_table(measure: str, ablations: Ablations) -> pd.DataFrame:
    """Tabulate what dropping the edges takes, minus each of the `YARDSTICKS`.

    Returns
    -------
    DataFrame
        A row for each of the `ROLES` and yardsticks: the number of ``heads`` (those of several
        relations count several times) and of ``different_heads``; the means of ``dropped`` and of
        the ``yardstick_value``; and their ``difference`` with its interval over heads and articles.
    """
    has_match = np.array([ablated.matched is not None for ablated in ablations.heads])
    dropped = ablations.sums[..., 0]
    rows = []
    for role, yardstick in product(ROLES, YARDSTICKS):
        chosen = np.array([ablated.role == role for ablated in ablations.heads])
        if yardstick == MATCHED_HEAD:
            chosen = chosen & has_match
        values = ablations.sums[..., len(DOSES) + YARDSTICKS.index(yardstick)]
        estimate = ablations.estimate(dropped - values, chosen)
        different = {
            ablated.head for ablated, is_in in zip(ablations.heads, chosen, strict=True) if is_in
        }
        rows.append(
            {
                "measure": measure,
                "role": role,
                "yardstick": yardstick,
                "heads": int(chosen.sum()),
                "different_heads": len(different),
                "dropped": ablations.estimate(dropped, chosen).value,
                "yardstick_value": ablations.estimate(values, chosen).value,
                **estimate.columns("difference", df=True),
            }
        )
    return pd.DataFrame(rows)


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
        Seed of the random heads, of resamples and of permutations.

    Returns
    -------
    dict of str to DataFrame
        ``head_edge_effects``: `effect_table`, for all heads, of the first outcome.
        ``head_edge_correlations``: `estimate_correlation` for each measure and predictor.
        ``head_edge_ablations`` and ``head_edge_yardsticks``: the true ablation of the chosen heads
        (`ablation_table`, `yardstick_table`).  A decoder has the angles of its last vectors there,
        too.  Yardsticks are compared by sizes and angles.

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
    attention, effects = head_effects(encoder, sample.cases, outcome)
    by_measure = {outcome: effects}
    if outcome in SIZE_OF:
        by_measure[SIZE_OF[outcome]] = np.abs(effects)
    correlations = []
    for measure, values in by_measure.items():
        correlations.append(correlation_rows(sample, measure, attention, values, seed))
    heads = choose_heads(sample, attention, effects, sizes.heads, seed)
    ablations = ablate_heads(encoder, sample, heads)
    tables = {
        "head_edge_correlations": correlations,
        "head_edge_ablations": [],
        "head_edge_yardsticks": [],
    }
    if outcome == outcomes_of(encoder)[0]:
        tables["head_edge_effects"] = [effect_table(sample, outcome, attention, effects)]
    for measure, effect in ABLATED_EFFECTS[outcome].items():
        of_effect = ablations[effect]
        tables["head_edge_ablations"].append(ablation_table(sample, measure, of_effect))
        if effect != LOG_PROBABILITY:  # the signs of different heads have nothing in common
            tables["head_edge_yardsticks"].append(yardstick_table(measure, of_effect))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
