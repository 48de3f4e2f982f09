"""The claims of Niven and Kao: hold of a run like theirs, fail of one that is not."""

import pandas as pd
import pytest

from helpers.analysis.claims import judge
from helpers.studies.argument_cues.claims import cue_claims
from helpers.study import Study

MODELS = ("bag of vectors", "BiLSTM", "encoder")


def choice(model, inputs, train, test, mean, median=None):
    return {
        "model": model, "inputs": inputs, "train": train, "test": test, "mean": mean,
        "median": mean if median is None else median, "ci_low": mean - 3, "ci_high": mean + 3,
    }  # fmt: skip


def run_like_the_paper():
    cues = [
        ("original", "not", "unigram", 61, 7.0),
        ("original", "can not", "bigram", 75, 8.0),
        ("original", "is", "unigram", 52, 0.3),
    ]
    columns = ["half", "cue", "kind", "productivity", "gain"]
    table = pd.DataFrame(cues, columns=columns).assign(corpus="arct", split="all")
    table["ci_low"], table["ci_high"] = table["productivity"] - 3, table["productivity"] + 3
    choices = [choice(model, "warrants", "original", "original", 57) for model in MODELS[:2]]
    choices += [
        choice("encoder", "warrants", "original", "original", 65.6, 67.5),
        choice("encoder", "all", "original", "original", 67.1, 71.2),
        choice("encoder", "all", "swapped", "both", 50.4),
        *(choice(model, "all", "original", "adversarial", 40) for model in MODELS),
    ]
    return {"cues": table, "partial_inputs": pd.DataFrame(choices).assign(corpus="arct")}


def checked(tables):
    return {claim.statement: judge(claim, tables) for claim in cue_claims()}


def test_all_hold_of_a_run_like_the_paper():
    found = checked(run_like_the_paper())
    assert {own.verdict for own in found.values()} == {"yes"}
    for claim in cue_claims():
        here = found[claim.statement].here
        if claim.paper is not None:
            assert here == pytest.approx(claim.paper, rel=0.1, abs=1e-9), claim.statement


def test_each_fails_of_a_run_of_the_opposite():
    tables = run_like_the_paper()
    cues, choices = tables["cues"], tables["partial_inputs"]
    cues["productivity"] = 100 - cues["productivity"] + 8
    cues["ci_low"], cues["ci_high"] = cues["productivity"] - 3, cues["productivity"] + 3
    cues["gain"] = -cues["gain"]
    columns = ["mean", "median", "ci_low", "ci_high"]
    choices.loc[choices["inputs"] == "warrants", columns] = 46, 46, 43, 48
    choices.loc[choices["model"] == "bag of vectors", "median"] = 52
    choices.loc[choices["test"] == "adversarial", columns] = 60, 60, 57, 63
    choices.loc[choices["train"] == "swapped", columns] = 60, 60, 57, 63
    assert {found.verdict for found in checked(tables).values()} == {"no"}


def test_nothing_is_claimed_of_a_planted_cue():
    """The embedded sample would pass most claims, because its cue was put there to be found."""
    planted = {
        name: t.assign(corpus="arguments-sample") for name, t in run_like_the_paper().items()
    }
    assert {found.verdict for found in checked(planted).values()} == {"not measured"}


def test_a_run_of_a_guest_alone_has_its_claims_and_no_rows_about_what_it_did_not_measure(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ATTENTION_FIGURES", str(tmp_path))
    study = Study(name="arct")
    study.save_claims(cue_claims())
    assert not (tmp_path / "arct").exists()  # nothing is measured yet
    for name, table in run_like_the_paper().items():
        study.save_table(table, name)
    study.save_claims(cue_claims())
    found = pd.read_csv(tmp_path / "arct" / "tables" / "claims.csv")
    assert set(found["section"].str[:5]) == {"Niven"}
    assert set(found["holds"]) == {"yes"}
