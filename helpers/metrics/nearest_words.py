"""The nearest word of one class on one side, as a baseline of Table 1 (section 4.2).

For the object of a verb, the rule may say: take the nearest verb on the left.  It needs parts of
speech (universal tags), but it needs neither trees nor attention.  The class and the side are
chosen on train for each relation, like its attention head and its fixed offset, and all three are
scored on the same words of dev.

Under a causal mask a head can only be right if the answer can be seen.  Only words whose syntactic
head can be picked in the layer and direction of the relation's head count, for the rule as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Shaped

from helpers.data.links import Links, read_links
from helpers.data.records import cluster_of
from helpers.metrics.head_counts import links_that_count
from helpers.metrics.heads import head_indices, is_right, picked_words, rows_by_dependent
from helpers.metrics.reference import ALL, EVERY_RELATION
from helpers.metrics.statistics import Estimate, ratio, summary_table, weighted_ratios
from helpers.store.store import Example

Side = Literal["left", "right"]
DISTANCES = ("1", "2", "3 to 5", "over 5")  # in words, between a word and its syntactic head
FEWEST_WORDS = 20  # of a relation at a distance, in accuracy_by_distance
PREDICTORS = ("head", "offset", "nearest")
RULE_COLUMNS = ["nearest_class", "nearest_side"]
WORD_COLUMNS = ["relation", "article", "distance", *PREDICTORS, "head_lead", "far_lead"]


def nearest_word(
    tags: Sequence[str | None] | Shaped[np.ndarray, " word"], word_class: str, side: Side
) -> Int[np.ndarray, " word"]:
    """Find the nearest word of a class on one side of each word.

    Parameters
    ----------
    tags : sequence of str or None
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
    if side == "right":  # the text is read backwards
        nearest = nearest_word(tags[::-1], word_class, "left")
        return len(tags) - 1 - nearest[::-1]
    words = np.arange(len(tags))
    is_of_class = np.asarray(tags, dtype=object) == word_class
    last = np.maximum.accumulate(np.where(is_of_class, words, -1))  # up to each word
    before = np.concatenate([[-1], last])[:-1]
    return np.where(before < 0, words, before)


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
    n_right: defaultdict[tuple[str, Side], Any] = defaultdict(int)  # [row]
    for example in examples:
        if example.record.get("split") != "train":
            continue
        links = read_links(example.record)
        tags = tags_of(example)
        counts = _links_of_rows(example, links, held_out).astype(int)
        for rule in product(sorted(set(tags) - {None}), get_args(Side)):
            nearest = nearest_word(tags, *rule)[links.word]
            n_right[rule] += counts @ is_right(nearest, links._replace(query=links.word))
    if not n_right:
        return held_out.assign(nearest_class=None, nearest_side=None)
    rules = sorted(n_right)  # of equal rules, the first in the alphabet counts
    best = np.argmax([n_right[rule] for rule in rules], axis=0)  # [row]
    classes, sides = np.array(rules, dtype=object)[best].T
    return held_out.assign(nearest_class=classes, nearest_side=sides)


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
        root); and 1 or 0 for whether it is found by the ``head``, the ``offset`` and the
        ``nearest`` word.  ``head_lead`` is ``head`` minus ``nearest``.  ``far_lead`` is for words
        with a nearest word that is not their partner, and with a partner two words away or more:
        ``head`` minus whether the head picks that nearest word.  What needs a rule is NaN without
        rules, because no word has a tag.
    """
    parts = [pd.DataFrame(columns=WORD_COLUMNS)]
    for number, example in enumerate(examples):
        if example.record.get("split") == "dev":
            article = cluster_of(example.record, number)
            parts.append(_judge(example, rules).assign(article=article))
    words = pd.concat(parts, ignore_index=True)
    return words.astype(dict.fromkeys(WORD_COLUMNS[2:], float))


def _judge(example: Example, rules: pd.DataFrame) -> pd.DataFrame:
    """Let the head, the offset and the rule of each relation answer its links in a sentence."""
    links = read_links(example.record)
    directions, layers, heads = head_indices(rules, example.layer_numbers)
    words = example.word_positions
    # Rows of the maps are those of dependents, whichever direction a head is read in.
    maps = rows_by_dependent(example.stored_attention[layers, heads][:, words, words], directions)
    visible = rows_by_dependent(example.visible_keys[layers][:, words, words], directions)
    picked = picked_words(maps.astype(np.float32), links.query, visible=visible)  # [row, link]
    distances = np.abs(links.word[:, None] - np.arange(links.gold.shape[1]))
    distance = np.where(links.is_root, 0, np.where(links.gold, distances, np.inf).min(axis=1))
    offsets = rules["baseline_offset"].to_numpy(int)[:, None]
    head = is_right(picked, links).astype(float)
    columns = {"distance": distance, "head": head}
    columns["offset"] = is_right(links.query + offsets, links)
    chosen_rules = rules[RULE_COLUMNS].dropna().to_numpy()
    if len(chosen_rules):
        by_rule = [nearest_word(tags_of(example), *rule) for rule in chosen_rules]
        nearest = np.array(by_rule)[:, links.word]  # [row, link]; here a possessor has no 's
        is_nearest = is_right(nearest, links._replace(query=links.word))
        columns |= {"nearest": is_nearest, "head_lead": head - is_nearest}
        is_far = (nearest != links.word) & ~is_nearest & (distance > 1)
        picks_nearest = (picked == nearest) & (picked != links.query)
        columns["far_lead"] = np.where(is_far, head - picks_nearest, np.nan)
    row, link = np.nonzero(_links_of_rows(example, links, rules))
    values = {
        name: np.broadcast_to(marks, head.shape)[row, link] for name, marks in columns.items()
    }
    return pd.DataFrame(values).assign(relation=rules["relation"].to_numpy()[row])


def tags_of(example: Example) -> Shaped[np.ndarray, " word"]:
    """Read the universal part of speech of each word; None where it has none."""
    record = example.record
    return np.asarray(record.get("tags") or [None] * len(record["words"]), dtype=object)


def _links_of_rows(
    example: Example, links: Links, held_out: pd.DataFrame
) -> Bool[np.ndarray, "row link"]:
    """Mark the links of each row's relation that count in the layer and direction of its head."""
    directions, layers, _ = head_indices(held_out, example.layer_numbers)
    relations = held_out["relation"].to_numpy(object)[:, None]
    is_of_relation = (links.relation == relations) | (relations == ALL)
    return links_that_count(example, links)[directions, layers] & is_of_relation


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
        The table with ``nearest_accuracy`` in percent, with a 95% bootstrap interval over articles.
        It is empty for a relation without a rule.
    """
    name = "nearest_accuracy"
    names = list(Estimate(0).columns(name))
    parts = [words[words["relation"] == relation] for relation in rules["relation"]]
    scores = [_percentage(part, "nearest").columns(name) for part in parts]
    return rules.join(pd.DataFrame(scores, rules.index, names, dtype=float))


def _percentage(words: pd.DataFrame, column: str) -> Estimate:
    """Estimate the mean of a column in percent; words without a value are left out."""
    sums = words.dropna(subset=column).groupby("article")[column].agg(["sum", "count"])
    return ratio(100 * sums["sum"].to_numpy(), sums["count"].to_numpy())


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
    words = words[words["distance"] > 0]
    single = words[words["relation"] != ALL]
    words = pd.concat([words, single.assign(relation=EVERY_RELATION)], ignore_index=True)
    relations = pd.Categorical(words["relation"], words["relation"].unique())
    distances = pd.cut(words["distance"], [0, 1, 2, 5, np.inf], labels=DISTANCES)
    rows = []
    for (relation, distance), part in words.groupby([relations, distances], observed=True):
        row = {"relation": relation, "distance": distance, "count": len(part)}
        for name in PREDICTORS:
            row |= _percentage(part, name).columns(name)
        rows.append(row | _percentage(part, "head_lead").columns("head_lead", df=True))
    return pd.DataFrame(rows if rows else {"relation": [], "distance": [], "count": []})


def nearest_summary(words: pd.DataFrame) -> pd.DataFrame:
    """Summarise over relations by how much heads lead the nearest word of one class.

    Parameters
    ----------
    words : DataFrame
        What `judge_words` returns.

    Returns
    -------
    DataFrame
        Rows in the form of `helpers.metrics.dependency_heads.relation_summary`:

        - "mean margin over the nearest word": the mean over relations of the head's accuracy minus
          that of the rule in percentage points, with a 95% bootstrap interval over articles;
        - "heads minus nearest words, far parents", the mean of ``far_lead``, with an interval.  A
          head that only looks for the nearest word of a class picks that word.

        There is no row without a rule.
    """
    single = words[words["relation"] != ALL].dropna(subset="head_lead")
    if single.empty:
        return summary_table({})
    sums = single.pivot_table("head_lead", "article", "relation", ["sum", "count"], fill_value=0)
    margin = weighted_ratios(100 * sums["sum"].to_numpy(), sums["count"].to_numpy())
    rows = {
        "mean margin over the nearest word": margin,
        "heads minus nearest words, far parents": _percentage(single, "far_lead"),
    }
    return summary_table(rows).dropna(subset="value")
