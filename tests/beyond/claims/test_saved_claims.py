"""Rows of claims.csv by section."""

import pandas as pd
import pytest
from made_up_runs import run_like_the_paper, with_intervals

from beyond.claims.claim import Claim
from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import COLUMNS, check_claims, merge_claims
from beyond.claims.saving import save_claims
from beyond.claims.tables import rows_of
from helpers.metrics.statistics import mean_interval
from helpers.study import Study


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study whose results folder has the tables of a run like the paper's."""
    monkeypatch.setenv("ATTENTION_FIGURES", str(tmp_path))
    study = Study(name="made-up")
    for name, table in with_intervals(run_like_the_paper()).items():
        study.save_table(table, name)
    return study


def saved(study):
    return pd.read_csv(study.results.build / "tables/claims.csv", dtype={"section": str})


def test_a_section_is_saved_next_to_those_that_are_there(study):
    rows = save_claims(study, "4")
    assert set(rows["section"].str[0]) == {"4"}
    assert set(saved(study)["section"].str[0]) == {"4"}
    assert set(save_claims(study, "3.2")["section"]) == {"3.2"}
    table = saved(study)
    assert tuple(table) == COLUMNS
    assert set(table["section"].str[0]) == {"3", "4"}
    assert table["section"].str[0].is_monotonic_increasing
    assert not table["id"].duplicated().any()
    save_claims(study)
    assert set(saved(study)["section"].str[0]) == {"3", "4", "5", "6"}
    save_claims(study, "5")  # sections that a table has as whole numbers
    assert list(saved(study)["id"]) == [claim.id for claim in CLAIMS]


def test_claims_of_a_later_paper_are_saved_next_to_those_of_the_paper(study):
    save_claims(study)
    of_paper = saved(study)
    table = pd.DataFrame({"half": [0.4, 0.6, 0.7, 0.5]})
    study.save_table(table, "halves")
    claim = Claim(
        id="later-halves",
        family="Later et al.",
        section="Later et al.",
        statement="Halves are above zero",
        measure=lambda tables: mean_interval(rows_of(tables, "halves")["half"]),
        how_measured="",
        unit="share",
        above=0,
    )
    checked = save_claims(study, claims=[claim])
    assert list(checked["verdict"]) == ["supported"]
    both = [*of_paper["id"], "later-halves"]
    assert list(saved(study)["id"]) == both
    save_claims(study)  # a rerun of the paper's notebooks
    assert list(saved(study)["id"]) == both
    save_claims(study, claims=[claim])
    assert list(saved(study)["id"]) == both


def test_merge_claims_adds_a_section_and_replaces_those_that_are_there():
    checked = check_claims(run_like_the_paper(), CLAIMS)
    in_section_3 = checked[checked["section"].str.startswith("3")]
    first = merge_claims(in_section_3, section="3.1")
    assert set(first["section"]) == {"3.1"}
    earlier = pd.DataFrame({"section": ["3.1", "9"], "id": ["old", "kept"], "value": [1.0, 2.0]})
    merged = merge_claims(in_section_3, earlier, section="3.3")
    assert list(merged) == list(checked)
    assert list(merged["section"].unique()) == ["3.1", "3.3", "9"]
    assert "old" not in set(merged["id"])
    kept = merged.set_index("id").loc["kept"]
    assert (kept["value"], kept["reason"]) == (2, "")
