"""Tables 1 and 2 through both lenses: what heads find by where they look, and by what they move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int, Num

from helpers.analysis.coreference import TYPES, Judgements, judge
from helpers.analysis.dependency_heads import held_out_heads
from helpers.analysis.head_counts import HeadCounts, count_heads
from helpers.analysis.heads import DIRECTIONS, head_label, parse_head
from helpers.analysis.statistics import bootstrap_intervals, holm, mean_ratio, sign_flip_test
from helpers.cache import cached_tables
from helpers.store.store import Store
from helpers.studies.attention_moves.lenses import LENSES

MEAN = "mean"  # over relations, or types of mentions

Cluster = Int[np.ndarray, " item"]
Right = Num[np.ndarray, " item"]


def heads_through_lenses(
    treebanks: Mapping[str, Store], documents: Mapping[str, Store], *, minimum: int, seed: int
) -> dict[str, pd.DataFrame]:
    """Return Tables 1 and 2 through both lenses, from word-level stores by lens.

    ``lens_relations`` and ``lens_mentions``: see `relations_through_lenses`.
    """

    def compute() -> dict[str, pd.DataFrame]:
        counts = (count_heads(treebanks[lens]) for lens in LENSES)
        judgements = (judge(documents[lens]) for lens in LENSES)
        return {
            "lens_relations": relations_through_lenses(*counts, minimum=minimum, seed=seed),
            "lens_mentions": mentions_through_lenses(*judgements, seed=seed),
        }

    stores = [store.key for kind in (treebanks, documents) for store in kind.values()]
    return cached_tables(
        "heads-through-lenses",
        compute,
        depends_on={"stores": stores, "minimum": minimum, "seed": seed},
    )


def relations_through_lenses(
    attention: HeadCounts, norm: HeadCounts, *, minimum: int, seed: int
) -> pd.DataFrame:
    """Return Table 1 through both lenses: heads chosen on train with each, scored on dev.

    Columns: relation, count (of dev), attention_head, attention_accuracy, norm_head,
    norm_accuracy (percent), ``gain`` of the norm lens in points with its paired interval over
    articles, and ``p_holm`` of a two-sided sign-flip test, adjusted for the relations.  The last
    row is the mean over the relations (not "All").
    """
    rows = []
    both = [held_out_heads(counts, minimum=minimum, seed=seed) for counts in (attention, norm)]
    for sides in zip(*(table.to_dict("records") for table in both), strict=True):
        name = sides[0]["relation"]
        dev = attention.rows(name, "dev")
        articles = attention.articles[attention.sentence[dev]]
        right = [
            counts.right[dev, DIRECTIONS.index(row["direction"]), *parse_head(row["head"])]
            for counts, row in zip((attention, norm), sides, strict=True)
        ]
        rows.append((name, [row["head"] for row in sides], articles, right, attention.total[dev]))
    return _compared(rows, attention.articles.max() + 1, seed)


def mentions_through_lenses(attention: Judgements, norm: Judgements, *, seed: int) -> pd.DataFrame:
    """Return Table 2 through both lenses, among the other mentions; columns as for relations.

    Intervals and tests are over documents.
    """
    rows = []
    heads = [judgements.best_head(split="train") for judgements in (attention, norm)]
    for kind in TYPES:
        mine = attention.select(kind, "dev")
        right = [
            judgements.heads["mentions"][head][mine]
            for judgements, head in zip((attention, norm), heads, strict=True)
        ]
        names = [head_label(*head) for head in heads]
        rows.append((kind, names, attention.document[mine], right, np.ones(mine.sum())))
    return _compared(rows, len(attention.splits), seed)


def _compared(
    rows: Sequence[tuple[str, list[str], Cluster, list[Right], Right]], clusters: int, seed: int
) -> pd.DataFrame:
    """Return a row for each name, and their mean over all but the first, which is of all words.

    ``rows`` have a name, the head of each lens, and of each sentence or mention its cluster, how
    many are right by each lens, and of how many.
    """
    right = np.array([[np.bincount(c, own, clusters) for own in both] for _, _, c, both, _ in rows])
    total = np.array([np.bincount(c, n, clusters) for _, _, c, _, n in rows])  # [row, cluster]
    used = total.any(axis=0)
    right, total = right[..., used], total[:, used].T
    table = pd.DataFrame({"relation": [row[0] for row in rows], "count": total.sum(0).astype(int)})
    with np.errstate(invalid="ignore"):  # no such mention on dev
        for lens, name in enumerate(LENSES):
            table[f"{name}_head"] = [row[1][lens] for row in rows]
            table[f"{name}_accuracy"] = 100 * right[:, lens].sum(axis=-1) / total.sum(axis=0)
        lead = (right[:, 1] - right[:, 0]).T
        table["gain"] = 100 * lead.sum(axis=0) / total.sum(axis=0)
    low, high = bootstrap_intervals(lead, total, seed=seed)
    table["gain_low"], table["gain_high"] = 100 * low, 100 * high
    p_values = np.minimum(sign_flip_test(lead, seed=seed)[0], sign_flip_test(-lead, seed=seed)[0])
    table["p_holm"] = holm(np.minimum(1, 2 * p_values))
    accuracies = [f"{lens}_accuracy" for lens in LENSES]
    last = {"relation": MEAN, "count": table["count"][1:].sum(), **table[accuracies][1:].mean()}
    mean = np.multiply(100, mean_ratio(lead[:, 1:], total[:, 1:], seed=seed))
    last |= dict(zip(("gain", "gain_low", "gain_high"), mean, strict=True))
    return pd.concat([table, pd.DataFrame([last])], ignore_index=True)
