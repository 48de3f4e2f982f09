"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own.

Each special token has claims of its own.  "The layers that attend to special tokens most" are those
in which [CLS] and [SEP] together get over a quarter of the attention.
"""

from __future__ import annotations

from functools import partial

from helpers.claims.engine import Family
from helpers.claims.tables import (
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
from helpers.studies.kobayashi2020.edges import MAIN
from helpers.studies.kobayashi2020.lenses import ALL_LAYERS

KOBAYASHI = Family("Kobayashi et al.")
MOVES = Family("What attention moves")
ABNAR = Family("Abnar and Zuidema")
TOKENS = {"cls": "[CLS]", "sep": "[SEP]"}  # or what the model has in their place
GROUP = "in the layers that attend to special tokens most"
SOURCES = {MASS_MATCHED: "words", MOST_ATTENDED: "the most attended words"}
# An outcome in words, by its measure in edges.csv.
OUTCOMES = {
    "objective": "raises the training loss",
    "structural probe": "costs the structural probe",
}


def largest_ratio(tables: Tables, table: str, column: str, **where: str) -> Estimate:
    """Find the largest ratio among the single layers of a column, in the rows with some values."""
    rows = rows_where(rows_of(tables, table, column, *where, *with_bounds("ratio")), **where)
    layers = rows[rows[column].astype(str).str.isdigit()]
    return estimate_in(layers.sort_values("ratio").iloc[-1], "ratio")


def group_of(tables: Tables, table: str) -> str:
    """Read the name of the layers that attend to special tokens most."""
    rows = rows_of(tables, table, "layers", "keys")
    return rows_where(rows, keys=SPECIAL_KEYS)["layers"].iloc[0]


def ratio_in_group(tables: Tables, **where: str) -> Estimate:
    """Read a ratio of two ablations in the layers that attend to special tokens most."""
    layers = group_of(tables, "edge_ratios")
    return estimate_from_table(tables, "edge_ratios", "ratio", layers=layers, **where)


def outcome_in_group(tables: Tables, **where: str) -> Estimate:
    """Estimate what an outcome loses by mass-matched ablation minus what it loses by dropping.

    The intervals of both are combined as if they were independent, which is too wide: they are
    measured on the same texts.
    """
    where = {**where, "layers": group_of(tables, "edges"), "model": MAIN}
    matched = estimate_from_table(tables, "edges", "value", change=MASS_MATCHED, **where)
    dropped = estimate_from_table(tables, "edges", "value", change=DROPPED, **where)
    return difference(matched, dropped)


LENS_RATIOS = {
    "over all layers": cell("special_tokens", "ratio", layer=ALL_LAYERS),
    "in every layer": partial(largest_ratio, table="special_tokens", column="layer"),
}
YARDSTICKS = (
    (MASS_MATCHED, GROUP, ratio_in_group),
    (MOST_ATTENDED, GROUP, ratio_in_group),
    (MASS_MATCHED, "in every layer", partial(largest_ratio, table="edge_ratios", column="layers")),
)
for token, name in TOKENS.items():
    for layers, measure in LENS_RATIOS.items():
        KOBAYASHI.claim(
            "Kobayashi et al.",
            f"The norm lens gives {name} less than half of its attention, {layers}",
            how_measured=(
                f"share of {name} through the norm lens over its share of attention; in every "
                "layer: the largest of the layers; holds below 0.5, our reading of 'much less'"
            ),
            below=0.5,
            about_training=True,
        )(partial(measure, token=token))

    KOBAYASHI.claim(
        "Kobayashi et al.",
        f"Value vectors of {name} are shorter than those of words",
        how_measured=f"mean |f(x)| of {name} over that of words, all layers; holds below 1",
        below=1,
        about_training=True,
    )(cell("special_tokens", "value_ratio", token=token, layer=ALL_LAYERS))

    edges = {"keys": token, "measure": "sentence angle"}
    for yardstick, layers, measure in YARDSTICKS:
        MOVES.claim(
            "What attention moves",
            (
                f"Dropping attention to {name} turns the sentence vector less than removing as "
                f"much from {SOURCES[yardstick]}, {layers}"
            ),
            how_measured=(
                "mean angle by which the sentence vector turns without the attention to "
                f"{name}, over the angle if {SOURCES[yardstick]} lose as much; in every layer: the "
                "largest ratio of a single layer; holds below 1"
            ),
            below=1,
            about_training=True,
        )(partial(measure, ways=f"{DROPPED} / {yardstick}", **edges))

    for measure, loses in OUTCOMES.items():
        MOVES.claim(
            "What attention moves",
            (
                f"Removing attention from words {loses} more than dropping as much to {name}, "
                f"{GROUP}"
            ),
            how_measured=(
                f"{measure}: the loss (nats or percentage points) if words lose as much attention "
                f"as {name} gets, minus the loss if that to {name} is dropped; holds above 0"
            ),
            above=0,
        )(partial(outcome_in_group, keys=token, measure=measure))

ABNAR.claim(
    "Abnar and Zuidema",
    (
        "Rollout with a residual of one half predicts what leaving a token out does better than "
        "attention does"
    ),
    how_measured=(
        "rank correlation with the change of a text's vector, rollout minus the mean attention of "
        "all layers; holds above 0"
    ),
    above=0,
    about_training=True,
)(cell("attributions", "lead", method="rollout"))

CLAIMS = [*KOBAYASHI.claims, *MOVES.claims, *ABNAR.claims]
