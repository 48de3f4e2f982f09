"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

from functools import partial

from helpers.analysis.claims import Claim, Estimate, Tables, row_where, rows_of, with_bounds
from helpers.studies.attention_moves.lenses import MEAN, WHOLE


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10."""
    special = partial(measured, table="special_tokens")
    return [
        Claim(
            "Kobayashi et al.",
            "Special tokens bring back much less than they are looked at",
            "share of [CLS] and [SEP] through the norm lens over that of attention, all layers and "
            "heads; holds below 0.5, our reading of 'much less'",
            partial(special, column="ratio", layer=WHOLE),
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
            partial(special, column="value_ratio", layer=WHOLE),
            threshold=1,
            below=True,
        ),
        Claim(
            "What attention moves",
            "Heads that find relations by attention find them by what they move",
            "accuracy on dev through the norm lens less that through attention, heads chosen on "
            "train for each, mean over relations, points; holds above -5",
            partial(measured, table="lens_relations", column="gain", relation=MEAN),
            threshold=-5,
        ),
        Claim(
            "Abnar and Zuidema",
            "Rollout explains what leaving a token out does better than attention itself does",
            "rank correlation with the change of a text's vector, rollout less the mean attention "
            "of all layers; holds above 0",
            partial(
                measured, table="attributions", column="lead", method="rollout", effect="vector"
            ),
            threshold=0,
        ),
    ]


def measured(tables: Tables, *, table: str, column: str, **where: str) -> Estimate:
    """Return a column's number and interval, of the row with some values."""
    columns = with_bounds(column)
    return Estimate(*row_where(rows_of(tables, table, *columns, *where), **where)[columns])


def largest_ratio(tables: Tables) -> Estimate:
    """Return the largest of the layers' ratios of special_tokens."""
    columns = with_bounds("ratio")
    rows = rows_of(tables, "special_tokens", "layer", *columns).query("layer != @WHOLE")
    return Estimate(*rows.sort_values("ratio", na_position="first").iloc[-1][columns])
