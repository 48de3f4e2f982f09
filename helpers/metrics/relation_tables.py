"""All tables of section 4.2 of one model, or of a control, from the maps of a treebank."""

from __future__ import annotations

import pandas as pd

from helpers.metrics import dependency_heads as heads
from helpers.metrics import nearest_words
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.reference import scheme_of
from helpers.store.store import Store

# The tables that are also made of controls.
OF_CONTROLS = (
    "accuracy_by_distance", "dependency_heads_held_out", "disagreement", "no_op", "possessives",
    "relation_summary",
)  # fmt: skip


def relation_tables(store: Store, counts: HeadCounts, *, minimum: int) -> dict[str, pd.DataFrame]:
    """Compute the tables of section 4.2.

    Parameters
    ----------
    store : Store
        Word-level maps of a treebank.
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns for them.
    minimum : int
        Number of words that a relation needs, in the treebank or in train.

    Returns
    -------
    dict of str to DataFrame
        By the names of their files, what these functions of `helpers.metrics.dependency_heads`
        return: ``dependency_heads`` (Table 1), ``dependency_heads_held_out`` (`held_out_heads` with
        the columns of `nearest_words.add_nearest`), ``relation_summary`` (with the rows of
        `nearest_words.nearest_summary`), ``each_head``, ``special_candidates``, ``no_op``
        (`no_op_table`), ``possessives`` and, for a treebank in Universal Dependencies,
        ``universal_relations``; and ``accuracy_by_distance`` and ``disagreement``, which
        `helpers.metrics.nearest_words` computes.

    Raises
    ------
    InputError
        If the treebank has no train or no dev split.
    """
    chosen = heads.held_out_heads(counts, minimum=minimum)
    rules = nearest_words.choose_rules(store, chosen)
    words = nearest_words.judge_words(store, rules)
    held_out = nearest_words.add_nearest(rules, words)
    summaries = [
        heads.relation_summary(counts, held_out),
        nearest_words.nearest_summary(words),
    ]
    tables = {
        "dependency_heads": heads.dependency_heads(counts, minimum=minimum),
        "dependency_heads_held_out": held_out,
        "relation_summary": pd.concat(summaries, ignore_index=True),
        "accuracy_by_distance": nearest_words.accuracy_by_distance(words),
        "disagreement": nearest_words.disagreement(rules, words),
        "each_head": heads.each_head(counts, minimum=minimum),
        "special_candidates": heads.special_candidates(counts),
        "no_op": heads.no_op_table(store, held_out),
        "possessives": heads.possessives(store, held_out),
    }
    if scheme_of(counts.names) == "ud" and len(held_out):
        tables["universal_relations"] = heads.universal_relations(counts, minimum=minimum)
    return tables
