"""The claims of the paper and of later papers: their numbers, and the committed verdicts."""

import re

import pandas as pd
import pytest
from committed import committed_figures

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import COLUMNS, check_claims
from beyond.papers.claims import LATER_CLAIMS
from helpers.results import read_tables

FIGURES = committed_figures()
RUNS = sorted(path.parent.parent for path in FIGURES.glob("*/tables/claims.csv"))
ALL_CLAIMS = [*CLAIMS, *LATER_CLAIMS]
# Notebooks 10 and 11 have not run at full size since their claims changed.
NUMBERS = [name for name in COLUMNS if re.search("value|threshold$|p_adjusted|control$", name)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_claims_follow_from_committed_tables(run):
    tables = read_tables(run)
    committed = tables["claims"].set_index("id")
    checked = check_claims(tables, ALL_CLAIMS).set_index("id")
    assert list(checked.index) == list(committed.index)
    for name in ("verdict", "larger_than_in_controls"):
        assert checked[name].eq(committed[name].astype(object).fillna("")).all()
    pd.testing.assert_frame_equal(
        checked[NUMBERS], committed[NUMBERS], rtol=1e-4, atol=1e-6, check_dtype=False
    )


def test_every_claim_has_a_number_in_some_committed_run():
    measured = set()
    for run in RUNS:
        measured |= set(pd.read_csv(run / "tables/claims.csv")["id"])
    assert measured == {claim.id for claim in ALL_CLAIMS}
