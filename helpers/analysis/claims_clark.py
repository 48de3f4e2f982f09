"""The claims of Clark et al. (2019): each is a row of ``claims_clark.csv`` (`read_claims`)."""

from __future__ import annotations

from pathlib import Path

from helpers.analysis.claim_measures import BY_FAR, MEASURES, NAMED
from helpers.analysis.claims import Claim, read_claims
from helpers.analysis.paper import paper_table1, paper_table2, paper_table3, paper_values
from helpers.analysis.relations import ALL


def clark_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    path = Path(__file__).with_name("claims_clark.csv")
    return read_claims(path, MEASURES, paper_numbers())


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
