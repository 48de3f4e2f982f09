"""Measures of section 6: heads of one layer are alike."""

from __future__ import annotations

from functools import partial

import numpy as np

from helpers.claims.tables import Measure, NotMeasurable, Tables, rows_of
from helpers.metrics.statistics import DRAWS, Estimate, bootstrap_estimate, resampled_sums


def distance_ratio(tables: Tables, *, within: str, to: str) -> Estimate:
    """Divide the distances of heads within layers by those to other layers, layer by layer.

    The estimate is the mean over layers, with a bootstrap interval over layers.
    """
    rows = rows_of(tables, "layer_cohesion", within, to)
    ratios = rows[within] / rows[to]
    if len(ratios) < 2 or ratios.isna().any():
        raise NotMeasurable("the model has fewer than two layers, or layers with one head")
    replicates = resampled_sums(ratios.to_numpy() / len(ratios), draws=DRAWS)
    return bootstrap_estimate(np.mean(ratios), replicates, len(ratios))


MEASURES: dict[str, Measure] = {
    "sec6-layer-close": partial(distance_ratio, within="within", to="between"),
    "sec6-layer-close-among-words": partial(
        distance_ratio, within="within_words", to="neighbouring_words"
    ),
}
