"""Rows of claims.csv by section, and the command for the power of claims."""

import pandas as pd
import pytest
from made_up_runs import run_like_the_paper, with_intervals

from helpers.__main__ import main
from helpers.claims.engine import COLUMNS, Family
from helpers.claims.tables import rows_of
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
    return pd.read_csv(study.results.folder / "tables/claims.csv", dtype={"section": str})


def test_a_section_is_saved_next_to_those_that_are_there(study):
    rows = study.save_claims("4")
    assert set(rows["section"].str[0]) == {"4"}
    assert set(saved(study)["section"].str[0]) == {"4"}
    assert set(study.save_claims("3.2")["section"]) == {"3.2"}
    table = saved(study)
    assert tuple(table) == COLUMNS
    assert set(table["section"].str[0]) == {"3", "4"}
    assert table["section"].str[0].is_monotonic_increasing
    assert not table["claim"].duplicated().any()
    study.save_claims()
    assert set(saved(study)["section"].str[0]) == {"3", "4", "5", "6"}
    study.save_claims("5")  # sections that a table has as whole numbers
    assert not saved(study)["claim"].duplicated().any()


def test_claims_of_a_later_paper_are_saved_next_to_those_of_the_paper(study):
    study.save_claims()
    of_paper = saved(study)
    table = pd.DataFrame({"half": [0.4, 0.6, 0.7, 0.5]})
    study.save_table(table, "halves")
    family = Family("Later et al.")

    @family.claim("Later et al.", "Halves are above zero", how_measured="", above=0)
    def mean_of_halves(tables):
        return mean_interval(rows_of(tables, "halves")["half"])

    checked = study.save_claims(claims=family.claims)
    assert list(checked["verdict"]) == ["supported"]
    assert list(saved(study)["claim"]) == [*of_paper["claim"], "Halves are above zero"]
    study.save_claims()  # a rerun of the paper's notebooks
    assert list(saved(study)["claim"]) == [*of_paper["claim"], "Halves are above zero"]
    power = pd.read_csv(study.results.folder / "tables/power.csv")
    assert power["claim"].iloc[-1] == "Halves are above zero"
    study.save_claims(claims=family.claims)
    assert list(saved(study)["claim"]) == [*of_paper["claim"], "Halves are above zero"]


def test_power_is_written_and_stands_in_the_claims(study, capsys):
    study.save_claims()
    assert main(["power", "made-up"]) == 0
    power = pd.read_csv(study.results.folder / "tables/power.csv").set_index("claim")
    claims = saved(study).set_index("claim")
    is_tested = claims["p_adjusted"].notna()
    assert set(power.index) == set(claims.index[is_tested])
    pd.testing.assert_series_equal(
        claims.loc[power.index, "power_at_paper"], power["power_at_paper"], atol=1e-6
    )
    assert "false_support" in capsys.readouterr().out
    assert (power["false_support"] < 0.1).all()
