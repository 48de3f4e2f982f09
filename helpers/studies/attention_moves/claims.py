"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.analysis.claims import (
    Claim,
    Estimate,
    NotMeasurable,
    Tables,
    row_where,
    rows_of,
    with_bounds,
)
from helpers.studies.attention_moves.lenses import WHOLE
from helpers.studies.attention_moves.word_lenses import MEAN


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10."""
    return [
        Claim(
            "Kobayashi et al.",
            "Special tokens bring back much less than they are looked at",
            "share of [CLS] and [SEP] through the norm lens over that of attention, all layers and "
            "heads; holds below 0.5, our reading of 'much less'",
            partial(special, name="ratio"),
            threshold=0.5,
            below=True,
        ),
        Claim(
            "Kobayashi et al.",
            "They do so in every layer",
            "the largest of the layers' ratios; holds below 1",
            largest_ratio,
            threshold=1,
            below=True,
        ),
        Claim(
            "Kobayashi et al.",
            "Value vectors of special tokens are smaller than those of words",
            "mean |f(x)| of [CLS] and [SEP] over that of other tokens; holds below 1",
            partial(special, name="value_ratio"),
            threshold=1,
            below=True,
        ),
        Claim(
            "What attention moves",
            "Heads that find relations by attention find them by what they move",
            "accuracy on dev through the norm lens less that through attention, heads chosen on "
            "train for each, mean over relations, points; holds above -5",
            gain_of_norm_lens,
            threshold=-5,
        ),
        Claim(
            "Abnar and Zuidema",
            "Rollout explains what leaving a token out does better than attention itself does",
            "rank correlation with the change of a text's vector, rollout less the mean attention "
            "of all layers; holds above 0",
            lead_of_rollout,
            threshold=0,
        ),
    ]


def special(tables: Tables, name: str) -> Estimate:
    """Return a column of special_tokens over all layers and heads."""
    table = _special_tokens(tables, name)
    return Estimate(*table[table["layer"].astype(str) == WHOLE].iloc[0][with_bounds(name)])


def largest_ratio(tables: Tables) -> Estimate:
    """Return the largest of the layers' ratios of special_tokens."""
    table = _special_tokens(tables, "ratio")
    layers = table[table["layer"].astype(str) != WHOLE]
    return Estimate(*layers.loc[layers["ratio"].idxmax()][with_bounds("ratio")])


def gain_of_norm_lens(tables: Tables) -> Estimate:
    """Return by how many points a lens finds more of a relation, the mean over relations."""
    return _row(tables, "lens_relations", "gain", relation=MEAN)


def lead_of_rollout(tables: Tables) -> Estimate:
    """Return how much better than attention rollout explains what leaving a token out does."""
    return _row(tables, "attributions", "lead", method="rollout", effect="vector")


def _special_tokens(tables: Tables, name: str) -> pd.DataFrame:
    table = rows_of(tables, "special_tokens", "layer", *with_bounds(name))
    if table[name].isna().all():
        raise NotMeasurable("a special token")
    return table


def _row(tables: Tables, table: str, column: str, **where: str) -> Estimate:
    """Return a column's number and interval, of the row with some values."""
    columns = with_bounds(column)
    return Estimate(*row_where(rows_of(tables, table, *columns, *where), **where)[columns])
