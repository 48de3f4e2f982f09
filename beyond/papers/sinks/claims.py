"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own.

What they say is in ``kobayashi2020.toml``; here is how they are measured.  Each special token has
claims of its own, and so has the first token of a model without [CLS].  "The layers that attend to
special tokens most" are those in which all of these together get over a quarter of the attention.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from beyond.claims.claim import read_claims
from beyond.claims.tables import (
    Measure,
    NotMeasurable,
    Tables,
    cell,
    estimate_from_table,
    estimate_in,
    rows_of,
    rows_where,
    with_bounds,
)
from beyond.papers.common.edge_cuts import (
    ALL_QUERIES,
    DROPPED,
    FIRST_KEYS,
    MASS_MATCHED,
    MOST_ATTENDED,
    SPECIAL_KEYS,
)
from beyond.papers.sinks.edges import ANGLE, MAIN, OBJECTIVE, PROBE
from beyond.papers.sinks.lenses import ALL_LAYERS
from beyond.papers.sinks.transplant import (
    ABLATED,
    COPIED,
    MOVED,
    RANDOM,
    SINK,
    TARGET_TOKEN,
)
from helpers.metrics.statistics import Estimate, difference

SINK_SECTION = "What makes a sink"
LEAST_RANDOM_GAIN = -0.1  # of the sink, as a multiple of its intact share
ANY_DIRECTION_COUNTS = (
    "a move as far in random directions costs the sink over a tenth of its attention, too, so the "
    "number says nothing about the dimension"
)


def largest_ratio(tables: Tables, table: str, column: str, **where: str) -> Estimate:
    """Find the largest ratio among the single layers of a column, in the rows with some values."""
    rows = rows_where(rows_of(tables, table, column, *where, *with_bounds("ratio")), **where)
    if "queries" in rows:
        rows = rows_where(rows, queries=ALL_QUERIES)
    layers = rows[rows[column].astype(str).str.isdigit()]
    return estimate_in(layers.sort_values("ratio").iloc[-1], "ratio")


def special_layers(tables: Tables, table: str) -> str:
    """Read the name of the layers that attend to special tokens most."""
    rows = rows_of(tables, table, "layers", "keys")
    return rows_where(rows, keys=SPECIAL_KEYS)["layers"].iloc[0]


def ratio_in_group(tables: Tables, **where: Any) -> Estimate:
    """Read a ratio of two ablations in the layers that attend to special tokens most."""
    where = {**where, "layers": special_layers(tables, "edge_ratios"), "queries": ALL_QUERIES}
    return estimate_from_table(tables, "edge_ratios", "ratio", **where)


def outcome_in_group(tables: Tables, *, yardstick: str = MASS_MATCHED, **where: Any) -> Estimate:
    """Estimate what an outcome loses by a mass-matched ablation minus what it loses by dropping.

    The intervals of both are combined as if they were independent, which is too wide: they are
    measured on the same texts.
    """
    group = special_layers(tables, "edges")
    where = {**where, "layers": group, "model": MAIN, "queries": ALL_QUERIES}
    matched = estimate_from_table(tables, "edges", "value", change=yardstick, **where)
    dropped = estimate_from_table(tables, "edges", "value", change=DROPPED, **where)
    return difference(matched, dropped)


def measures_of_token(token: str) -> dict[str, Measure]:
    """Make the measures about a special token, "cls" or "sep", by the id of the claim."""
    lens_ratio = cell("special_tokens", "ratio", token=token, layer=ALL_LAYERS)
    value_ratio = cell("special_tokens", "value_ratio", token=token, layer=ALL_LAYERS)
    largest_of_layers = partial(largest_ratio, table="special_tokens", column="layer", token=token)
    angle = {"keys": token, "measure": ANGLE}
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


def first_token_measures() -> dict[str, Measure]:
    """Make the measures about the first token of a model without [CLS], by the id of the claim."""
    angle = {"keys": FIRST_KEYS, "measure": ANGLE}
    over_words = {**angle, "ways": f"{DROPPED} / {MASS_MATCHED}"}
    over_most_attended = {**angle, "ways": f"{DROPPED} / {MOST_ATTENDED}"}
    loss = {"keys": FIRST_KEYS, "measure": OBJECTIVE}
    return {
        "moves-first-words": partial(ratio_in_group, **over_words),
        "moves-first-most-attended": partial(ratio_in_group, **over_most_attended),
        "moves-first-objective": partial(outcome_in_group, **loss),
        "moves-first-objective-most-attended": partial(
            outcome_in_group, **loss, yardstick=MOST_ATTENDED
        ),
    }


def gain_of_dimension(tables: Tables, *, change: str, token: str) -> Estimate:
    """Read what a token gains by a change of one dimension, over all layers from there on.

    It says nothing about the dimension if the sink also loses attention where its vector moves as
    far in random directions.
    """
    gain_of = partial(
        estimate_from_table, tables, "sink_transplant", column="gain", layer=ALL_LAYERS
    )
    in_random_directions = gain_of(change=f"{ABLATED}: {RANDOM}", token=SINK)
    if in_random_directions.value < LEAST_RANDOM_GAIN:
        raise NotMeasurable(ANY_DIRECTION_COUNTS)
    return gain_of(change=change, token=token)


MEASURES: dict[str, Measure] = {
    **measures_of_token("cls"),
    **measures_of_token("sep"),
    **first_token_measures(),
    "sink-necessary": partial(gain_of_dimension, change=ABLATED, token=SINK),
    "sink-sufficient": partial(gain_of_dimension, change=MOVED, token=TARGET_TOKEN),
    "sink-shared": partial(gain_of_dimension, change=COPIED, token=TARGET_TOKEN),
    "abnar-rollout": cell("attributions", "lead", method="rollout"),
}
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
SINK_CLAIMS = [claim for claim in CLAIMS if claim.section == SINK_SECTION]  # of notebook 12
NO_OP_CLAIMS = [claim for claim in CLAIMS if claim.section != SINK_SECTION]  # of notebook 10
