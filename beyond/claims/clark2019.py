"""The claims of Clark et al. (2019), in the order of the paper's sections."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from beyond.claims.claim import read_claims
from beyond.claims.estimates import TestedEstimate
from beyond.claims.tables import MissingCell, Tables, estimate_in, rows_where
from helpers.metrics.reference import paper_numbers
from helpers.metrics.surface import dominant_special_token, mean_of_middle_layers


def gradient_ratio(tables: Tables, *, ending: str = "") -> TestedEstimate:
    """Divide the gradients of other tokens by the special token's, in the middle layers.

    With the ending "_per_value" they are gradients per unit of value vector.
    """
    special = dominant_special_token(rows_where(tables, "token_types").groupby("layer").mean())
    name = f"other_over_{special}{ending}"
    columns = [name, f"{name}_low", f"{name}_high"]
    rows = rows_where(tables, "gradients")
    if name not in rows:
        raise MissingCell(f"gradients.csv has no column {name}")
    means = mean_of_middle_layers(rows.set_index("layer")[columns])
    return estimate_in(means, name, df=rows["effective_articles"].iloc[0] - 1)


def distance_ratio(tables: Tables, *, by: str) -> TestedEstimate:
    """Divide the mean distance of two heads within a layer by that between layers.

    These are all pairs of heads of the model, and their distances are not independent of each
    other.  Therefore the number has no interval, and its p-value is that of the permutations of
    heads, two-sided.
    """
    row = rows_where(tables, "cohesion", by=by).iloc[0]
    ratio = row["within"] / row["between"]
    if np.isnan(ratio):
        raise MissingCell("the model has fewer than two layers, or layers with one head")
    return TestedEstimate(ratio, own_p=min(1.0, 2 * row["p_value"]))


CLAIMS = read_claims(
    Path(__file__).with_name("claims.toml"),
    {
        "sec3-gradient-small": gradient_ratio,
        "sec3-gradient-alike-per-value": partial(gradient_ratio, ending="_per_value"),
        "sec6-layer-close": partial(distance_ratio, by="layer"),
        "sec6-layer-close-among-words": partial(distance_ratio, by="next layer, words"),
    },
    paper_numbers=paper_numbers(),
)
