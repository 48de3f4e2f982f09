"""Attention beside what it moves (Kobayashi et al. 2020): token types, sinks, Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from zlib import crc32

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num

from helpers.analysis.averages import GROUPS, Sums, head_table
from helpers.analysis.coreference import TYPES, Judgements, best_head, judge
from helpers.analysis.dependency_heads import held_out_heads
from helpers.analysis.head_choice import DIRECTIONS
from helpers.analysis.head_counts import HeadCounts, count_heads
from helpers.analysis.heads import head_label, parse_head
from helpers.analysis.statistics import bootstrap_intervals, holm, mean_ratio, sign_flip_test
from helpers.cache import cached_tables
from helpers.data.records import Record, cluster_of
from helpers.model.encoder import Encoder
from helpers.model.word_attention import norm_maps
from helpers.store.store import Source, Store
from helpers.studies.attention_moves.settings import spread
from helpers.studies.attention_moves.value_norms import (
    LENSES,
    SHARES,
    SINKS,
    VALUES,
    lens_values,
    sink_values,
)

BATCH_TOKENS = 512
SPECIAL = ("cls", "sep")
WHOLE = "all"  # layers
MEAN = "mean"  # over relations, or types of mentions

Cluster = Int[np.ndarray, " item"]
Right = Num[np.ndarray, " item"]


def lens_tables(encoder: Encoder, source: Source, count: int) -> dict[str, pd.DataFrame]:
    """Return how attention and norm lens see ``count`` segments, spread evenly over a source.

    - ``lens_shares`` and ``value_norms``: the values of `lens_values`, a row a head;
    - ``sinks``: those of `sink_values`, a row a layer;
    - ``special_tokens``: `special_table`.

    All with intervals over articles.  Another model than that of ``source`` may be looked at,
    with the same tokenizer.
    """

    def compute() -> dict[str, pd.DataFrame]:
        sums = lens_sums(encoder, spread(source, count))
        return {
            "lens_shares": head_table(sums, SHARES),
            "value_norms": head_table(sums, (*VALUES, "same_token")),
            "sinks": head_table(sums, SINKS).drop(columns="head"),
            "special_tokens": special_table(sums),
        }

    return cached_tables(
        "lenses",
        compute,
        depends_on={
            "store": source.key,
            "model": encoder.identity,
            "segments": min(count, len(source)),
        },
    )


def lens_sums(encoder: Encoder, records: Sequence[Record]) -> Sums:
    """Return the sums of both kinds of values over segments, by group of articles too."""
    from helpers.analysis.averages import combine
    from helpers.model.forward import model_inputs
    from helpers.model.lens import value_pass
    from helpers.model.parallel import length_batches, run_jobs
    from helpers.model.token_types import roles

    inputs = [model_inputs(encoder, record) for record in records]
    lengths = [len(item["input_ids"]) for item in inputs]
    batches = length_batches(lengths, budget=BATCH_TOKENS)
    with value_pass(encoder) as run:

        def job(batch: list[int], step_done: object) -> Sums:
            maps, norms, states = run([inputs[index] for index in batch], hidden=True)
            sums = Sums()
            for row, index in enumerate(batch):
                n, record = lengths[index], records[index]
                attention = np.stack([layer[row, :, :n, :n].float().cpu() for layer in maps])
                sizes = np.stack([layer[row, :, :n].cpu() for layer in norms])
                vectors = np.stack([layer[row, :n].float().cpu() for layer in states[:-1]])
                own = roles(record["tokens"], encoder.special_tokens)
                both = {"attention": attention, "norm": norm_maps(attention, sizes)}
                values = lens_values(both, sizes, own) | sink_values(both, sizes, vectors)
                sums.add(values)
                article = crc32(cluster_of(record, index).encode()) % GROUPS
                sums.groups.setdefault(article, Sums()).add(values)
            step_done()
            return sums

        jobs = [partial(job, batch) for batch in batches]
        found = run_jobs(jobs, encoder.device, label="lenses", unit="batch", total=len(jobs))
    return combine(found)


def special_table(sums: Sums) -> pd.DataFrame:
    """Return the share of [CLS] and [SEP] together through both lenses, by layer and in all.

    Columns: layer, attention, norm, ``ratio`` of the two, and ``value_ratio``, the size of the
    value vectors of special tokens over that of words (no punctuation), with intervals.
    """

    def parts(*names: str) -> Float[np.ndarray, "article column"]:
        """Return sums over examples, means over heads: of each layer, and of all layers."""
        layers = sum(sums.by_group(name)[0].mean(axis=2) for name in names)
        return np.column_stack([layers, layers.mean(axis=1)])

    attention, norm = (parts(*(f"{lens}_{kind}" for kind in SPECIAL)) for lens in LENSES)
    values = [f"value_{kind}" for kind in SPECIAL]
    kinds = sum(bool(sums.counts[name].any()) for name in values)
    examples = sums.counts["same_token"].max()
    layers = [*map(str, range(1, attention.shape[1])), WHOLE]
    columns = {"layer": layers, "attention": attention.sum(axis=0) / examples,
               "norm": norm.sum(axis=0) / examples}  # fmt: skip
    ratios = {
        "ratio": (norm, attention),
        "value_ratio": (parts(*values), kinds * parts("value_other")),
    }
    for name, (over, under) in ratios.items():
        with np.errstate(invalid="ignore"):  # a model with neither token
            columns[name] = over.sum(axis=0) / under.sum(axis=0)
        columns[f"{name}_low"], columns[f"{name}_high"] = bootstrap_intervals(over, under)
    return pd.DataFrame(columns)


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
    heads = [best_head(judgements, split="train") for judgements in (attention, norm)]
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
