"""The gain of an attention head over what tags and places say (section 4.2, beyond the paper).

A head does not know parts of speech; a rule may.  So that both are asked the same question, the
rule gives every other word of the sentence a probability of being the parent, and the head's
attention is added to it.  Two comparisons with an interval:

- *adds*: the accuracy of ``log P + log(attention + 1e-5)`` minus that of ``log P``.  P is counted
  on train, from the universal tag of the other word, its side, its rank among the words of that tag
  on that side, and its distance: see `places` and `ParentRule`;
- *among the class*: the word with the most attention among the words of one tag, minus the nearest
  word of that tag on one side (`helpers.metrics.nearest_words`).

Heads and directions are chosen on train, and everything is scored on the same words of dev.  Words
count, as in Table 1, where the mask lets a head see their parent; the rule chooses among the words
that the head sees.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.data.links import Links, read_links
from helpers.metrics.head_counts import (
    HeadCounts,
    between_words,
    cached_counts,
    count_rows,
    join_rows,
    links_that_count,
    rows_of_relations,
)
from helpers.metrics.heads import (
    DIRECTIONS,
    by_dependent,
    head_label,
    head_rows,
    is_right,
    picked_words,
)
from helpers.metrics.nearest_words import nearest_word, tags_of
from helpers.metrics.statistics import Estimate, bootstrap_intervals, divide, weighted_ratios
from helpers.store.store import Example, Store

TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X", "SPACE",
)  # fmt: skip
RANKS = 4  # the largest that are told apart
DISTANCES = 3
PLACE_AXES = (len(TAGS) + 1, 2, RANKS, DISTANCES)  # tag, side, rank and distance
PLACES = math.prod(PLACE_AXES)
UNSEEN = 0.001  # probability of a place that train does not have
TRAIN_WORDS = 100  # that a relation needs
DEV_WORDS = 30
MEAN = "mean of relations"

Rival = Literal["rule", "nearest"]
Marks = Bool[np.ndarray, "#direction #layer #head link"]  # of what is right
Judge = Callable[[Example, Links], tuple[Marks, Marks]]  # of the rival, and of heads
Sums = Int[np.ndarray, "article direction layer head 3"]
Frequent = Bool[np.ndarray, "direction layer head"]


def places(tags: Iterable[str | None]) -> Int[np.ndarray, "word other"]:
    """Number the place of every other word, seen from each word.

    Parameters
    ----------
    tags : iterable of str or None
        The universal part of speech of each word.

    Returns
    -------
    int array of shape (word, other)
        Two places are the same if the other word has the same tag, is on the same side, is the
        same in rank (the first word of its tag on that side, the second, the third, or a later
        one), and is as far away (1, 2, or 3 words and more).  The diagonal means nothing.
    """
    numbers = tag_numbers(tags)
    is_same = numbers[:, None] == numbers
    up_to = is_same.cumsum(axis=0)  # [word, other]: words of the other's tag up to the word
    at_other = up_to.diagonal()
    words = np.arange(len(numbers))
    steps = words - words[:, None]
    rank = np.where(steps > 0, at_other - up_to, up_to - is_same - at_other + 1)
    rank = rank.clip(1, RANKS) - 1
    distance = np.abs(steps).clip(1, DISTANCES) - 1
    tag = np.broadcast_to(numbers, steps.shape)
    return np.ravel_multi_index((tag, steps > 0, rank, distance), PLACE_AXES)


def tag_numbers(tags: Iterable[str | None]) -> Int[np.ndarray, " word"]:
    """Number universal parts of speech by `TAGS`; the last number is that of any other or none."""
    return np.array([TAGS.index(tag) if tag in TAGS else len(TAGS) for tag in tags], int)


class ParentRule:
    """How often a word at a place is the parent, for each relation, counted on train.

    Parameters
    ----------
    examples : iterable of Example
        Sentences of a treebank with tags; only train is read.

    Attributes
    ----------
    log_p : dict of str to array
        For each relation the ``log P`` of each place (`places`).
        ``P = (parents + 0.01) / (cases + 1)``, and 0.001 where train has no case.
    """

    def __init__(self, examples: Iterable[Example]) -> None:
        cases: defaultdict[str, Any] = defaultdict(int)
        parents: defaultdict[str, Any] = defaultdict(int)
        for example in examples:
            if example.record.get("split") != "train":
                continue
            links = read_links(example.record)
            numbers = places(tags_of(example))
            for relation, word, gold in zip(links.relation, links.word, links.gold, strict=True):
                other_words = np.delete(numbers[word], word)
                cases[relation] += np.bincount(other_words, minlength=PLACES)
                parents[relation] += np.bincount(numbers[word, gold], minlength=PLACES)
        self.log_p = defaultdict(lambda: np.full(PLACES, np.log(UNSEEN)))
        for relation, count in cases.items():
            smoothed = (parents[relation] + 0.01) / (count + 1)
            self.log_p[relation] = np.log(np.where(count > 0, smoothed, UNSEEN))

    def log_probabilities(self, example: Example, links: Links) -> Float[np.ndarray, "link other"]:
        """Look up ``log P`` of every word for each link; that of the word itself means nothing."""
        numbers = places(tags_of(example))
        pairs = zip(links.relation, links.word, strict=True)
        log_p = [self.log_p[relation][numbers[word]] for relation, word in pairs]
        return np.reshape(log_p, links.gold.shape)


def is_best_right(
    scores: Float[np.ndarray, "*masks link other"],
    allowed: Bool[np.ndarray, "*#masks link other"],
    links: Links,
) -> Bool[np.ndarray, "*masks link"]:
    """Tell for each link whether the allowed word with the largest score is right.

    Of equals the nearest is chosen, and of two as near the one before.
    """
    positions = np.arange(links.gold.shape[1])
    by_distance = np.abs(positions - links.word[:, None]).argsort(axis=1, kind="stable")
    rows = np.arange(len(links.word))
    sorted_scores = np.where(allowed, scores, -np.inf)[..., rows[:, None], by_distance]
    best = by_distance[rows, sorted_scores.argmax(axis=-1)]
    return links.gold[rows, best]


def additions(store: Store, rules: pd.DataFrame) -> dict[Rival, HeadCounts]:
    """Count the words of a treebank that each head gets right with the rule, or in a class, once.

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank whose words have tags.
    rules : DataFrame
        The class and side of each relation (`helpers.metrics.nearest_words.choose_rules`).

    Returns
    -------
    dict of str to HeadCounts
        Words of the relations in ``rules``, without roots, and one rival each.  "rule": a head
        chooses with the rule, and its rival is the rule alone, among the words that the layer sees
        (`count_with_rule`).  "nearest": a head chooses among the words of the relation's class, and
        its rival is the nearest of these on one side (`count_in_class`).
    """
    rules = rules.set_index("relation")[["nearest_class", "nearest_side"]].dropna()
    inputs = {"store": store.key, "rules": rules.reset_index().to_dict("list")}
    with_rule = partial(count_with_rule, store, rules)
    in_class = partial(count_in_class, store, rules)
    return {
        "rule": cached_counts("additions-rule", with_rule, inputs),
        "nearest": cached_counts("additions-nearest", in_class, inputs),
    }


def count_with_rule(examples: Iterable[Example], rules: pd.DataFrame) -> HeadCounts:
    """Count the words whose parent has the largest P, and the largest P with a head's attention.

    ``rules`` has the relations as its index.
    """
    parent_rule = ParentRule(examples)

    def judge(example: Example, links: Links) -> tuple[Marks, Marks]:
        maps, visible = between_words(example)
        log_p = parent_rule.log_probabilities(example, links)
        is_other = np.arange(log_p.shape[1]) != links.word[:, None]
        by_rule = []
        by_both = []
        for direction in DIRECTIONS:
            allowed = by_dependent(visible, direction)[:, :, links.query] & is_other
            weights = by_dependent(maps, direction)[:, :, links.query]
            # The small number keeps the logarithm finite where a head gives a word nothing.
            with_head = log_p + np.log(weights + 1e-5)
            by_rule.append(is_best_right(np.broadcast_to(log_p, allowed.shape), allowed, links))
            by_both.append(is_best_right(with_head, allowed, links))
        return np.array(by_rule), np.array(by_both)

    return _count(examples, rules, judge)


def count_in_class(examples: Iterable[Example], rules: pd.DataFrame) -> HeadCounts:
    """Count the words whose parent is the nearest of its class, and the most attended of it."""

    def judge(example: Example, links: Links) -> tuple[Marks, Marks]:
        maps, visible = between_words(example)
        tags = tags_of(example)
        chosen = rules.loc[links.relation].to_numpy()  # the class and the side of each link
        candidates = tags == chosen[:, :1]
        options = {"candidates": candidates, "visible": visible}
        picked = [picked_words(maps, links.query, direction=d, **options) for d in DIRECTIONS]
        nearest = [nearest_word(tags, *rule) for rule in chosen]
        rows = np.arange(len(links.word))
        is_nearest = links.gold[rows, np.array(nearest)[rows, links.word]]
        return is_nearest[None, None, None], is_right(np.array(picked), links)

    return _count(examples, rules, judge)


def _count(examples: Iterable[Example], rules: pd.DataFrame, judge: Judge) -> HeadCounts:
    """Count what ``judge`` marks as right of the links of a treebank: of the rival, and of heads.

    Articles are in the order of their names.
    """
    parts = []
    for number, example in enumerate(examples):
        links = read_links(example.record)
        is_asked = np.isin(links.relation, rules.index) & ~links.is_root
        links = Links(*(field[is_asked] for field in links))
        if len(links.word):
            counts = links_that_count(example, links)  # [direction, layer, link]
            by_rival, by_heads = judge(example, links)
            rows = rows_of_relations(links)
            marks = (counts, counts[:, :, None] & by_rival, counts[:, :, None] & by_heads)
            parts.append(count_rows(example.record, number, rows, *marks, example.layer_numbers))
    parts.sort(key=lambda part: part["article"][0])
    return join_rows(parts)


def frequent_sums(counts: HeadCounts) -> dict[str, tuple[Sums, Sums, Frequent]]:
    """Sum what is right in train and in dev, for each relation that is frequent in a layer.

    The sums are of what heads get right, of what the rival does, and of the words that count.  All
    articles are there, with zeros for those of the other split.  A relation is frequent in the
    directions and layers in which `TRAIN_WORDS` words of train and `DEV_WORDS` of dev count.
    """
    judged = np.broadcast_arrays(counts.right, counts.rival_right, counts.visible_total[..., None])
    values = np.stack(judged, axis=-1)  # [row, direction, layer, head, 3]
    by_relation = {}
    for relation in sorted(counts.names):
        train = counts.by_article(values, relation, "train")
        dev = counts.by_article(values, relation, "dev")
        is_frequent = train[..., 2].sum(axis=0) >= TRAIN_WORDS
        is_frequent &= dev[..., 2].sum(axis=0) >= DEV_WORDS
        if is_frequent.any():
            by_relation[relation] = (train, dev, is_frequent)
    return by_relation


def gain_table(counts: HeadCounts, without_name: str, gain_name: str) -> pd.DataFrame:
    """Compute how much more of the words of dev are right with the best head of train.

    Parameters
    ----------
    counts : HeadCounts
        One of those of `additions`.
    without_name, gain_name : str
        Columns of the accuracy of the rival, and of the difference.

    Returns
    -------
    DataFrame
        A row for each relation that has `TRAIN_WORDS` words of train and `DEV_WORDS` of dev, by
        name, and the row `MEAN`.  Columns: ``relation``, ``count`` (words of dev), ``head``,
        ``direction``, the accuracies in percent of the rival and ``with_head``, and their
        difference in percentage points, with a 95% bootstrap interval over articles.
    """
    rows = []
    sums = []
    for relation, (train, dev, is_frequent) in frequent_sums(counts).items():
        right, rival_right, total = np.moveaxis(train.sum(axis=0), -1, 0)
        gains = np.where(is_frequent, divide(right - rival_right, total), -np.inf)
        direction, layer, head = np.unravel_index(gains.argmax(), gains.shape)
        sums.append(dev[:, direction, layer, head])
        label = head_label(layer, head, counts.layer_numbers)
        row = {"relation": relation, "head": label, "direction": DIRECTIONS[direction]}
        rows.append(row | mean_gain(sums[-1:], without_name, gain_name))
    if rows:
        rows.append({"relation": MEAN, **mean_gain(sums, without_name, gain_name)})
    columns = ["relation", "count", "head", "direction", without_name, "with_head"]
    return pd.DataFrame(rows, columns=[*columns, *Estimate(0).columns(gain_name, df=True)])


def class_heads(answers: Mapping[Rival, HeadCounts]) -> pd.DataFrame:
    """Find the relation that each head is best at among the words of a class, on train.

    Punctuation is left out: where it is attached is a convention, and the nearest word of a class
    finds so little of it that all heads with random weights find more.

    Parameters
    ----------
    answers : dict of str to HeadCounts
        What `additions` returns.

    Returns
    -------
    DataFrame
        A row for each head: ``layer`` and ``head`` (from 1); the ``relation`` and ``direction`` in
        which its lead over the nearest word of the class is surest on train (the largest lower
        bound); and on dev, in percent, ``among`` and ``nearest``, and ``lead``, their difference,
        with a 95% bootstrap interval over articles.  Empty cells without a frequent relation.
    """
    counts = answers["nearest"]
    frequent = {name: sums for name, sums in frequent_sums(counts).items() if name != "punct"}
    names = list(frequent)
    lows = []
    for train, _, _ in frequent.values():
        low, _ = bootstrap_intervals(train[..., 0] - train[..., 1], train[..., 2])
        lows.append(np.nan_to_num(low, nan=-np.inf))
    rows = head_rows(*counts.right.shape[2:], numbers=counts.layer_numbers)
    best = []
    for layer, head in np.ndindex(counts.right.shape[2:]) if frequent else ():
        bounds = np.array(lows)[:, :, layer, head]  # [relation, direction]
        relation, direction = np.unravel_index(bounds.argmax(), bounds.shape)
        _, dev, _ = frequent[names[relation]]
        chosen = dev[:, direction, layer, head]  # [article, 3]
        among, nearest = 100 * divide(chosen[:, :2].sum(axis=0), chosen[:, 2:].sum(axis=0))
        low, high = bootstrap_intervals(100 * (chosen[:, 0] - chosen[:, 1]), chosen[:, 2])
        lead = Estimate(among - nearest, low.item(), high.item()).columns("lead")
        row = {"relation": names[relation], "direction": DIRECTIONS[direction]}
        best.append(row | {"among": among, "nearest": nearest} | lead)
    columns = ["relation", "direction", "among", "nearest", *Estimate(0).columns("lead")]
    return rows.join(pd.DataFrame(best, columns=columns))


def mean_gain(
    sums: list[Int[np.ndarray, "article 3"]], without_name: str, gain_name: str
) -> dict[str, Any]:
    """Average accuracies with and without a head, and their difference, over relations.

    Parameters
    ----------
    sums : list of array
        For each relation, what is right with and without a head, and all words, by article.
    without_name, gain_name : str
        Columns of the accuracy without a head, and of the difference.

    Returns
    -------
    dict
        The numbers of a row of `gain_table`, by column.
    """
    with_head, without, total = np.moveaxis(np.stack(sums), -1, 0).swapaxes(1, 2)
    gain = weighted_ratios(100 * (with_head - without), total)
    return {
        "count": int(total.sum()),
        without_name: 100 * divide(without.sum(axis=0), total.sum(axis=0)).mean(),
        "with_head": 100 * divide(with_head.sum(axis=0), total.sum(axis=0)).mean(),
        **gain.columns(gain_name, df=True),
    }


def addition_table(answers: Mapping[Rival, HeadCounts]) -> pd.DataFrame:
    """Compute what one head adds to tags and places, and what it finds among the words of a class.

    Parameters
    ----------
    answers : dict of str to HeadCounts
        What `additions` returns.

    Returns
    -------
    DataFrame
        The rows of `gain_table`.  ``rule``, ``with_head`` and ``added`` are the accuracy of the
        rule of tags and places, the same with the ``head``, and their difference.  ``nearest``,
        ``among`` and ``lead`` are those of the nearest word of a class, of the word of that class
        to which the ``class_head`` attends most, and their difference.
    """
    added = gain_table(answers["rule"], "rule", "added")
    among = gain_table(answers["nearest"], "nearest", "lead").drop(columns=["count", "direction"])
    new_names = {"head": "class_head", "with_head": "among"}
    return added.merge(among.rename(columns=new_names), on="relation")
