"""Several runs in one table: a row a head a model, and the spread of every claim's number."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.analysis.heads import parse_head

Tables = Mapping[str, pd.DataFrame]
HEAD = ["layer", "head"]
SHARES = ["cls", "sep", "punctuation"]
COLUMNS = (
    "model", "layer", "head", "behaviour", *SHARES, "entropy", "relation", "accuracy", "margin",
    "ci_low", "ci_high", "coreference", "importance",
)  # fmt: skip


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
