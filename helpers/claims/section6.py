"""The claim of section 6: heads of one layer are alike."""

from __future__ import annotations

import pandas as pd

from helpers.claims.engine import Family
from helpers.claims.section3 import with_article_interval
from helpers.claims.tables import NotMeasurable, Tables, rows_of, rows_where
from helpers.metrics.statistics import Estimate

SECTION_6 = Family("section 6")
claim = SECTION_6.claim


@claim(
    "6",
    "Heads of one layer are closer to each other than to those of the next layers",
    how_measured=(
        "mean distance within layers as a share of that to the layer before and after, special "
        "tokens left out; p also by shuffling heads over layers; holds below 1"
    ),
    below=1,
    about_training=True,
)
def within_to_adjacent_layer_ratio(tables: Tables) -> Estimate:
    """Divide the distance of heads within layers by that between neighbouring layers."""
    rows = rows_of(tables, "head_cohesion", "by", "within", "between", "p_value")
    row = rows_where(rows, by="next layer, words").iloc[0]
    p = row["p_value"]
    if pd.isna(p):
        raise NotMeasurable("two layers of two heads")
    return with_article_interval(
        tables,
        row["within"] / row["between"],
        ["within_layers_words", "neighbouring_layers_words"],
        lambda within, between: (within / between).iloc[0],
    )
