"""Measures of section 6: heads of one layer are alike."""

from __future__ import annotations

from functools import partial

import pandas as pd

from beyond.claims.tables import Measure, NotMeasurable, Tables, rows_of, rows_where
from helpers.metrics.statistics import Estimate


def distance_ratio(tables: Tables, *, by: str) -> Estimate:
    """Divide the mean distance of two heads within a layer by that between layers.

    These are all pairs of heads of the model, and their distances are not independent of each
    other.  Therefore the number has no interval, and its p-value is that of the permutations of
    heads in head_cohesion.csv, two-sided.
    """
    rows = rows_of(tables, "head_cohesion", "by", "within", "between", "p_value")
    row = rows_where(rows, by=by).iloc[0]
    ratio = row["within"] / row["between"]
    if pd.isna(ratio):
        raise NotMeasurable("the model has fewer than two layers, or layers with one head")
    return Estimate(ratio, own_p=min(1.0, 2 * row["p_value"]))


MEASURES: dict[str, Measure] = {
    "sec6-layer-close": partial(distance_ratio, by="layer"),
    "sec6-layer-close-among-words": partial(distance_ratio, by="next layer, words"),
}
