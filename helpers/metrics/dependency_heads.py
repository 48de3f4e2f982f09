"""Single attention heads as syntactic classifiers: Table 1 of the paper (section 4.2).

`relation_tables` has the tables that are made of a model and of its controls.  Besides the best
heads and the nearest words, they have the attention to special tokens of heads whose relation is
missing (``no_op``, section 3.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from helpers.cache import cached
from helpers.data.links import ROOT, read_links
from helpers.data.records import cluster_of
from helpers.metrics import CODE, nearest_words
from helpers.metrics.head_counts import OFFSETS, HeadCounts
from helpers.metrics.heads import DIRECTIONS, head_indices, head_label, rows_by_dependent
from helpers.metrics.reference import ALL, paper_names, paper_table1
from helpers.metrics.statistics import (
    DRAWS,
    LEVEL,
    Estimate,
    Real,
    bootstrap_estimate,
    bootstrap_t_test,
    effective_clusters,
    effective_clusters_of_ratios,
    holm,
    percentiles,
    ratio,
    resampled_ratios,
    summary_table,
    weighted_ratios,
)
from helpers.metrics.tags_and_places import TAGS, tag_numbers
from helpers.store.store import Example, Store

COLUMNS = [
    "relation", "count", "head", "direction", "accuracy", "accuracy_low", "accuracy_high",
    "baseline", "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline",
]  # fmt: skip
HELD_OUT_COLUMNS = [
    "relation", "head", "direction", "train_accuracy", "dev_accuracy", "dev_accuracy_low",
    "dev_accuracy_high", "dev_accuracy_df", "dev_count", "baseline", "baseline_offset", "margin",
    "margin_low", "margin_high", "margin_df", "p_holm",
]  # fmt: skip
FUNCTION_MARGIN = 10  # percentage points, of a head that has a function
WITH_FUNCTION = "heads with a function"  # the last row of no_op.csv
FEWEST_OF_TAG = 20  # words of dev


def dependency_heads(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Compute Table 1 as in the paper: the best head of each relation, scored where it is best.

    The interval does not take into account that the head was chosen on the same words:
    `held_out_heads` has the figures to argue with.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs.

    Returns
    -------
    DataFrame
        A row for each relation except the root, "All" first, then by number of words.  Columns:

        - ``relation``, ``count``, ``head``, ``direction``; the count is of the words whose
          syntactic head can be picked in this layer and direction: all with full attention;
        - ``accuracy`` in percent, with a 95% bootstrap interval over articles;
        - ``baseline`` in percent and ``baseline_offset``: the best fixed offset, under the same
          rules;
        - ``paper_head``, ``paper_accuracy`` and ``paper_baseline`` of the Stanford relation that
          `helpers.metrics.reference.relation_table` gives.  "All" has those of the paper if the
          annotation is trees, in which every word has a question.
    """
    table = _best_heads(counts, counts, minimum)
    table.columns = table.columns.str.removeprefix("dev_")
    names = paper_names(counts.names)
    if ROOT not in map(str.lower, counts.names):  # "All" are pairs, and not the words of trees
        names.pop(ALL)
    paper_relations = table["relation"].map(names)
    in_paper = paper_table1().add_prefix("paper_").reindex(paper_relations)
    return table.join(in_paper.set_index(table.index))[COLUMNS]


def held_out_heads(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score single heads on dev; head, direction and fixed offset are chosen on train.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs in train.  It also needs a word in dev.

    Returns
    -------
    DataFrame
        A row for each relation, with `HELD_OUT_COLUMNS`: accuracies and ``baseline`` in percent;
        ``margin``, the accuracy of the head minus that of the offset on the same words of dev, in
        percentage points, with a 95% bootstrap interval over articles; ``p_holm``, the p-value of
        a margin above zero, adjusted for the number of relations.

    Raises
    ------
    InputError
        If the treebank has no train or no dev split.
    """
    table = _best_heads(counts.of_split("train"), counts.of_split("dev"), minimum)
    return table.assign(p_holm=holm(table["p_holm"]))


def _best_heads(train: HeadCounts, dev: HeadCounts, minimum: int) -> pd.DataFrame:
    """Choose head and offset of each relation in some sentences, and score them in others.

    The columns are those of `held_out_heads`; the p-values are not adjusted yet.
    """
    rows = []
    for relation in frequent_in_both(train, dev, minimum):
        train_accuracy = train.accuracy(relation, minimum=minimum)
        best = np.unravel_index(np.nanargmax(train_accuracy), train_accuracy.shape)
        direction, layer, head = best
        offset = best_offsets(train, relation)[direction, layer]
        leads, words = dev.leads_of_head(relation, best, offset)
        accuracy = ratio(*dev.right_of_head(relation, best))
        row = {
            "relation": relation,
            "head": head_label(layer, head, dev.layer_numbers),
            "direction": DIRECTIONS[direction],
            "train_accuracy": train_accuracy[best],
            "dev_count": words.sum(),
            "baseline": dev.rival_accuracy(relation)[direction, layer, offset],
            "baseline_offset": OFFSETS[offset],
            "p_holm": bootstrap_t_test(leads),
        }
        row |= accuracy.columns("dev_accuracy", df=True)
        rows.append(row | ratio(leads, words).columns("margin", df=True))
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)


def frequent_in_both(train: HeadCounts, dev: HeadCounts, minimum: int) -> list[str]:
    """List the relations that are frequent enough in train and occur in dev."""
    return [name for name in train.frequent(minimum) if dev.visible_size(name).any()]


def best_offsets(counts: HeadCounts, relation: str) -> Int[np.ndarray, "direction layer"]:
    """Choose the index of the offset that is most accurate, for each layer and direction."""
    return np.nan_to_num(counts.rival_accuracy(relation)).argmax(axis=-1)


def relation_summary(counts: HeadCounts, held_out: pd.DataFrame) -> pd.DataFrame:
    """Summarise the held-out heads over relations, with bootstrap intervals over articles.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        Columns ``quantity``, ``value``, ``value_low``, ``value_high``, ``value_df`` and, for shares
        of relations, which take few values, ``value_p``: the p-value of their claim's threshold by
        counting resamples.  "All" counts nowhere.  The last quantity needs articles of train, from
        which a resample chooses heads again, and the others those of dev:

        - "mean margin" and "mean margin over the paper's relations": the mean margin over the
          offset in percentage points, over all relations and over those of the paper's Table 1;
        - "largest margin of the paper's relations", with bounds that allow for the choice;
        - "share with a slight margin": the share of all relations with a margin of at most five
          percentage points in either direction;
        - "share whose dependents attend to heads", among the paper's relations except pobj.  A mask
          that hides later words decides this, so there is no such row.
    """
    single = held_out[held_out["relation"] != ALL]
    if single.empty:
        return summary_table({})
    dev = counts.of_split("dev")
    offsets = np.searchsorted(OFFSETS, single["baseline_offset"])
    heads = head_indices(single, counts.layer_numbers).T.tolist()
    sums = list(map(dev.leads_of_head, single["relation"], heads, offsets))
    leads, words = np.array(sums).transpose(1, 2, 0)  # each [article, relation]
    margins = single["margin"].to_numpy()
    replicates = resampled_ratios(leads, words, DRAWS)
    n_articles = effective_clusters_of_ratios(words, np.ones(len(margins)))
    is_slight = np.abs(np.vstack([margins, replicates])) <= 5
    slight, p_slight = _share(is_slight, n_articles, threshold=0.25)
    rows = {"mean margin": weighted_ratios(leads, words), "share with a slight margin": slight}
    p_values = {"share with a slight margin": p_slight}
    names = single["relation"].map(paper_names(counts.names))
    in_paper = names.isin(paper_table1().index).to_numpy()
    if in_paper.any():
        largest = largest_of(margins[in_paper], replicates[:, in_paper], words[:, in_paper])
        mean = weighted_ratios(leads[:, in_paper], words[:, in_paper])
        rows["mean margin over the paper's relations"] = mean
        rows["largest margin of the paper's relations"] = largest
    is_other = in_paper & (names != "pobj").to_numpy()
    sees_both_ways = np.array_equal(*counts.visible_total.swapaxes(0, 1))
    if is_other.any() and sees_both_ways:
        quantity = "share whose dependents attend to heads"
        train = counts.of_split("train")
        rows[quantity], p_values[quantity] = _dependents_share(train, single[is_other])
    table = summary_table(rows)
    return table.assign(value_p=table["quantity"].map(p_values))


def largest_of(
    values: Float[np.ndarray, " relation"],
    replicates: Float[np.ndarray, "resample relation"],
    words: Int[np.ndarray, "article relation"],
) -> Estimate:
    """Estimate the largest of some values, with bounds that allow for the choice.

    The bounds are the largest of those of all values, each with a share of the 5% (Bonferroni).
    """
    level = 1 - (1 - LEVEL) / len(values)
    n_articles = effective_clusters(words)
    low, high = percentiles(replicates, n_articles, level)
    return Estimate(values.max(), low.max(), high.max(), df=n_articles[values.argmax()] - 1)


def _dependents_share(train: HeadCounts, held_out: pd.DataFrame) -> tuple[Estimate, float]:
    """Estimate the share of relations whose head is read from dependent to parent.

    Every resample of the train articles chooses heads again.
    """
    marks = []
    for relation, direction in zip(held_out["relation"], held_out["direction"], strict=True):
        right = train.by_article(train.right, relation)
        total = train.by_article(train.visible_total, relation)[..., None]
        accuracy = np.nan_to_num(resampled_ratios(right, total, DRAWS))
        attends = accuracy.max(axis=(2, 3)).argmax(axis=1) == 0  # in each resample
        marks.append([direction == DIRECTIONS[0], *attends])
    n_articles = effective_clusters(train.by_article(train.total, ALL))
    return _share(np.transpose(marks), n_articles, threshold=2 / 3)


def _share(
    marks: Bool[np.ndarray, "draw relation"], n_articles: Real, *, threshold: float
) -> tuple[Estimate, float]:
    """Estimate the share of relations that are marked, in the data and in resamples of it.

    The p-value counts resamples: shares take few values, so that Student's t would not suit.
    """
    shares = marks.mean(axis=1)
    estimate = bootstrap_estimate(shares[0], shares[1:], n_articles)
    on_fewer_side = min((shares[1:] <= threshold).sum(), (shares[1:] >= threshold).sum())
    return estimate, min(1.0, 2 * (on_fewer_side + 1) / len(shares))


def special_token_summary(counts: HeadCounts, with_special: HeadCounts) -> pd.DataFrame:
    """Compute how many heads find as many words if they may pick special tokens (footnote 2).

    Parameters
    ----------
    counts, with_special : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns, without and with special tokens.

    Returns
    -------
    DataFrame
        A row of `relation_summary`, "share of heads that special tokens change little": the share
        of all heads whose accuracy over all words, in their better direction, falls by at most
        five percentage points.  It is exact, because these are all heads of the model.  There
        is no row if no accuracy changes, because the sentences have no special tokens.
    """
    accuracy = counts.accuracy(ALL)
    better = accuracy.argmax(axis=0)[None]  # [1, layer, head]
    change = np.take_along_axis(with_special.accuracy(ALL) - accuracy, better, axis=0)
    share = (change >= -5).mean()
    quantity = {"quantity": "share of heads that special tokens change little"}
    table = pd.DataFrame([quantity | Estimate(share, share, share).columns("value")])
    return table if change.any() else table.head(0)


def relation_tables(store: Store, counts: HeadCounts, *, minimum: int) -> dict[str, pd.DataFrame]:
    """Compute the tables of section 4.2 that are made of the model and of its controls, once.

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank.
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns for them.
    minimum : int
        Number of words that a relation needs in train.

    Returns
    -------
    dict of str to DataFrame
        By the names of their files: ``dependency_heads_held_out`` (`held_out_heads` with the
        columns of `nearest_words.add_nearest`), ``relation_summary`` (with the rows of
        `nearest_words.nearest_summary`), ``accuracy_by_distance`` (of `nearest_words`, from
        `nearest_words.FEWEST_WORDS` words on) and ``no_op`` (`no_op_table`).

    Raises
    ------
    InputError
        If the treebank has no train or no dev split.
    """

    def compute() -> dict[str, pd.DataFrame]:
        chosen = held_out_heads(counts, minimum=minimum)
        rules = nearest_words.choose_rules(store, chosen)
        words = nearest_words.judge_words(store, rules)
        held_out = nearest_words.add_nearest(rules, words)
        summaries = [relation_summary(counts, held_out), nearest_words.nearest_summary(words)]
        by_distance = nearest_words.accuracy_by_distance(words)
        return {
            "dependency_heads_held_out": held_out,
            "relation_summary": pd.concat(summaries, ignore_index=True),
            "accuracy_by_distance": by_distance[by_distance["count"] >= nearest_words.FEWEST_WORDS],
            "no_op": no_op_table(store, held_out),
        }

    inputs = {"store": store.key, "minimum": minimum}
    return cached("relation-tables", compute, inputs=inputs, code=CODE)


def no_op_table(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Compare a head's attention to special tokens with and without its relation (section 3.2).

    The paper suggests that a head with a function attends to special tokens where the function does
    not apply.  ``difference`` does not show this, because words without the relation are mostly of
    another part of speech.  ``within_tag`` compares words of the same one.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        A row for each of its heads, except that of "All".  Columns:

        - ``relation``, ``head``, ``direction``;
        - ``count``: number of words of dev that the relation is read from;
        - ``with``: share of the attention of these words that special tokens get, of what is left
          without that to the words which the relation leads to.  A head that finds its relation has
          less attention for all others, which says nothing about special tokens;
        - ``without``: the same from words that none of the head's relations is read from, which
          have nothing to subtract;
        - ``difference``: ``without`` minus ``with``;
        - ``within_tag``: the same within each universal part of speech that has `FEWEST_OF_TAG`
          words with and without the relation, averaged as the words with the relation are
          distributed over them; empty if no part of speech has.

        The last row, `WITH_FUNCTION`, has the means over the relations whose head has a function:
        its margin over the offset is above `FUNCTION_MARGIN` percentage points,
        and ``p_holm`` below 0.05.  There is no such row without such a relation.  Shares have 95%
        bootstrap intervals over articles.  There is no row if the model has no special tokens.
    """
    held_out = held_out[held_out["relation"] != ALL]
    labels = held_out[["relation", "head", "direction"]]
    by_article: defaultdict[str, Any] = defaultdict(int)
    for example in examples:
        if example.record.get("split") == "dev":
            article = cluster_of(example.record, example.index)
            by_article[article] += _sums_of_sentence(example, labels)
    sums = np.array(list(by_article.values()))  # [article, part, row, tag]
    if labels.empty or not sums[:, [0, 2]].any():  # no special tokens
        return labels.head(0)
    rows = labels.to_dict("records")
    for number, row in enumerate(rows):
        row.update(_shares(sums[:, :, [number]]))
    has_function = (held_out["margin"] > FUNCTION_MARGIN) & (held_out["p_holm"] < 0.05)
    if has_function.any():
        rows.append({"relation": WITH_FUNCTION, **_shares(sums[:, :, has_function])})
    return pd.DataFrame(rows)


def _shares(sums: Float[np.ndarray, "article 5 row tag"]) -> dict[str, Any]:
    """Average the shares of some rows; the parts are those of `_sums_of_sentence`."""
    untagged = sums.sum(axis=3, keepdims=True)
    with_relation, rest, without, n_without, n_with = untagged[..., 0].transpose(1, 0, 2)
    return {
        "count": int(n_with.sum()),
        **weighted_ratios(with_relation, rest).columns("with"),
        **weighted_ratios(without, n_without).columns("without"),
        **_without_minus_with(untagged, fewest=1).columns("difference", df=True),
        **_without_minus_with(sums[..., :-1], fewest=FEWEST_OF_TAG).columns("within_tag", df=True),
    }  # the last have no tag


def _without_minus_with(sums: Float[np.ndarray, "article 5 row tag"], *, fewest: int) -> Estimate:
    """Average the differences within parts of speech over tags, then over rows.

    A part of speech has at least ``fewest`` words with the relation, and as many without.
    """
    with_relation, rest, without, n_without, n_with = np.moveaxis(sums, 1, 0)
    n_words = n_with.sum(axis=0)  # [row, tag]
    is_enough = np.minimum(n_words, n_without.sum(axis=0)) >= fewest
    counted = n_words * is_enough
    counted = counted[is_enough.any(axis=1)]
    if not len(counted):
        return Estimate(np.nan)
    shares = counted / counted.sum(axis=1, keepdims=True) / len(counted)
    weights = shares[counted > 0]
    values = np.hstack([without[:, is_enough], with_relation[:, is_enough]])
    totals = np.hstack([n_without[:, is_enough], rest[:, is_enough]])
    return weighted_ratios(values, totals, np.concatenate([weights, -weights]))


def _sums_of_sentence(example: Example, rows: pd.DataFrame) -> Float[np.ndarray, "5 row tag"]:
    """Sum attention to special tokens over words of each part of speech, for the head of each row.

    The parts: attention from the words that the relation is read from to special tokens, and to all
    but the words that it leads to; attention from the words that none of the head's relations is
    read from to special tokens, and their number; and the number of the former words.
    """
    links = read_links(example.record)
    words = example.word_positions
    directions, *head = head_indices(rows, example.layer_numbers)
    maps = example.stored_attention[*head][:, words].astype(np.float32)  # [row, query, key]
    row, link = np.nonzero(links.relation == rows["relation"].to_numpy(object)[:, None])
    leads_to = np.zeros(maps[:, :, words].shape, dtype=bool)  # [row, dependent, parent]
    leads_to[row, links.word[link]] = links.gold[link]
    leads_to = rows_by_dependent(leads_to, directions)  # [row, query, answer]
    is_with = leads_to.any(axis=2)
    to_answers = (maps[:, :, words] * leads_to).sum(axis=2)
    to_special = maps[:, :, ~example.is_word].sum(axis=2)
    labels = rows["head"].to_numpy()
    is_without = ~((labels[:, None] == labels) @ is_with)
    parts = (
        to_special * is_with, (1 - to_answers) * is_with, to_special * is_without, is_without,
        is_with,
    )  # fmt: skip
    is_of_tag = np.eye(len(TAGS) + 1)[tag_numbers(nearest_words.tags_of(example))]  # [word, tag]
    return np.array([part @ is_of_tag for part in parts])
