"""The papers' statements as checks: what they say, what is measured here, and whether it holds.

Every claim is computed from the tables of a run; none is typed in.  A claim whose tables a run
does not have, or whose quantity this model does not have, is reported as not measured; claims of
the papers that came later are reported by the runs that measured them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.analysis.claims_base import Claim, NotMeasurable, Tables, at_depth
from helpers.analysis.claims_cues import cue_claims
from helpers.analysis.claims_finetuning import finetuning_claims
from helpers.analysis.claims_language import language_claims
from helpers.analysis.claims_patterns import MIDDLE, MOSTLY, cluster_claims, pattern_claims
from helpers.analysis.claims_pruning import pruning_claims

__all__ = ["MIDDLE", "MOSTLY", "at_depth", "check_claim", "check_claims", "claims"]

NOT_MEASURED = "not measured"


def check_claims(tables: Tables, *, later: bool = True) -> pd.DataFrame:
    """Return claims.csv: section, claim, paper_value, here, holds, how_measured.

    ``tables`` maps the names of a run's tables ("token_types", ...) to the tables.
    ``holds`` is "yes", "no" or "not measured".  With ``later``, the claims of later papers that
    the run has measured come last.
    """
    rows = [_row(claim, tables) for claim in claims()]
    if later:
        found = [_row(claim, tables) for claim in later_claims()]
        rows += [row for row in found if NOT_MEASURED not in row]
    columns = ["section", "claim", "paper_value", "here", "holds", "how_measured"]
    return pd.DataFrame(rows, columns=columns)


def _row(claim: Claim, tables: Tables) -> tuple[str, str, float | None, float, str, str]:
    here, verdict = check_claim(claim, tables)
    return claim.section, claim.statement, claim.paper, here, verdict, claim.how


def claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    return [*pattern_claims(), *language_claims(), *cluster_claims()]


def later_claims() -> list[Claim]:
    """Return the claims of the papers of notebooks 07, 08 and 09, whose sections name them."""
    return [*finetuning_claims(), *pruning_claims(), *cue_claims()]


def check_claim(claim: Claim, tables: Tables) -> tuple[float, str]:
    """Return what a claim measures here (NaN if it cannot), and "yes", "no" or "not measured"."""
    try:
        here = float(claim.measure(tables))
        holds = claim.holds(here, tables)
    except NotMeasurable:
        here = np.nan
    if np.isnan(here):
        return np.nan, NOT_MEASURED
    return here, "yes" if holds else "no"
