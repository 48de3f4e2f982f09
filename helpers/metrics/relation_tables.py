"""Tables of section 4.2 of one model, or of a control, from the maps of a treebank."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.cache import cached
from helpers.metrics import CODE, nearest_words
from helpers.metrics import dependency_heads as heads
from helpers.metrics.head_counts import HeadCounts
from helpers.store.store import Store


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
        `nearest_words.nearest_summary` and `possessive_summary`), ``accuracy_by_distance`` (of
        `nearest_words`, from `nearest_words.FEWEST_WORDS` words on) and ``no_op`` (`no_op_table`).

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
        heads.possessive_summary(store, held_out),
    ]
    by_distance = nearest_words.accuracy_by_distance(words)
    return {
        "dependency_heads_held_out": held_out,
        "relation_summary": pd.concat(summaries, ignore_index=True),
        "accuracy_by_distance": by_distance[by_distance["count"] >= nearest_words.FEWEST_WORDS],
        "no_op": heads.no_op_table(store, held_out),
    }
