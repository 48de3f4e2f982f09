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

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from helpers.cache import cached
from helpers.data.links import Links, read_links
from helpers.data.records import cluster_of
from helpers.metrics import CODE
from helpers.metrics.heads import (
    DIRECTIONS,
    LayerNumbers,
    by_dependent,
    head_label,
    head_rows,
    is_right,
    picked_words,
)
from helpers.metrics.nearest_words import nearest_word
from helpers.metrics.statistics import (
    Estimate,
    bootstrap_intervals,
    cluster_sums,
    divide,
    weighted_ratios,
)
from helpers.store.store import Example, Store

TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X", "SPACE",
)  # fmt: skip
RANKS, DISTANCES = 4, 3  # the largest that are told apart
UNSEEN = 0.001  # probability of a place that train does not have
FLOOR = 1e-5  # of attention
TRAIN_WORDS, DEV_WORDS = 100, 30  # that a relation needs
MEAN = "mean of relations"


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
    words = np.arange(len(numbers))
    is_same = numbers[:, None] == numbers
    up_to = is_same.cumsum(axis=0)  # [word, other]: words of the other's tag up to the word
    at_other = up_to.diagonal()
    is_after = words > words[:, None]
    rank = np.where(is_after, at_other - up_to, up_to - is_same - at_other + 1)
    distance = np.abs(words - words[:, None])
    axes = (
        np.broadcast_to(numbers, is_same.shape),
        is_after,
        rank.clip(1, RANKS) - 1,
        distance.clip(1, DISTANCES) - 1,
    )
    return np.ravel_multi_index(axes, (len(TAGS) + 1, 2, RANKS, DISTANCES))


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
    cases, parents : dict of str to array
        For each relation the number of words at each place (`places`), and of parents among them.
    """

    def __init__(self, examples: Iterable[Example]) -> None:
        size = (len(TAGS) + 1) * 2 * RANKS * DISTANCES
        self.cases = defaultdict(lambda: np.zeros(size))
        self.parents = defaultdict(lambda: np.zeros(size))
        for example in examples:
            if example.record.get("split") != "train":
                continue
            links = read_links(example.record)
            numbers = places(tags_of(example))
            for relation, word, gold in zip(links.relation, links.word, links.gold, strict=True):
                self.cases[relation] += np.bincount(np.delete(numbers[word], word), minlength=size)
                self.parents[relation] += np.bincount(numbers[word, gold], minlength=size)

    def log_probabilities(self, example: Example, links: Links) -> Float[np.ndarray, "link other"]:
        """Compute ``log P`` of every word for each link; that of the word itself means nothing.

        ``P = (parents + 0.01) / (cases + 1)``, and 0.001 where train has no case.
        """
        numbers = places(tags_of(example))
        rows = []
        for relation, word in zip(links.relation, links.word, strict=True):
            cases = self.cases[relation][numbers[word]]
            smoothed = (self.parents[relation][numbers[word]] + 0.01) / (cases + 1)
            rows.append(np.log(np.where(cases > 0, smoothed, UNSEEN)))
        return np.reshape(rows, links.gold.shape)


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


def tags_of(example: Example) -> list[str | None]:
    """Read the universal part of speech of each word; None where it has none."""
    record = example.record
    return record.get("tags") or [None] * len(record["words"])


@dataclass(frozen=True)
class Additions:
    """Whether each way finds the parent of each word.

    Attributes
    ----------
    relation, split, article : array of shape (link,)
        Of each word.
    counts : bool array of shape (link, direction, layer)
        Whether the parent can be picked.
    rule : bool array of shape (link, direction, layer)
        Whether the largest P among the words that the layer sees is the parent's.
    with_head : bool array of shape (link, direction, layer, head)
        The same with the attention of a head.
    nearest : bool array of shape (link,)
        Whether the nearest word of the relation's class, on its side, is the parent.
    among : bool array of shape (link, direction, layer, head)
        Whether the word of that class with most attention is the parent.
    layer_numbers : sequence of int
        The numbers of the layers that attend, from 1.
    """

    relation: Shaped[np.ndarray, " link"]
    split: Shaped[np.ndarray, " link"]
    article: Shaped[np.ndarray, " link"]
    counts: Bool[np.ndarray, "link direction layer"]
    rule: Bool[np.ndarray, "link direction layer"]
    with_head: Bool[np.ndarray, "link direction layer head"]
    nearest: Bool[np.ndarray, " link"]
    among: Bool[np.ndarray, "link direction layer head"]
    layer_numbers: LayerNumbers = ()


def additions(store: Store, rules: pd.DataFrame) -> Additions:
    """Let the rule, the heads, and both together answer every word of a treebank, once.

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank whose words have tags.
    rules : DataFrame
        The class and side of each relation (`helpers.metrics.nearest_words.choose_rules`).

    Returns
    -------
    Additions
        The words of the relations in ``rules``, each once, without roots.
    """
    rules = rules.set_index("relation")[["nearest_class", "nearest_side"]].dropna()
    arrays = cached(
        "head-additions",
        lambda: vars(judge_additions(store, rules)),
        inputs={"store": store.key, "rules": rules.reset_index().to_dict("list")},
        code=CODE,
    )
    return Additions(**arrays)


def judge_additions(examples: Iterable[Example], rules: pd.DataFrame) -> Additions:
    """Compute `additions`; ``rules`` has the relations as its index."""
    parent_rule = ParentRule(examples)
    parts = defaultdict(list)
    layer_numbers: LayerNumbers = ()
    for number, example in enumerate(examples):
        layer_numbers = example.layer_numbers
        links = read_links(example.record)
        is_asked = np.isin(links.relation, rules.index) & ~links.is_root
        links = Links(*(field[is_asked] for field in links))
        if not len(links.word):
            continue
        answers = _answer(example, links, parent_rule, rules)
        n_links = len(links.word)
        answers["relation"] = links.relation.astype(str)
        answers["split"] = np.repeat(example.record.get("split", ""), n_links)
        answers["article"] = np.repeat(cluster_of(example.record, number), n_links)
        for name, values in answers.items():
            parts[name].append(values)
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    return Additions(layer_numbers=np.array(layer_numbers, dtype=int), **columns)


def _answer(
    example: Example, links: Links, parent_rule: ParentRule, rules: pd.DataFrame
) -> dict[str, Shaped[np.ndarray, "link ..."]]:
    """Answer the links of a sentence in every way."""
    words = example.word_positions
    maps = example.stored_attention[:, :, words, words].astype(np.float32)
    visible = example.visible_keys[:, words, words]
    classes, sides = rules.loc[links.relation].to_numpy().T
    tags = np.array(tags_of(example), dtype=object)
    is_of_class = tags == classes[:, None]
    is_other = np.arange(len(tags)) != links.word[:, None]
    log_p = parent_rule.log_probabilities(example, links)
    by_name = defaultdict(list)
    for direction in DIRECTIONS:
        seen = by_dependent(visible, direction)[:, links.query]  # [layer, link, other]
        log_weights = np.log(by_dependent(maps, direction)[:, :, links.query] + FLOOR)
        allowed = seen & is_other
        picked = picked_words(
            maps, links.query, direction=direction, candidates=is_of_class, visible=visible[:, None]
        )
        by_name["counts"].append(np.any(seen & links.gold, axis=-1))
        by_name["rule"].append(is_best_right(np.broadcast_to(log_p, seen.shape), allowed, links))
        by_name["with_head"].append(is_best_right(log_p + log_weights, allowed[:, None], links))
        by_name["among"].append(is_right(picked, links))
    answers = {name: np.moveaxis(np.array(values), -1, 0) for name, values in by_name.items()}
    nearest = [nearest_word(tags, *rule) for rule in zip(classes, sides, strict=True)]
    rows = np.arange(len(links.word))
    answers["nearest"] = links.gold[rows, np.array(nearest)[rows, links.word]]
    return answers


def gain_table(
    answers: Additions,
    without: Bool[np.ndarray, "link *#seen"],
    with_head: Bool[np.ndarray, "link direction layer head"],
    without_name: str,
    gain_name: str,
) -> pd.DataFrame:
    """Compute how much more of the words of dev are right with the best head of train.

    Parameters
    ----------
    answers : Additions
        What `additions` returns.
    without, with_head : bool array
        Whether each word is right without a head, and with each head.
    without_name, gain_name : str
        Columns of the accuracy without a head, and of the difference.

    Returns
    -------
    DataFrame
        A row for each relation that has `TRAIN_WORDS` words of train and `DEV_WORDS` of dev, by
        name, and the row `MEAN`.  Columns: ``relation``, ``count`` (words of dev), ``head``,
        ``direction``, the accuracies in percent without and ``with_head``, and their difference in
        percentage points, with a 95% bootstrap interval over articles.
    """
    articles = np.unique(answers.article)
    without = np.broadcast_to(without, answers.counts.shape)
    rows = []
    sums = []
    for relation, gains in train_gains(answers, without, with_head).items():
        direction, layer, head = np.unravel_index(gains.argmax(), gains.shape)
        is_dev = (answers.relation == relation) & (answers.split == "dev")
        is_scored = is_dev & answers.counts[:, direction, layer]
        by_article = right_by_article(
            with_head[is_scored, direction, layer, head],
            without[is_scored, direction, layer],
            answers.article[is_scored],
            articles,
        )
        sums.append(by_article)
        label = head_label(layer, head, answers.layer_numbers)
        chosen = {"head": label, "direction": DIRECTIONS[direction]}
        gain = mean_gain([by_article], without_name, gain_name)
        rows.append({"relation": relation, **chosen, **gain})
    if rows:
        rows.append({"relation": MEAN, **mean_gain(sums, without_name, gain_name)})
    columns = ["relation", "count", "head", "direction", without_name, "with_head"]
    return pd.DataFrame(rows, columns=[*columns, *Estimate(0).columns(gain_name, df=True)])


def train_gains(
    answers: Additions,
    without: Bool[np.ndarray, "link direction layer"],
    with_head: Bool[np.ndarray, "link direction layer head"],
) -> dict[str, Float[np.ndarray, "direction layer head"]]:
    """Compute for each frequent relation the share of train words that each head adds.

    It is -infinity in a direction and layer with fewer than `TRAIN_WORDS` words of train or
    `DEV_WORDS` of dev that count.
    """
    by_relation = {}
    for relation in np.unique(answers.relation):
        is_train = (answers.relation == relation) & (answers.split == "train")
        is_dev = (answers.relation == relation) & (answers.split == "dev")
        counts = answers.counts[is_train]
        n_train = counts.sum(axis=0)
        is_frequent = n_train >= TRAIN_WORDS
        is_frequent &= answers.counts[is_dev].sum(axis=0) >= DEV_WORDS
        if is_frequent.any():
            gains = with_head[is_train].astype(int) - without[is_train][..., None]
            total = (gains * counts[..., None]).sum(axis=0)
            means = divide(total, n_train[..., None])
            by_relation[relation] = np.where(is_frequent[..., None], means, -np.inf)
    return by_relation


def class_heads(answers: Additions) -> pd.DataFrame:
    """Find the relation that each head is best at among the words of a class, on train.

    Punctuation is left out: where it is attached is a convention, and the nearest word of a class
    finds so little of it that all heads with random weights find more.

    Parameters
    ----------
    answers : Additions
        What `additions` returns.

    Returns
    -------
    DataFrame
        A row for each head: ``layer`` and ``head`` (from 1); the ``relation`` and ``direction`` in
        which its lead over the nearest word of the class is surest on train (the largest lower
        bound); and on dev, in percent, ``among`` and ``nearest``, and ``lead``, their difference,
        with a 95% bootstrap interval over articles.  Empty cells without a frequent relation.
    """
    rows = head_rows(*answers.among.shape[2:], numbers=answers.layer_numbers)
    columns = ["relation", "direction", "among", "nearest", *Estimate(0).columns("lead")]
    nearest = np.broadcast_to(answers.nearest[:, None, None], answers.counts.shape)
    relations = [name for name in train_gains(answers, nearest, answers.among) if name != "punct"]
    by_split = {}
    for split in ("train", "dev"):
        sums = [_class_sums(answers, relation, split) for relation in relations]
        by_split[split] = np.stack(sums, axis=1) if sums else None
    if not relations:
        return rows.reindex(columns=[*rows, *columns])
    among, near, total = np.moveaxis(by_split["train"], -1, 0)
    low, _ = bootstrap_intervals(among - near, total)  # [relation, direction, layer, head]
    low = np.nan_to_num(low, nan=-np.inf).reshape(-1, len(rows))
    best = low.argmax(axis=0)
    dev_sums = by_split["dev"]  # [article, relation, direction, layer, head, 3]
    dev_sums = dev_sums.reshape(len(dev_sums), -1, len(rows), 3)[:, best, np.arange(len(rows))]
    among, near, total = np.moveaxis(dev_sums, -1, 0)  # each [article, head]
    percents = [100 * divide(right.sum(axis=0), total.sum(axis=0)) for right in (among, near)]
    bounds = bootstrap_intervals(100 * (among - near), total)
    names = [relations[index] for index in best // len(DIRECTIONS)]
    directions = [DIRECTIONS[index] for index in best % len(DIRECTIONS)]
    values = [names, directions, *percents, percents[0] - percents[1], *bounds]
    return rows.assign(**dict(zip(columns, values, strict=True)))


def _class_sums(
    answers: Additions, relation: str, split: str
) -> Int[np.ndarray, "article direction layer head 3"]:
    """Count by article what heads find among a class, what the nearest word finds, and all."""
    words = (answers.relation == relation) & (answers.split == split)
    counts = np.broadcast_to(answers.counts[words][..., None], answers.among[words].shape)
    near = answers.nearest[words][:, None, None, None]
    values = np.stack([answers.among[words] & counts, near & counts, counts], axis=-1)
    return cluster_sums(values, answers.article[words], np.unique(answers.article))


def right_by_article(
    with_head: Bool[np.ndarray, " word"],
    without: Bool[np.ndarray, " word"],
    owner: Shaped[np.ndarray, " word"],
    articles: Shaped[np.ndarray, " article"],
) -> Int[np.ndarray, "article 3"]:
    """Count what is right with and without a head, and all words, in each article."""
    values = np.column_stack([with_head, without, np.ones_like(without)])
    return cluster_sums(values, owner, articles)


def mean_gain(
    sums: list[Int[np.ndarray, "article 3"]], without_name: str, gain_name: str
) -> dict[str, Any]:
    """Average accuracies with and without a head, and their difference, over relations.

    Parameters
    ----------
    sums : list of array
        What `right_by_article` returns for each relation.
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


def addition_table(answers: Additions) -> pd.DataFrame:
    """Compute what one head adds to tags and places, and what it finds among the words of a class.

    Parameters
    ----------
    answers : Additions
        What `additions` returns.

    Returns
    -------
    DataFrame
        The rows of `gain_table`.  ``rule``, ``with_head`` and ``added`` are the accuracy of the
        rule of tags and places, the same with the ``head``, and their difference.  ``nearest``,
        ``among`` and ``lead`` are those of the nearest word of a class, of the word of that class
        to which the ``class_head`` attends most, and their difference.
    """
    added = gain_table(answers, answers.rule, answers.with_head, "rule", "added")
    nearest = answers.nearest[:, None, None]
    among = gain_table(answers, nearest, answers.among, "nearest", "lead").drop(columns="count")
    new_names = {"head": "class_head", "direction": "class_direction", "with_head": "among"}
    return added.merge(among.rename(columns=new_names), on="relation")
