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
OF_EACH = ["relation", "accuracy", "margin", "ci_low", "ci_high", "coreference"]
COLUMNS = ("model", *HEAD, "behaviour", *SHARES, "entropy", *OF_EACH, "importance")
NEAREST = [
    "model", "layer", "head", "other", "nearest", "distance", "mean", "mutual", "sentences",
]  # fmt: skip


def atlas(runs: Mapping[str, Tables]) -> pd.DataFrame:
    """Return atlas.csv: one row a head of each run, with the columns `COLUMNS`.

    Shares of attention are fractions, entropy is in nats.  ``relation`` is what the head does best
    on train; ``accuracy`` (percent), ``margin`` over the best fixed offset (points) and its
    interval are those on dev, ``coreference`` is its accuracy on all mentions (percent; other
    mentions as candidates), ``importance`` the mean over tasks.  What a run lacks is empty.
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
            ("each_head", OF_EACH),
        )
        if name in tables
    ]
    if "importance" in tables:
        importance = tables["importance"].groupby(HEAD, as_index=False)["importance"]
        known.append(importance.mean())
    table = pd.DataFrame(columns=HEAD, dtype=int)
    for part in known:
        table = table.merge(part, on=HEAD, how="outer")
    return table.sort_values(HEAD)


def _placed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose column ``head`` ("3-1") is taken apart into layer and head."""
    places = [parse_head(label) for label in table["head"]]
    return table.assign(
        layer=[layer + 1 for layer, _ in places], head=[head + 1 for _, head in places]
    )
