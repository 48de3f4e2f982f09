"""The nearest word of one class on one side, as a baseline of Table 1 (section 4.2).

For the object of a verb, the rule may say: take the nearest verb on the left.  It needs parts of
speech (universal tags), but it needs neither trees nor attention.  The class and the side are
chosen on train for each relation, like its attention head and its fixed offset, and all three are
scored on the same words of dev.

Under a causal mask a head can only be right if the answer can be seen.  Only words whose syntactic
head can be picked in the layer and direction of the relation's head count, for the rule as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Shaped

from helpers.data.links import Links, read_links
from helpers.data.records import cluster_of
from helpers.metrics.head_counts import links_that_count
from helpers.metrics.heads import DIRECTIONS, is_right, parse_head, picked_words
from helpers.metrics.reference import ALL, EVERY_RELATION
from helpers.metrics.statistics import Estimate, cluster_sums, ratio, weighted_ratios
from helpers.store.store import Example

Side = Literal["left", "right"]
Rule = tuple[str, Side]
SIDES: tuple[Side, ...] = get_args(Side)
DISTANCES = ("1", "2", "3 to 5", "over 5")  # in words, between a word and its syntactic head
LAST_OF_DISTANCES = (1, 2, 5)  # the largest distances of all classes but the last
FEWEST_WORDS = 20  # of a relation at a distance, in accuracy_by_distance
PREDICTORS = ("head", "offset", "nearest")
MEAN_LEAD = "mean margin over the nearest word"
FAR_PARENTS = "heads minus nearest words, far parents"
SHARE_AHEAD = "share of relations whose head is ahead of the nearest word"
RULE_COLUMNS = ["nearest_class", "nearest_side"]


class _Heads(NamedTuple):
    """The head of each relation: layer, head and direction from 0, and its fixed offset."""

    relations: Shaped[np.ndarray, " row"]
    layers: Int[np.ndarray, " row"]
    heads: Int[np.ndarray, " row"]
    directions: Int[np.ndarray, " row"]
    offsets: Int[np.ndarray, " row"]


def nearest_word(
    tags: Iterable[str | None], word_class: str, side: Side
) -> Int[np.ndarray, " word"]:
    """Find the nearest word of a class on one side of each word.

    Parameters
    ----------
    tags : iterable of str or None
        The part of speech of each word.
    word_class : str
        The part of speech that is looked for, such as "VERB".
    side : {"left", "right"}
        Where it is looked for.

    Returns
    -------
    int array of shape (word,)
        Words, from 0.  It is the word itself, which is never right, if there is none on that side.
    """
    is_of_class = np.asarray(list(tags), dtype=object) == word_class
    words = np.arange(len(is_of_class))
    if side == "left":
        nearest = np.maximum.accumulate(np.where(is_of_class, words, -1))
        nearest = np.concatenate([[-1], nearest[:-1]])
    else:
        last = len(words)
        nearest = np.minimum.accumulate(np.where(is_of_class, words, last)[::-1])[::-1]
        nearest = np.concatenate([nearest[1:], [last]])
    exists = (nearest >= 0) & (nearest < len(words))
    return np.where(exists, nearest, words)


def choose_rules(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Choose the class and the side that find most syntactic heads of a relation on train.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only train is read.
    held_out : DataFrame
        What `helpers.metrics.dependency_heads.held_out_heads` returns.

    Returns
    -------
    DataFrame
        The table with ``nearest_class`` and ``nearest_side``; both are empty if no word of train
        has a tag.
    """
    heads = _heads_of_relations(held_out)
    n_right: dict[Rule, Int[np.ndarray, " row"]] = {}
    for example in examples:
        if example.record.get("split") != "train":
            continue
        links = read_links(example.record)
        tags = _tags(example)
        counts = _links_of_rows(example, links, heads).astype(int)
        for rule in product(sorted(set(tags) - {None}), SIDES):
            is_found = _finds_parent(nearest_word(tags, *rule), links)
            n_right[rule] = n_right.get(rule, 0) + counts @ is_found
    rules = sorted(n_right)  # of equal rules, the first in the alphabet counts
    best: list[Any] = [(None, None)] * len(held_out)
    if rules:
        best_indices = np.array([n_right[rule] for rule in rules]).argmax(axis=0)  # [row]
        best = [rules[index] for index in best_indices]
    classes_and_sides = pd.DataFrame(best, columns=RULE_COLUMNS, index=held_out.index, dtype=object)
    return held_out.assign(**classes_and_sides)


def judge_words(examples: Iterable[Example], rules: pd.DataFrame) -> pd.DataFrame:
    """Judge the head, the offset and the nearest word of each relation, word by word.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    rules : DataFrame
        What `choose_rules` returns.

    Returns
    -------
    DataFrame
        A row for each link of dev and each relation that it counts for (its own, and `ALL`).
        Columns: ``relation``; ``article``; ``distance`` to the nearest partner in words (0 for the
        root); whether it is found by the ``head``, the ``offset`` and the ``nearest`` word; whether
        there ``has_nearest`` a nearest word; and whether the head picks it, ``head_to_nearest``.
        Without rules, because no word has a tag, only the columns of head and offset are there.
    """
    heads = _heads_of_relations(rules)
    has_rules = bool(rules["nearest_class"].notna().any())
    judged = [*PREDICTORS, "has_nearest", "head_to_nearest"] if has_rules else ["head", "offset"]
    parts = [pd.DataFrame(columns=["relation", "article", "distance", *judged])]
    for number, example in enumerate(examples):
        if example.record.get("split") != "dev":
            continue
        links = read_links(example.record)
        counts = _links_of_rows(example, links, heads)
        values = _judge(example, links, heads)
        if has_rules:
            rule_pairs = rules[RULE_COLUMNS].itertuples(index=False, name=None)
            tags = _tags(example)
            nearest = np.array([nearest_word(tags, *rule) for rule in rule_pairs])  # [row, word]
            to_nearest = nearest[:, links.word]
            values["nearest"] = _finds_parent(nearest, links)
            values["has_nearest"] = to_nearest != links.word
            picks_nearest = (values["picked"] == to_nearest) & (values["picked"] != links.query)
            values["head_to_nearest"] = picks_nearest & values["has_nearest"]
        sentence = pd.DataFrame({name: values[name][counts] for name in ("distance", *judged)})
        relations = np.repeat(heads.relations, counts.sum(axis=1))
        parts.append(
            sentence.assign(relation=relations, article=cluster_of(example.record, number))
        )
    words = pd.concat(parts, ignore_index=True)
    return words.astype({"distance": int, **dict.fromkeys(judged, bool)})


def _judge(
    example: Example, links: Links, heads: _Heads
) -> dict[str, Shaped[np.ndarray, "row link"]]:
    """Let the head and the offset of each relation answer every link of a sentence."""
    words = example.word_positions
    maps = example.stored_attention[heads.layers, heads.heads][:, words, words]
    visible = example.visible_keys[heads.layers][:, words, words]
    # Rows of the maps are those of dependents, whichever direction a head is read in.
    is_column = (heads.directions == 1)[:, None, None]
    maps = np.where(is_column, maps.swapaxes(1, 2), maps).astype(np.float32)
    visible = np.where(is_column, visible.swapaxes(1, 2), visible)
    picked = picked_words(maps, links.query, visible=visible)  # [row, link]
    n_words = links.gold.shape[1]
    distances = np.abs(links.word[:, None] - np.arange(n_words))
    to_parent = np.where(links.gold, distances, n_words).min(axis=1)
    return {
        "picked": picked,
        "distance": np.broadcast_to(np.where(links.is_root, 0, to_parent), picked.shape),
        "head": is_right(picked, links),
        "offset": is_right(links.query + heads.offsets[:, None], links),
    }


def _heads_of_relations(held_out: pd.DataFrame) -> _Heads:
    """Read the head of each row of the table."""
    labels = [parse_head(label) for label in held_out["head"]]
    layers, heads = np.array(labels, int).reshape(-1, 2).T
    return _Heads(
        relations=held_out["relation"].to_numpy(object),
        layers=layers,
        heads=heads,
        directions=np.array([DIRECTIONS.index(name) for name in held_out["direction"]], int),
        offsets=held_out["baseline_offset"].to_numpy(int),
    )


def _tags(example: Example) -> Shaped[np.ndarray, " word"]:
    """Read the part of speech of each word; None where it has none."""
    record = example.record
    return np.asarray(record.get("tags") or [None] * len(record["words"]), dtype=object)


def _links_of_rows(example: Example, links: Links, heads: _Heads) -> Bool[np.ndarray, "row link"]:
    """Mark the links of each row's relation that count in the layer and direction of its head."""
    counts = links_that_count(example, links)  # [direction, layer, link]
    relations = heads.relations[:, None]
    is_of_relation = (links.relation == relations) | (relations == ALL)
    return counts[heads.directions, heads.layers] & is_of_relation


def _finds_parent(
    nearest: Int[np.ndarray, "*rule word"], links: Links
) -> Bool[np.ndarray, "*rule link"]:
    """Mark the links whose word picks a partner; here a possessor has no 's."""
    return is_right(nearest[..., links.word], links._replace(query=links.word))


def add_nearest(rules: pd.DataFrame, words: pd.DataFrame) -> pd.DataFrame:
    """Add the accuracy of the nearest word of one class to the table of held-out heads.

    Parameters
    ----------
    rules : DataFrame
        What `choose_rules` returns.
    words : DataFrame
        What `judge_words` returns.

    Returns
    -------
    DataFrame
        The table with ``nearest_accuracy`` in percent and ``nearest_margin``, the accuracy of the
        head minus that of the rule on the same words, in percentage points.  Both have 95%
        bootstrap intervals over articles, and are empty for a relation without a rule.
    """
    columns = [*Estimate(0).columns("nearest_accuracy"), *Estimate(0).columns("nearest_margin")]
    by_relation = dict(list(words.groupby("relation"))) if "nearest" in words else {}
    scores = []
    for relation in rules["relation"]:
        relation_words = by_relation.get(relation)
        if relation_words is None:
            scores.append({})
            continue
        scores.append(
            {
                **_percent(relation_words, "nearest").columns("nearest_accuracy"),
                **_percent(relation_words, "head", "nearest").columns("nearest_margin", df=True),
            }
        )
    table = pd.DataFrame(scores, index=rules.index)
    return rules.join(table.reindex(columns=[*columns, "nearest_margin_df"]).astype(float))


def _percent(words: pd.DataFrame, column: str, subtracted: str = "") -> Estimate:
    """Estimate the percentage of words that a column marks, or the lead over another column."""
    right = words[column].astype(int)
    if subtracted:
        right = right - words[subtracted].astype(int)
    articles = np.unique(words["article"])
    owners = words["article"].to_numpy()
    sums = cluster_sums(right.to_numpy(), owners, articles)
    sizes = cluster_sums(np.ones(len(words), int), owners, articles)
    return ratio(100 * sums, sizes)


def accuracy_by_distance(words: pd.DataFrame) -> pd.DataFrame:
    """Compute the accuracy of head, offset and nearest word by the distance of syntactic heads.

    Parameters
    ----------
    words : DataFrame
        What `judge_words` returns.

    Returns
    -------
    DataFrame
        A row for each relation and each of `DISTANCES`, and at the end those of `EVERY_RELATION`,
        the words of all relations together.  Columns: ``relation``, ``distance``, ``count``, and
        the accuracies in percent ``head``, ``offset`` and ``nearest``, and ``head_lead``, that of
        the head minus that of the nearest word, all with 95% bootstrap intervals over articles.
        The root has no distance and is left out.  There is no row without words.  Without tags,
        the columns of the nearest word are empty.
    """
    columns = ["relation", "distance", "count"]
    rows = []
    for relation, relation_words in _by_relation(words[words["distance"] > 0]):
        distance_class = np.digitize(relation_words["distance"], LAST_OF_DISTANCES, right=True)
        for index, name in enumerate(DISTANCES):
            at_distance = relation_words[distance_class == index]
            if at_distance.empty:
                continue
            row = {"relation": relation, "distance": name, "count": len(at_distance)}
            for predictor in words.columns.intersection(PREDICTORS):
                row |= _percent(at_distance, predictor).columns(predictor)
            if "nearest" in words:
                row |= _percent(at_distance, "head", "nearest").columns("head_lead", df=True)
            rows.append(row)
    for name in (*PREDICTORS, "head_lead"):
        columns += Estimate(0).columns(name)
    return pd.DataFrame(rows, columns=[*columns, "head_lead_df"])


def _by_relation(words: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Divide words by relation, in the order of the table; the last part has all but `ALL`."""
    parts = list(words.groupby("relation", sort=False))
    paired_words = words[words["relation"] != ALL]
    return parts if paired_words.empty else [*parts, (EVERY_RELATION, paired_words)]


def nearest_summary(words: pd.DataFrame) -> pd.DataFrame:
    """Summarise over relations by how much heads lead the nearest word of one class.

    Parameters
    ----------
    words : DataFrame
        What `judge_words` returns.

    Returns
    -------
    DataFrame
        Rows in the form of `helpers.metrics.dependency_heads.relation_summary`: `MEAN_LEAD`, the
        mean over relations of the head's accuracy minus that of the rule in percentage points, with
        a 95% bootstrap interval over articles; `SHARE_AHEAD`, the share of relations whose head
        is more accurate, without an interval; and `FAR_PARENTS`, over the words whose nearest word
        of the class is not their syntactic head, and whose head is two words away or more: how
        often the attention head picks the syntactic head minus how often it picks the nearest word,
        with an interval.  A head that only looks for the nearest word of a class picks that word.
        There is no row without a rule.
    """
    single = words[words["relation"] != ALL]
    if single.empty or "nearest" not in words:
        return pd.DataFrame(columns=["quantity", *Estimate(0).columns("value", df=True)])
    articles = np.unique(single["article"])
    leads = []
    totals = []
    for _, relation_words in single.groupby("relation", sort=False):
        owners = relation_words["article"].to_numpy()
        lead = relation_words["head"].astype(int) - relation_words["nearest"].astype(int)
        leads.append(cluster_sums(lead.to_numpy(), owners, articles))
        totals.append(cluster_sums(np.ones(len(lead), int), owners, articles))
    right = np.column_stack(leads)
    total = np.column_stack(totals)
    weights = np.full(len(leads), 1 / len(leads))
    mean_lead = weighted_ratios(100 * right, total, weights)
    is_ahead = right.sum(axis=0) > 0
    rows = [
        {"quantity": MEAN_LEAD, **mean_lead.columns("value", df=True)},
        {"quantity": SHARE_AHEAD, "value": is_ahead.mean()},
    ]
    far = single[single["has_nearest"] & ~single["nearest"] & (single["distance"] > 1)]
    if len(far):
        lead_over_nearest = _percent(far, "head", "head_to_nearest")
        rows.append({"quantity": FAR_PARENTS, **lead_over_nearest.columns("value", df=True)})
    return pd.DataFrame(rows)
