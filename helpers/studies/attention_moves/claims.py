"""Claims about what attention moves: Kobayashi et al. 2020, Abnar and Zuidema 2020, and our own."""

from __future__ import annotations

import pandas as pd

from helpers.analysis.claims import Claim, Estimate, NotMeasurable, Tables, rows_of

NORMS = "Kobayashi et al."
ROLLOUT = "Abnar and Zuidema"
OWN = "What attention moves"
WHOLE, MEAN = "all", "mean"
HALF = 0.5
SURVIVES = -5.0  # points


def movement_claims() -> list[Claim]:
    """Return the claims of notebook 10."""
    return [*_lenses(), *_removal(), *_attributions()]


def _lenses() -> list[Claim]:
    return [
        Claim(
            NORMS,
            "Special tokens bring back much less than they are looked at",
            "share of [CLS] and [SEP] through the norm lens over that of attention, all layers "
            f"and heads; holds below {HALF}, our reading of 'much less'",
            lambda t: _special(t, "ratio"),
            threshold=HALF,
            below=True,
        ),
        Claim(
            NORMS,
            "They do so in every layer",
            "the largest of the layers' ratios; holds below 1",
            lambda t: _special(t, "ratio", largest=True),
            threshold=1.0,
            below=True,
        ),
        Claim(
            NORMS,
            "Value vectors of special tokens are smaller than those of words",
            "mean |f(x)| of [CLS] and [SEP] over that of other tokens; holds below 1",
            lambda t: _special(t, "value_ratio"),
            threshold=1.0,
            below=True,
        ),
        Claim(
            OWN,
            "Heads that find relations by attention find them by what they move",
            "accuracy on dev through the norm lens less that through attention, heads chosen on "
            f"train for each, mean over relations, points; holds above {SURVIVES:g}",
            lambda t: _row(t, "lens_relations", ("gain", "gain_low", "gain_high"), relation=MEAN),
            threshold=SURVIVES,
        ),
    ]


def _removal() -> list[Claim]:
    rivals = {
        "layer": "other heads of its layer",
        "matched": "heads that matter as much to the objective",
    }
    return [
        Claim(
            OWN,
            f"A relation needs its head more than {others} ({probe} probe)",
            "recall lost without the head found on train less that without the others (outputs "
            "zeroed), mean over relations, points; holds above 0",
            lambda t, probe=probe, name=name: _row(
                t, "relation_heads_mean", ("lead", "low", "high"),
                kind="zero", probe=probe, against=name,
            ),
            threshold=0.0,
        )
        for probe in ("structural", "Attn")
        for name, others in rivals.items()
    ]  # fmt: skip


def _attributions() -> list[Claim]:
    return [
        Claim(
            ROLLOUT,
            "Rollout explains what leaving a token out does better than attention itself does",
            "rank correlation with the change of a text's vector, rollout less the mean attention "
            "of all layers; holds above 0",
            lambda t: _row(
                t, "attributions", ("lead", "lead_low", "lead_high"),
                method="rollout", effect="vector",
            ),
            threshold=0.0,
        )
    ]  # fmt: skip


def _special(tables: Tables, name: str, *, largest: bool = False) -> Estimate:
    columns = [name, f"{name}_low", f"{name}_high"]
    table = rows_of(tables, "special_tokens", "layer", *columns)
    whole = table["layer"].astype(str) == WHOLE
    if table[name].isna().all():
        raise NotMeasurable("a special token")
    layers = table[~whole]
    row = layers.loc[layers[name].idxmax()] if largest else table[whole].iloc[0]
    return Estimate(*row[columns])


def _row(tables: Tables, name: str, columns: tuple[str, str, str], **where: str) -> Estimate:
    """Return the number and interval of the one row with some values."""
    table = rows_of(tables, name, *columns, *where)
    for column, value in where.items():
        table = table[table[column] == value]
    if table.empty or table[columns[0]].isna().any():
        raise NotMeasurable(f"{name}: {where}")
    return Estimate(*pd.to_numeric(table.iloc[0][list(columns)]))
