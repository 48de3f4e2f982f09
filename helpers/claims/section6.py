"""Measures of section 6: heads of one layer are alike."""

from __future__ import annotations

from functools import partial

from helpers.claims.tables import Measure, NotMeasurable, Tables, rows_of, rows_where
from helpers.metrics.statistics import Estimate


def distance_ratio(tables: Tables, *, within: str, to: str, by: str) -> Estimate:
    """Divide the distances of heads within layers by those to other layers, layer by layer.

    The estimate is the mean over layers.  These are all layers of the model, and their distances
    are not independent of each other.  Therefore the number has no interval, and its p-value is
    that of the permutations of heads in head_cohesion.csv, two-sided.
    """
    rows = rows_of(tables, "layer_cohesion", within, to)
    ratios = rows[within] / rows[to]
    if len(ratios) < 2 or ratios.isna().any():
        raise NotMeasurable("the model has fewer than two layers, or layers with one head")
    cohesion = rows_where(rows_of(tables, "head_cohesion", "by", "p_value"), by=by)
    return Estimate(ratios.mean(), own_p=min(1.0, 2 * cohesion["p_value"].iloc[0]))


MEASURES: dict[str, Measure] = {
    "sec6-layer-close": partial(distance_ratio, within="within", to="between", by="layer"),
    "sec6-layer-close-among-words": partial(
        distance_ratio, within="within_words", to="neighbouring_words", by="next layer, words"
    ),
}
