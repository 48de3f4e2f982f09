"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own.

What they say is in ``claims.toml``; here is how they are measured.  Each special token has claims
of its own.  "The layers that attend to special tokens most" are those in which [CLS] and [SEP]
together get over a quarter of the attention.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from helpers.claims.claim import read_claims
from helpers.claims.tables import (
    Measure,
    Tables,
    cell,
    estimate_from_table,
    estimate_in,
    rows_of,
    rows_where,
    with_bounds,
)
from helpers.metrics.statistics import Estimate, difference
from helpers.studies.common.edge_cuts import (
    DROPPED,
    MASS_MATCHED,
    MOST_ATTENDED,
    SPECIAL_KEYS,
)
from helpers.studies.kobayashi2020.edges import MAIN, OBJECTIVE, PROBE
from helpers.studies.kobayashi2020.lenses import ALL_LAYERS


def largest_ratio(tables: Tables, table: str, column: str, **where: str) -> Estimate:
    """Find the largest ratio among the single layers of a column, in the rows with some values."""
    rows = rows_where(rows_of(tables, table, column, *where, *with_bounds("ratio")), **where)
    layers = rows[rows[column].astype(str).str.isdigit()]
    return estimate_in(layers.sort_values("ratio").iloc[-1], "ratio")


def special_layers(tables: Tables, table: str) -> str:
    """Read the name of the layers that attend to special tokens most."""
    rows = rows_of(tables, table, "layers", "keys")
    return rows_where(rows, keys=SPECIAL_KEYS)["layers"].iloc[0]


def ratio_in_group(tables: Tables, **where: str) -> Estimate:
    """Read a ratio of two ablations in the layers that attend to special tokens most."""
    layers = special_layers(tables, "edge_ratios")
    return estimate_from_table(tables, "edge_ratios", "ratio", layers=layers, **where)


def outcome_in_group(tables: Tables, **where: str) -> Estimate:
    """Estimate what an outcome loses by mass-matched ablation minus what it loses by dropping.

    The intervals of both are combined as if they were independent, which is too wide: they are
    measured on the same texts.
    """
    where = {**where, "layers": special_layers(tables, "edges"), "model": MAIN}
    matched = estimate_from_table(tables, "edges", "value", change=MASS_MATCHED, **where)
    dropped = estimate_from_table(tables, "edges", "value", change=DROPPED, **where)
    return difference(matched, dropped)


def measures_of_token(token: str) -> dict[str, Measure]:
    """Make the measures about a special token, "cls" or "sep", by the id of the claim."""
    lens_ratio = cell("special_tokens", "ratio", token=token, layer=ALL_LAYERS)
    value_ratio = cell("special_tokens", "value_ratio", token=token, layer=ALL_LAYERS)
    largest_of_layers = partial(largest_ratio, table="special_tokens", column="layer", token=token)
    angle = {"keys": token, "measure": "sentence angle"}
    over_words = {**angle, "ways": f"{DROPPED} / {MASS_MATCHED}"}
    over_most_attended = {**angle, "ways": f"{DROPPED} / {MOST_ATTENDED}"}
    return {
        f"kobayashi-lens-{token}": lens_ratio,
        f"kobayashi-lens-{token}-every-layer": largest_of_layers,
        f"kobayashi-values-{token}": value_ratio,
        f"moves-{token}-words": partial(ratio_in_group, **over_words),
        f"moves-{token}-most-attended": partial(ratio_in_group, **over_most_attended),
        f"moves-{token}-words-every-layer": partial(
            largest_ratio, table="edge_ratios", column="layers", **over_words
        ),
        f"moves-{token}-objective": partial(outcome_in_group, keys=token, measure=OBJECTIVE),
        f"moves-{token}-structural-probe": partial(outcome_in_group, keys=token, measure=PROBE),
    }


MEASURES: dict[str, Measure] = {
    **measures_of_token("cls"),
    **measures_of_token("sep"),
    "abnar-rollout": cell("attributions", "lead", method="rollout"),
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
