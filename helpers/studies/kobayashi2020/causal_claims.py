"""Claims of the causal test of Table 1: does the margin of a head say what it does?"""

from __future__ import annotations

from functools import partial

from helpers.claims.engine import Family
from helpers.claims.tables import NotMeasurable, Tables, cell, rows_of
from helpers.metrics.statistics import Estimate, mean_interval
from helpers.studies.common.edge_cuts import DROPPED, MASS_MATCHED
from helpers.studies.kobayashi2020.causal import GIVEN_ATTENTION, LOSES, MATCHED_HEAD, TURNS

SECTION = "Causal test"
CAUSAL = Family(SECTION)
OUTCOMES = {  # in words, and their units, by the measure in head_edges.csv
    TURNS: ("turns dependent and parent further", "degrees"),
    LOSES: ("costs a probe more of the parent's log-probability", "nats"),
}
GROUPS = {"all": "over all heads", "layers": "within layers"}
CHANGES = {
    MASS_MATCHED: "taking as much attention from other words of the row",
    MATCHED_HEAD: "dropping them in a similar head of the layer without a margin",
}


def mean_difference(tables: Tables, measure: str, minus: str, minus_measure: str = "") -> Estimate:
    """Estimate the effect of dropping the best head's edges minus another, a mean over relations.

    The interval is over relations, by Student's t.  A relation in which no edge can be matched is
    left out.
    """
    table = rows_of(tables, "head_edges", "relation", "change", "measure", "value")
    by_column = table.pivot(index="relation", columns=["change", "measure"], values="value")
    subtrahend = by_column[minus, minus_measure or measure]
    differences = (by_column[DROPPED, measure] - subtrahend).dropna()
    if len(differences) < 2:
        raise NotMeasurable("several relations")
    return mean_interval(differences)


for effect, (does_more, unit) in OUTCOMES.items():
    for within, group in GROUPS.items():
        CAUSAL.claim(
            SECTION,
            (
                "The larger a head's margin for a relation, the more dropping its edges "
                f"{does_more} than a matched loss, {group}"
            ),
            how_measured=(
                "Spearman's correlation of the margin on train with the effect on dev, dropped "
                f"minus mass-matched; {group}; interval over relations and articles; holds above 0"
            ),
            above=0,
            about_training=effect == TURNS,
        )(
            cell(
                "head_edge_correlations", "correlation",
                predictor="margin", effect=effect, within=within,
            )
        )  # fmt: skip
    for minus, change in CHANGES.items():
        CAUSAL.claim(
            SECTION,
            f"Dropping the edges of a relation's best head {does_more} than {change}",
            how_measured=(
                f"{unit}, mean over the relations whose best head beats its offset by ten "
                "percentage points on train; interval over relations; holds above 0"
            ),
            above=0,
            unit=unit,
        )(partial(mean_difference, measure=effect, minus=minus))
CAUSAL.claim(
    SECTION,
    "The larger a head's margin for a relation, the further dropping its edges turns dependent and "
    "parent, among heads with equal attention on the edges",
    how_measured=(
        "partial rank correlation of margin and effect given the mean attention on the edges, over "
        "all heads; interval over relations and articles; holds above 0"
    ),
    above=0,
    about_training=True,
)(
    cell(
        "head_edge_correlations", "correlation",
        predictor=GIVEN_ATTENTION, effect=TURNS, within="all",
    )
)  # fmt: skip
CAUSAL.claim(
    SECTION,
    "Dropping the edges of a relation's best head turns dependent and parent further than other "
    "words of the sentence",
    how_measured="degrees, mean over the same relations; interval over relations; holds above 0",
    above=0,
    unit="degrees",
)(partial(mean_difference, measure="turns", minus=DROPPED, minus_measure="turns, other words"))

CLAIMS = CAUSAL.claims
