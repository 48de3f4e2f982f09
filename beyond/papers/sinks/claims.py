"""Claims about what attention moves (Kobayashi et al. 2020, and our own), and about sinks.

Each special token has claims of its own, and so has the first token of a model without [CLS].
"The layers that attend to special tokens most" are those in which all of these together get over a
quarter of the attention.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate, difference
from beyond.claims.tables import NotMeasurable, Tables, cell, estimate_in, rows_where

ALL_QUERIES = {"queries": "all"}
DROPPED, MASS_MATCHED, MOST_ATTENDED = (
    "dropped", "mass-matched", "mass-matched on the most attended"
)  # fmt: skip
LEAST_RANDOM_GAIN = -0.1  # of the sink, as a multiple of its intact share
ANY_DIRECTION_COUNTS = (
    "a move as far in random directions costs the sink over a tenth of its attention, too, so the "
    "number says nothing about the dimension"
)


def largest_ratio(tables: Tables, table: str, column: str, **where: str) -> TestedEstimate:
    """Find the largest ratio among the single layers of a column, in the rows with some values."""
    rows = rows_where(tables, table, **where)
    layers = rows[rows[column].astype(str).str.isdigit()]
    return estimate_in(layers.sort_values("ratio", na_position="first").iloc[-1], "ratio")


def special_layers(tables: Tables, table: str) -> str:
    """Read the name of the layers that attend to special tokens most."""
    return rows_where(tables, table, keys="special")["layers"].iloc[0]


def ratio_in_group(tables: Tables, keys: str, matched: str) -> TestedEstimate:
    """Read a ratio of two ablations in the layers that attend to special tokens most."""
    group = special_layers(tables, "edge_ratios")
    return cell(
        tables,
        "edge_ratios",
        "ratio",
        keys=keys,
        ways=f"{DROPPED} / {matched}",
        measure="sentence angle",
        layers=group,
        queries="all",
    )


def loss_in_group(tables: Tables, keys: str, measure: str, matched: str) -> TestedEstimate:
    """Estimate what an outcome loses by a mass-matched ablation minus what it loses by dropping.

    The intervals of both are combined as if they were independent, which is too wide: they are
    measured on the same texts.
    """
    group = special_layers(tables, "edges")
    where = {"keys": keys, "measure": measure, "layers": group, **ALL_QUERIES}
    loss = partial(cell, tables, "edges", **where)
    return difference(loss(change=matched), loss(change=DROPPED))


def gain_of_dimension(tables: Tables, change: str, token: str) -> TestedEstimate:
    """Read what a token gains by a change of one dimension, over all layers from there on.

    It says nothing about the dimension if the sink also loses attention where its vector moves as
    far in random directions.
    """
    gain_of = partial(cell, tables, "sink_transplant", "gain", layer="all")
    if gain_of(change="ablated: random direction", token="sink").value < LEAST_RANDOM_GAIN:
        raise NotMeasurable(ANY_DIRECTION_COUNTS)
    return gain_of(change=change, token=token)


MEASURES = {
    "moves-first-objective-most-attended": partial(
        loss_in_group, keys="first", measure="objective", matched=MOST_ATTENDED
    ),
    "sink-necessary": partial(gain_of_dimension, change="ablated", token="sink"),
    "sink-sufficient": partial(gain_of_dimension, change="moved", token="token 20"),
    "sink-shared": partial(gain_of_dimension, change="copied", token="token 20"),
}
for keys in ("cls", "sep", "first"):
    MEASURES |= {
        f"moves-{keys}-words": partial(ratio_in_group, keys=keys, matched=MASS_MATCHED),
        f"moves-{keys}-most-attended": partial(ratio_in_group, keys=keys, matched=MOST_ATTENDED),
        f"moves-{keys}-objective": partial(
            loss_in_group, keys=keys, measure="objective", matched=MASS_MATCHED
        ),
    }
for keys in ("cls", "sep"):
    MEASURES |= {
        f"moves-{keys}-structural-probe": partial(
            loss_in_group, keys=keys, measure="structural probe", matched=MASS_MATCHED
        ),
        f"moves-{keys}-words-every-layer": partial(
            largest_ratio,
            table="edge_ratios",
            column="layers",
            keys=keys,
            ways=f"{DROPPED} / {MASS_MATCHED}",
            **ALL_QUERIES,
        ),
        f"kobayashi-lens-{keys}-every-layer": partial(
            largest_ratio, table="special_tokens", column="layer", token=keys
        ),
    }
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
