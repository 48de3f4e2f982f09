"""A notebook tests claims on the tables of its run, saves the verdicts, and shows them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from IPython.display import HTML, display

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.display import claim_details, summarise_claims
from beyond.claims.engine import Claim, check_claims, merge_claims
from helpers.study import Study


def save_claims(
    study: Study, section: str = "", claims: Sequence[Claim] | None = None
) -> pd.DataFrame:
    """Test claims on the tables that there are so far, and write ``claims.csv``.

    The rows of the section are written, and those of earlier sections are written again, because
    p-values are adjusted over all of them.

    Parameters
    ----------
    study : Study
        The study, whose run has the tables.
    section : str
        The beginning of a section, for example "3.2"; by default all sections of the claims.
    claims : sequence of Claim, optional
        Claims of a later paper; by default the claims of Clark et al. (2019).

    Returns
    -------
    DataFrame
        The section's claims; for the columns see `check_claims`.
    """
    # The claims of a section are tested together: all of section 3 for "3.2".
    together = [claim for claim in claims or CLAIMS if claim.section.startswith(section[:1])]
    checked = check_claims(study.tables(), together)
    saved = study.results.own_tables().get("claims")
    table = merge_claims(checked, saved, section=section)
    study.save_table(table, "claims")
    return checked[checked["section"].str.startswith(section)]


def show_claims(claims: pd.DataFrame) -> None:
    """Display claims in four columns and, in a part that can be opened, the rest.

    Parameters
    ----------
    claims : DataFrame
        Table of claims, as from `save_claims`.
    """
    with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
        table = summarise_claims(claims).to_html(index=False)
        details = claim_details(claims).to_html(
            index=False, na_rep="", float_format="{:.3g}".format
        )
    summary = "<summary>Thresholds, controls and how each was measured</summary>"
    display(HTML(table), HTML(f"<details>{summary}{details}</details>"))
