"""Several runs in one table: a row a head a model, and the spread of every claim's number."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import pandas as pd

from helpers.analysis.heads import parse_head
from helpers.cache import cached_table

if TYPE_CHECKING:
    from helpers.store.store import Store

Tables = Mapping[str, pd.DataFrame]
HEAD = ["layer", "head"]
SHARES = ["cls", "sep", "punctuation"]
COLUMNS = (
    "model", "layer", "head", "behaviour", *SHARES, "entropy", "relation", "accuracy", "margin",
    "ci_low", "ci_high", "coreference", "importance",
)  # fmt: skip
NEAREST = [
    "model", "layer", "head", "other", "nearest", "distance", "mean", "mutual", "sentences",
]  # fmt: skip


def atlas(runs: Mapping[str, Tables]) -> pd.DataFrame:
    """Return atlas.csv: one row a head of each run, with the columns `COLUMNS`.

    Shares of attention are fractions, entropy is in nats.  ``relation`` is the one that the head
    was chosen for on train, and ``accuracy`` (percent), ``margin`` over the best fixed offset
    (points) and its interval are those on dev; of several, the one with the widest margin.
    ``coreference`` is the head's accuracy (percent) if it is the best of its model,
    ``importance`` the mean over tasks, where a run has it.  What a run lacks is empty.
    """
    parts = [_heads(tables).assign(model=name) for name, tables in runs.items()]
    return pd.concat(parts).reindex(columns=COLUMNS).reset_index(drop=True)


def lacking(table: pd.DataFrame) -> list[str]:
    """Return what of the atlas no head of a run has, a sentence a run."""
    empty = table.isna().groupby(table["model"], sort=False).all()
    names = {model: ", ".join(empty.columns[row]) for model, row in empty.iterrows()}
    return [f"the atlas has no {own} for {model}" for model, own in names.items() if own]


def nearest_heads(stores: Mapping[str, Store]) -> pd.DataFrame:
    """Return nearest_heads.csv: for each head of each model the nearest one of every other.

    ``stores`` are the word-level ones of the runs' treebanks.  Columns: model, layer, head; other
    (a model) and nearest (its head); ``distance`` between the two in nats a word, from 0 to ln 2,
    and ``mean``, that to all heads of the other (`shared_distances`); ``mutual``: the nearest
    one's nearest is this one; ``sentences`` that both have read, with the same words.
    """
    parts = [pd.DataFrame(columns=NEAREST)]
    for one, other in combinations(stores, 2):
        table = _distances(stores[one], stores[other])
        square = table.pivot(index="head", columns="other", values="distance")
        for model, against, own in ((one, other, square), (other, one, square.T)):
            near, back = own.idxmin(axis=1), own.idxmin()
            columns = {"model": model, "other": against, "nearest": near}
            columns |= {"distance": own.min(axis=1), "mean": own.mean(axis=1)}
            columns["mutual"] = near.map(back) == own.index
            rows = pd.DataFrame(columns).assign(sentences=table["sentences"].max())
            rows = rows.rename_axis("head").reset_index()
            parts.append(_placed(rows).sort_values(HEAD))
    return pd.concat(parts[1:] or parts)[NEAREST]


def _distances(first: Store, second: Store) -> pd.DataFrame:
    from helpers.analysis.head_distance import shared_distances

    return cached_table(
        "shared-distances",
        lambda: shared_distances(first, second),
        depends_on={"stores": [first.key, second.key]},
        code="analysis.head_distance.shared_distances",
    )


def spread(claims: pd.DataFrame) -> pd.DataFrame:
    """Return how far the runs agree on each claim, from `claims_side_by_side`.

    Columns: section, claim, paper; ``runs`` that could measure it, ``mean``, ``sd``, ``least`` and
    ``most`` of what they measured; ``verdicts``, how many runs came to each.
    """
    names = [column.removesuffix(" holds") for column in claims if column.endswith(" holds")]
    numbers, holds = claims[names], claims[[f"{name} holds" for name in names]]
    return claims[["section", "claim", "paper"]].assign(
        runs=numbers.notna().sum(axis=1),
        mean=numbers.mean(axis=1),
        sd=numbers.std(axis=1),
        least=numbers.min(axis=1),
        most=numbers.max(axis=1),
        verdicts=[
            ", ".join(f"{count} {verdict}" for verdict, count in row.value_counts().items())
            for _, row in holds.iterrows()
        ],
    )


def _heads(tables: Tables) -> pd.DataFrame:
    known = [
        tables[name][[*HEAD, *(column for column in columns if column in tables[name])]]
        for name, columns in (
            ("head_positions", ["behaviour"]),
            ("token_types", SHARES),
            ("entropy", ["entropy"]),
        )
        if name in tables
    ]
    for part in (_relations(tables), _coreference(tables), _importance(tables)):
        if part is not None and len(part):
            known.append(part)
    table = pd.DataFrame(columns=HEAD, dtype=int)
    for part in known:
        table = table.merge(part, on=HEAD, how="outer")
    return table.sort_values(HEAD)


def _relations(tables: Tables) -> pd.DataFrame | None:
    table = tables.get("dependency_heads_held_out")
    if table is None or not {"margin", "head"} <= set(table):
        return None
    rows = table[table["relation"] != "All"].sort_values("margin", ascending=False)
    rows = _placed(rows).drop_duplicates(HEAD)
    own = {"dev_accuracy": "accuracy", "margin_low": "ci_low", "margin_high": "ci_high"}
    rows = rows.drop(columns=[name for name in own.values() if name in rows]).rename(columns=own)
    return rows[[*HEAD, "relation", "accuracy", "margin", "ci_low", "ci_high"]]


def _coreference(tables: Tables) -> pd.DataFrame | None:
    if "coreference" not in tables:
        return None
    table = tables["coreference"]
    own = table["system"].str.extract(r"^head (\d+-\d+)$")[0]
    rows = table.assign(head=own)[own.notna() & (table["type"] == "all")]
    rows = rows[rows["candidates"] == "mentions"].rename(columns={"accuracy": "coreference"})
    return _placed(rows)[[*HEAD, "coreference"]]


def _importance(tables: Tables) -> pd.DataFrame | None:
    if "importance" not in tables:
        return None
    return tables["importance"].groupby(HEAD, as_index=False)["importance"].mean()


def _placed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose column ``head`` ("3-1") is taken apart into layer and head."""
    places = [parse_head(label) for label in table["head"]]
    return table.assign(
        layer=[layer + 1 for layer, _ in places], head=[head + 1 for _, head in places]
    )
