"""Claims of section 6: heads of one layer are alike."""

from __future__ import annotations

from functools import partial

import numpy as np

from helpers.claims.engine import Family
from helpers.claims.tables import NotMeasurable, Tables, rows_of
from helpers.metrics.statistics import DRAWS, Estimate, bootstrap_estimate, resampled_sums

SECTION_6 = Family("section 6")
claim = SECTION_6.claim


def distance_ratio(tables: Tables, *, within: str, to: str) -> Estimate:
    """Divide the distances of heads within layers by those to other layers, layer by layer.

    The estimate is the mean over layers, with a bootstrap interval over layers.
    """
    rows = rows_of(tables, "layer_cohesion", within, to)
    ratios = rows[within] / rows[to]
    if len(ratios) < 2 or ratios.isna().any():
        raise NotMeasurable("two layers of two heads")
    replicates = resampled_sums(ratios.to_numpy() / len(ratios), draws=DRAWS)
    return bootstrap_estimate(np.mean(ratios), replicates, len(ratios))


for statement, measure, description in (
    (
        "Heads of one layer are closer to each other than to heads of other layers",
        partial(distance_ratio, within="within", to="between"),
        "distance within a layer over that to all other layers",
    ),
    (
        (
            "Heads of one layer are closer to each other, among words, than to heads of the layers "
            "before and after"
        ),
        partial(distance_ratio, within="within_words", to="neighbouring_words"),
        "distance within a layer over that to the layer before and after, special tokens left out",
    ),
):
    claim(
        "6",
        statement,
        how_measured=f"{description}, mean over layers and interval over layers; holds below 1",
        below=1,
        about_training=True,
    )(measure)
