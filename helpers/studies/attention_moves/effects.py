"""Tables of what depends on single heads: from the sweeps of `removal`, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num

from helpers.analysis import statistics
from helpers.analysis.dependency_heads import held_out_heads
from helpers.analysis.head_counts import count_heads
from helpers.analysis.heads import head_label, head_rows, parse_head
from helpers.analysis.relations import ALL
from helpers.cache import cached_tables
from helpers.data.records import Record, cluster_of
from helpers.model.encoder import Encoder
from helpers.store.store import Source, Store
from helpers.studies.attention_moves.probe_reading import PROBES, Probes, train_probes
from helpers.studies.attention_moves.removal import (
    KINDS,
    Found,
    found_without_heads,
    objective_without_heads,
)
from helpers.studies.attention_moves.settings import spread
from helpers.studies.tables import stacked

MEASURES = ("loss", "similarity")
MATCHED = 5  # heads, whose removal costs the objective about as much
AGAINST = ("layer", "matched", "relations")
DRAWS = 10_000
FIGURES = {"Attn": "fig15_removed_heads", "structural": "fig15_removed_heads_structural"}
COLUMNS = (
    "kind", "probe", "relation", "head", "words", "recall", "change",
    *(f"{name}{end}" for name in AGAINST for end in ("", "_low", "_high")), "p_holm",
)  # fmt: skip
MEAN_COLUMNS = ("kind", "probe", "against", "relations", "lead", "low", "high", "p_value")

Owners = Mapping[str, tuple[int, int]]  # the head of each relation, from 0
Lost = Int[np.ndarray, "layer head article relation"]
Total = Int[np.ndarray, "article relation"]
Summed = Num[np.ndarray, "article relation"]
Side = tuple[Summed, Summed]  # what is lost, and of how much


def removal_tables(
    encoder: Encoder, treebank: Store, segments: Source, *, sentences: int, pairs: int,
    minimum: int, seed: int,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Return what taking out each head changes.

    - ``removed_objective``: a row a kind and head: loss and similarity (`objective_table`);
    - ``removed_recall``: a row a kind, probe, relation and head: what the probes lose;
    - ``relation_heads``, ``relation_heads_mean``: the heads of relations against others, each
      alone and all together (`relation_tables`).
    """
    facts = {"sentences": sentences, "pairs": pairs, "minimum": minimum, "seed": seed}

    def compute() -> dict[str, pd.DataFrame]:
        from helpers.model.forward import model_inputs
        from helpers.studies.head_mask import mean_outputs

        held_out = held_out_heads(count_heads(treebank), minimum=minimum, seed=seed)
        owners = {row.relation: parse_head(row.head) for row in held_out.itertuples()}
        split = {name: [r for r in treebank.records() if r["split"] == name]
                 for name in ("train", "dev")}  # fmt: skip
        means = mean_outputs(
            encoder, [model_inputs(encoder, r) for r in split["train"][:sentences]]
        )
        probes = train_probes(treebank, seed=seed)
        found = found_without_heads(encoder, split["dev"][:sentences], probes, means)
        records = spread(segments, pairs)
        scores = objective_without_heads(encoder, records, seed=seed)
        shape = encoder.layers, encoder.heads
        importance = scores[1 : 1 + shape[0] * shape[1], :, 0].mean(axis=1) - scores[0, :, 0].mean()
        owners.pop(ALL, None)
        return {
            "removed_objective": objective_table(scores, records, shape),
            "removed_recall": recall_table(found, probes, encoder.layers, owners),
            **relation_tables(found, probes, encoder.layers, owners, importance.reshape(shape),
                              seed=seed),
        }  # fmt: skip

    return cached_tables(
        "removal", compute, depends_on={"treebank": treebank.key, "segments": segments.key} | facts
    )


def objective_table(
    found: Float[np.ndarray, "change example measure"],
    records: Sequence[Record],
    shape: tuple[int, int],
) -> pd.DataFrame:
    """Return what each head's removal changes in loss and similarity, with intervals.

    Columns: kind, layer, head, loss and similarity (of the intact model), loss_change and
    similarity_change; intervals over articles.
    """
    articles = [cluster_of(record, i) for i, record in enumerate(records)]
    names, owner = np.unique(articles, return_inverse=True)
    of_article = owner == np.arange(len(names))[:, None]  # [article, example]
    total = np.repeat(of_article.sum(axis=1)[:, None], shape[0] * shape[1], axis=1)
    frames = {}
    for kind, own in zip(KINDS, np.split(found[1:], len(KINDS)), strict=True):
        columns: dict[str, np.ndarray] = {}
        for measure, name in enumerate(MEASURES):
            intact = found[0, :, measure]
            change = own[..., measure] - intact  # [head, example]
            low, high = statistics.bootstrap_intervals(of_article @ change.T, total)
            columns |= {
                name: np.full(shape, intact.mean()), f"{name}_change": change.mean(axis=1),
                f"{name}_change_low": low, f"{name}_change_high": high,
            }  # fmt: skip
        frames[kind] = head_rows(*shape, **columns)
    return stacked(frames, "kind")


def recall_table(found: Found, probes: Probes, layers: int, owners: Owners) -> pd.DataFrame:
    """Return kind, probe, relation, layer, head, recall (intact, percent) and change (points).

    There are rows for the heads that can matter to a probe.
    """
    names = ("kind", "probe", "relation")
    frames = {}
    for kind, probe, lost, total in _sweeps(found, probes, layers):
        intact = found.right[0, PROBES.index(probe)].sum(axis=0)
        for place, relation in enumerate(found.relations):
            if relation in owners and (words := total[:, place].sum()):
                change = -100 * lost[..., place].sum(axis=2) / words
                recall = np.full(change.shape, 100 * intact[place] / words)
                table = head_rows(*change.shape, recall=recall, change=change)
                frames[kind, probe, relation] = table
    if not frames:
        return pd.DataFrame(columns=[*names, "layer", "head", "recall", "change"])
    return stacked(frames, *names)


def relation_tables(
    found: Found,
    probes: Probes,
    layers: int,
    owners: Owners,
    importance: Float[np.ndarray, "layer head"],
    *,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Return what a relation loses without its head, less what it loses without others.

    ``relation_heads`` has a row a kind, probe and relation: head, words, recall, change, and how
    much larger the loss is (points, with paired intervals over articles) than without the other
    heads of the ``layer``, than without heads ``matched`` by what they cost the objective
    (``importance``), and than the loss of the other ``relations`` without the same head.
    ``p_holm`` is a sign-flip test of the first, adjusted for the relations.

    ``relation_heads_mean`` has their means over relations, with the p-value of a permutation
    test: relations get heads of the same layer, of the matched ones, or each other's.
    """
    rows, means = [pd.DataFrame(columns=COLUMNS)], []
    generator = np.random.default_rng(seed)
    for kind, probe, lost, total in _sweeps(found, probes, layers):
        about = {"kind": kind, "probe": probe}
        flat = lost.reshape(-1, *lost.shape[2:])  # [head, article, relation]
        own = {
            place: owners[name][0] * found.heads + owners[name][1]
            for place, name in enumerate(found.relations)
            if name in owners and owners[name][0] < len(lost) and total[:, place].sum()
        }
        if not own:
            continue
        places, heads = list(own), np.array(list(own.values()))
        every, words = flat[:, :, places], total[:, places]
        number, differ = np.arange(len(heads)), np.not_equal.outer(heads, heads)
        mine = every[heads, :, number].T  # [article, relation]
        rivals = _rivals(heads, found.heads, importance.ravel()[: len(flat)])
        others = {"relations": (np.einsum("rs,ras->ar", differ, every[heads]), words @ differ)}
        for name, pools in rivals.items():
            lost, count = every[pools, :, number[:, None]].sum(axis=1).T, pools.shape[1]
            others[name] = lost / max(count, 1), words * bool(count)
        intact = found.right[0, PROBES.index(probe)].sum(axis=0)[places]
        columns = {
            "relation": [found.relations[place] for place in places],
            "head": [head_label(*divmod(head, found.heads)) for head in heads],
            "words": words.sum(axis=0),
            "recall": 100 * intact / words.sum(axis=0),
            "change": -100 * mine.sum(axis=0) / words.sum(axis=0),
        }
        points = every.sum(axis=1) / words.sum(axis=0)  # [head, relation]
        for name in AGAINST:
            side = others[name]
            columns |= _leads(name, (mine, words), side, seed)
            if side[1].any():  # a head alone, or relations of one head, have no others
                both = np.hstack([mine, -side[0]]), np.hstack([words, side[1]])
                # The mean over both halves is half of the difference of their means.
                lead = [200 * value for value in statistics.mean_ratio(*both, seed=seed)]
                p_value = _exchanged(points, heads, rivals.get(name), generator)
                means.append((kind, probe, name, len(own), *lead, p_value))
        leads = (mine - others["layer"][0]).T
        columns["p_holm"] = statistics.holm(
            [statistics.sign_flip_test(lead, seed=seed)[1] for lead in leads]
        )
        rows.append(pd.DataFrame(about | columns))
    return {
        "relation_heads": pd.concat(rows[1:] or rows, ignore_index=True)[[*COLUMNS]],
        "relation_heads_mean": pd.DataFrame(means, columns=MEAN_COLUMNS),
    }


def _rivals(
    heads: Int[np.ndarray, " relation"], in_layer: int, importance: Float[np.ndarray, " head"]
) -> dict[str, Int[np.ndarray, "relation rival"]]:
    """Return each head's rivals: the others of its layer, and those of the nearest importance."""
    every = np.arange(len(importance))
    layers = [every[(every // in_layer == head // in_layer) & (every != head)] for head in heads]
    nearest = [np.argsort(np.abs(importance - importance[head]), kind="stable") for head in heads]
    matched = [near[near != head][:MATCHED] for near, head in zip(nearest, heads, strict=True)]
    return {"layer": np.array(layers), "matched": np.array(matched)}


def _leads(name: str, mine: Side, others: Side, seed: int) -> dict[str, np.ndarray]:
    """Return the differences of two losses, in points, with paired intervals."""
    with np.errstate(invalid="ignore"):  # without others
        low, high = statistics.paired_interval(mine, others, seed=seed)
        one, other = (right.sum(axis=0) / total.sum(axis=0) for right, total in (mine, others))
    # Equal losses are not equal in the last bit: a mean over rivals is a fraction.
    values = (100 * value.round(12) + 0.0 for value in (one - other, low, high))  # nor is -0 a loss
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _exchanged(
    points: Float[np.ndarray, "head relation"],
    own: Int[np.ndarray, " relation"],
    rivals: Int[np.ndarray, "relation rival"] | None,
    generator: np.random.Generator,
) -> float:
    """Return how often relations lose as much without random heads as without their own.

    A relation's head is drawn from itself and its ``rivals``; without rivals, the relations
    exchange their heads.
    """
    relation = np.arange(len(own))
    if rivals is None:
        drawn = generator.permuted(np.tile(own, (DRAWS, 1)), axis=1)
    else:
        pools = np.column_stack([rivals, own])
        drawn = np.stack([generator.choice(pool, DRAWS) for pool in pools], axis=1)
    as_much = points[drawn, relation].mean(axis=1) >= points[own, relation].mean() - 1e-12
    return float((1 + as_much.sum()) / (1 + DRAWS))


def _sweeps(found: Found, probes: Probes, layers: int) -> Iterator[tuple[str, str, Lost, Total]]:
    """Yield kind, probe, what is lost ``[layer, head, article, relation]``, and what there is."""
    for kind, name in enumerate(KINDS):
        for probe, own in enumerate(PROBES):
            reached = probes.reached(own, layers)
            yield name, own, found.lost(probe, kind)[:reached], found.total[probe]
