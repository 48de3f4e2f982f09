"""Tables of section 4.2 that read the maps of a treebank, of one model or of a control.

Besides the best heads and the nearest words, they have the attention to special tokens of heads
whose relation is missing (``no_op``, section 3.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.cache import cached
from helpers.data.links import read_links
from helpers.data.records import cluster_of
from helpers.metrics import CODE, nearest_words
from helpers.metrics import dependency_heads as heads
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import head_indices, rows_by_dependent
from helpers.metrics.reference import ALL
from helpers.metrics.statistics import Estimate, weighted_ratios
from helpers.metrics.tags_and_places import TAGS, tag_numbers, tags_of
from helpers.store.store import Example, Store

WITH_FUNCTION = "heads with a function"  # the last row
FEWEST_OF_TAG = 20  # words of dev


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
    return cached(
        "relation-tables",
        partial(_relation_tables, store, counts, minimum),
        inputs={"store": store.key, "minimum": minimum},
        code=CODE,
    )


def _relation_tables(store: Store, counts: HeadCounts, minimum: int) -> dict[str, pd.DataFrame]:
    """Compute the tables; see `relation_tables`."""
    chosen = heads.held_out_heads(counts, minimum=minimum)
    rules = nearest_words.choose_rules(store, chosen)
    words = nearest_words.judge_words(store, rules)
    held_out = nearest_words.add_nearest(rules, words)
    summaries = [
        heads.relation_summary(counts, held_out),
        nearest_words.nearest_summary(words),
    ]
    by_distance = nearest_words.accuracy_by_distance(words)
    return {
        "dependency_heads_held_out": held_out,
        "relation_summary": pd.concat(summaries, ignore_index=True),
        "accuracy_by_distance": by_distance[by_distance["count"] >= nearest_words.FEWEST_WORDS],
        "no_op": no_op_table(store, held_out),
    }


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
        What `dependency_heads.held_out_heads` returns.

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
        its margin over the offset is above `dependency_heads.FUNCTION_MARGIN` percentage points,
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
    rows = []
    for number, row in enumerate(labels.to_dict("records")):
        rows.append(row | _shares(sums[:, :, [number]]))
    has_function = (held_out["margin"] > heads.FUNCTION_MARGIN) & (held_out["p_holm"] < 0.05)
    if has_function.any():
        rows.append({"relation": WITH_FUNCTION, **_shares(sums[:, :, has_function])})
    return pd.DataFrame(rows)


def _shares(sums: Float[np.ndarray, "article 5 row tag"]) -> dict[str, Any]:
    """Average the shares of some rows; the parts are those of `_sums_of_sentence`."""
    with_relation, rest, without, n_without, n_with = sums.sum(axis=3).transpose(1, 0, 2)
    values = np.hstack([without, with_relation])
    totals = np.hstack([n_without, rest])
    n_rows = sums.shape[2]
    signs = np.repeat([1, -1], n_rows) / n_rows
    return {
        "count": int(n_with.sum()),
        **weighted_ratios(with_relation, rest).columns("with"),
        **weighted_ratios(without, n_without).columns("without"),
        **weighted_ratios(values, totals, signs).columns("difference", df=True),
        **_within_tags(sums[..., :-1]).columns("within_tag", df=True),  # the last have no tag
    }


def _within_tags(sums: Float[np.ndarray, "article 5 row tag"]) -> Estimate:
    """Average the differences within parts of speech over tags, then over rows."""
    with_relation, rest, without, n_without, n_with = np.moveaxis(sums, 1, 0)
    n_words = n_with.sum(axis=0)  # [row, tag]
    is_enough = np.minimum(n_words, n_without.sum(axis=0)) >= FEWEST_OF_TAG
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
    is_of_tag = np.eye(len(TAGS) + 1)[tag_numbers(tags_of(example))]  # [word, tag]
    return np.array([part @ is_of_tag for part in parts])
