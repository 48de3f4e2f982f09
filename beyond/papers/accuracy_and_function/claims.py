"""Claims of the causal test of Table 1: does the margin of a head say what it does?

What they say is in ``causal.toml``; here is how they are measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from beyond.claims.claim import read_claims
from beyond.claims.tables import (
    Measure,
    NotMeasurable,
    Tables,
    cell,
    estimate_in,
    rows_of,
    rows_where,
)
from beyond.papers.accuracy_and_function.agreement import ALL_DISTANCES, GIVEN_ATTENTION
from beyond.papers.accuracy_and_function.causal import (
    LATER,
    MATCHED_HEAD,
    MOST_ACCURATE,
    NEXT,
    SIZE_OF,
    TURNS,
)
from beyond.papers.common.edge_cuts import MOST_ATTENDED
from helpers.metrics.statistics import Estimate

TOO_SMALL = "could not have been seen here"
LEAST_HEADS = 3  # different heads of which a mean over relations is worth an interval
OUTCOMES = {  # by the word for it in the ids of claims
    "turns": TURNS,
    "next-token": NEXT,
    "next-token-size": SIZE_OF[NEXT],
    "later-word": LATER,
    "later-word-size": SIZE_OF[LATER],
}


def rows_of_measure(tables: Tables, table: str, measure: str) -> pd.DataFrame:
    """Select the rows of a measure; `NotMeasurable` if the model does not have it."""
    rows = rows_of(tables, table, "measure")
    if measure not in set(rows["measure"]):
        raise NotMeasurable(
            "the model predicts words" if measure == TURNS else "the model does not predict words"
        )
    return rows_where(rows, measure=measure)


def margin_correlation(tables: Tables, measure: str, predictor: str) -> Estimate:
    """Read the correlation of a predictor with an effect, without main effects.

    It could not have been seen if even a perfect predictor would not reach the smallest
    correlation that permutations of the relations call significant.
    """
    rows = rows_of_measure(tables, "head_edge_correlations", measure)
    row = rows_where(rows, predictor=predictor).iloc[0]
    if row["ceiling"] <= row["least"]:
        raise NotMeasurable(TOO_SMALL)
    return estimate_in(row, "correlation")


def over_yardstick(tables: Tables, measure: str, yardstick: str) -> Estimate:
    """Read what the most accurate heads' edges do more than a yardstick."""
    rows = rows_of_measure(tables, "head_edge_yardsticks", measure)
    row = rows_where(rows, role=MOST_ACCURATE, yardstick=yardstick).iloc[0]
    if row["different_heads"] < LEAST_HEADS:
        raise NotMeasurable(TOO_SMALL)
    return estimate_in(row, "difference")


MEASURES: dict[str, Measure] = {
    "agreement-right": cell("agreement", "right", words_between=ALL_DISTANCES),
    "agreement-accuracy-given-attention": cell(
        "agreement_correlations", "correlation", predictor=GIVEN_ATTENTION
    ),
}
for name, measure in OUTCOMES.items():
    MEASURES[f"causal-margin-{name}-given-attention"] = partial(
        margin_correlation, measure=measure, predictor="margin given attention"
    )
    if measure in (NEXT, LATER):  # with its sign, an effect does not grow with the attention
        MEASURES[f"causal-margin-{name}"] = partial(
            margin_correlation, measure=measure, predictor="margin"
        )
    else:
        for ending, yardstick in {"words": MOST_ATTENDED, "head": MATCHED_HEAD}.items():
            MEASURES[f"causal-{name}-over-matched-{ending}"] = partial(
                over_yardstick, measure=measure, yardstick=yardstick
            )
CLAIMS = read_claims(Path(__file__).with_suffix(".toml"), MEASURES)
