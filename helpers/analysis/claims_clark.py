"""The claims of Clark et al. (2019): each is a row of ``claims_clark.csv``.

A row names what is measured (``measure``: a function of `helpers.analysis.claim_measures` and its
arguments, as in "margin: dobj"), the threshold and the side of it on which the claim holds, and
``paper``, the paper's own number.  Threshold and number may be names: of one of `paper_numbers`
("same": the one that is called as the measure), or of a measure.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from helpers.analysis.claim_measures import BY_FAR, MEASURES, NAMED, Measure, Tables
from helpers.analysis.claims import Claim, Estimate
from helpers.analysis.paper import paper_table1, paper_table2, paper_table3, paper_values
from helpers.analysis.relations import ALL


def clark_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    table = pd.read_csv(Path(__file__).with_name("claims_clark.csv"), dtype=str)
    numbers = MEASURES | paper_numbers()
    table["paper"] = table["paper"].where(table["paper"] != "same", table["measure"])

    def number(cell: str) -> float | Measure:
        return numbers[cell] if cell in numbers else float(cell)

    return [
        Claim(
            row.section,
            row.claim,
            row.how_measured,
            partial(_measured, row.measure),
            threshold=number(row.threshold),
            below=row.holds == "below",
            paper=None if pd.isna(row.paper) else number(row.paper),
        )
        for row in table.itertuples()
    ]


def paper_numbers() -> dict[str, float]:
    """Return the paper's numbers by name: those of its text, and what its tables come to.

    The latter are called as the measure that gives the same number here.
    """
    one, two, three, text = paper_table1(), paper_table2(), paper_table3(), paper_values()
    gains = one["accuracy"] - one["baseline"]
    single, pair = gains.drop(ALL), text["uniform share of a separator pair"]
    return {
        **text,
        "times_uniform": text["middle layers to separator"] / pair,
        **{f"margin: {name}": gain for name, gain in gains.items()},
        "relations_beyond_offset": (single > 0).mean(),
        "relations_by_far": (single > BY_FAR).sum(),
        "lowest_of_named": one.loc[list(NAMED), "accuracy"].min(),
        **{f"margin_over_rule: {rule}, {kind}": two.loc["head", kind] - score
           for (rule, kind), score in two.stack().items()},
        **{f"probe_difference: {probe}, {other}": three[probe] - three[other]
           for probe in three for other in three},
    }  # fmt: skip


def _measured(cell: str, tables: Tables) -> float | Estimate:
    name, *arguments = cell.replace(": ", ", ").split(", ")
    return MEASURES[name](tables, *arguments)
