"""Finished runs side by side, from made-up folders of tables."""

import html
import json

import numpy as np
import pandas as pd
import pytest
from made_up_runs import run_like_the_paper, tables_with_heads, write_run
from PIL import Image

from beyond.claims.clark2019 import CLAIMS
from beyond.claims.engine import check_claims
from beyond.pages import compare
from helpers.__main__ import main
from helpers.errors import InputError
from helpers.files import PROJECT_ROOT
from helpers.metrics.atlas import COLUMNS
from helpers.study import Study

NOT_MEASURED = "not measured"
DIRECT_OBJECTS = "sec4-margin-dobj"


def runs_of(**tables_by_run):
    return [compare.Run(name, tables, {}) for name, tables in tables_by_run.items()]


def test_open_run_by_name_path_or_model(figures, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    write_run(figures / "minilm", settings={"model": "minilm"})
    write_run(figures / "google--electra", settings={})
    elsewhere = write_run(tmp_path / "elsewhere" / "mine")
    (tmp_path / "models" / "tuned").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    tuned = Study(model="models/tuned").slug  # ends with a digest: other folders are called "tuned"
    write_run(figures.parent / "build" / tuned, settings={})
    names = ["minilm", "google/electra", "elsewhere/mine", str(elsewhere), "models/tuned"]
    opened = [compare.open_run(name) for name in names]
    assert [run.name for run in opened] == ["minilm", "google--electra", "mine", "mine", tuned]
    assert (opened[0].settings, opened[1].settings) == ({"model": "minilm"}, {})
    pd.testing.assert_frame_equal(
        opened[0].tables["dependency_heads"], tables_with_heads()["dependency_heads"]
    )


def test_open_run_looks_in_build_before_figures(figures):
    build = figures.parent / "build"
    write_run(figures / "minilm", settings={"seeds": 3})
    assert compare.open_run("minilm").folder == figures / "minilm"
    write_run(build / "minilm", settings={"seeds": 1})
    opened = compare.open_run("minilm")
    assert opened.folder == build / "minilm" and opened.settings == {"seeds": 1}
    record = build / "minilm" / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "mixed": True}))
    assert compare.open_run("minilm").folder == figures / "minilm"


def test_open_runs_refuses_fewer_than_two_different_runs(figures, tmp_path):
    write_run(figures / "minilm")
    write_run(tmp_path / "minilm")
    with pytest.raises(InputError, match=r"minilm.*two or more"):
        compare.open_runs(["minilm"])
    with pytest.raises(InputError, match=r"nolm: no finished run .*; 'python"):
        compare.open_runs(["minilm", "nolm"])
    with pytest.raises(InputError, match="two or more runs"):
        compare.open_runs(["minilm", str(tmp_path / "minilm")])


def test_claims_side_by_side_of_two_runs():
    first = tables_with_heads()
    second = tables_with_heads(dobj=10.0)
    dobj = second["dependency_heads_held_out"]["relation"] == "dobj"
    margin = ["margin", "margin_low", "margin_high"]
    second["dependency_heads_held_out"].loc[dobj, margin] = [-30.0, -31.0, -29.0]
    del second["probe_differences"]
    table = compare.claims_side_by_side(runs_of(first=first, second=second))
    assert list(table) == [
        "id", "section", "claim", "paper",
        "first", "first verdict", "first due_to_training",
        "second", "second verdict", "second due_to_training",
    ]  # fmt: skip
    for name, tables in (("first", first), ("second", second)):
        checked = check_claims(tables, CLAIMS)
        np.testing.assert_array_equal(table[name], checked["value"])
        for verdict in ("verdict", "due_to_training"):
            assert list(table[f"{name} {verdict}"]) == list(checked[verdict])
    row = table.set_index("id").drop(columns="claim").loc[DIRECT_OBJECTS]
    assert list(row) == [
        "4.2",
        *[pytest.approx(46.8)] * 2,
        "supported",
        "",
        -30.0,
        "not supported",
        "",
    ]
    assert set(table.query("section == '5'")["second verdict"]) == {"not measured"}


def test_best_heads_by_the_papers_relations():
    clear = tables_with_heads(dobj=70.0)
    ud = tables_with_heads(dobj=60.0)
    ud["dependency_heads"]["relation"] = [
        "All", "case", "det", "nsubj:pass", "obj", "nmod:poss", "aux:pass",
    ]  # fmt: skip
    table = compare.best_heads(runs_of(clear=clear, ud=ud)).set_index("relation")
    assert list(table.index) == ["All", "pobj", "det", "nn", "dobj", "poss", "auxpass"]
    assert list(table) == [
        "paper head", "paper accuracy", "paper baseline",
        "clear head", "clear accuracy", "clear accuracy_low", "clear accuracy_high",
        "clear baseline",
        "ud head", "ud accuracy", "ud accuracy_low", "ud accuracy_high", "ud baseline",
    ]  # fmt: skip
    dobj = table.loc["dobj"]
    assert dobj["paper head":"paper accuracy"].to_list() == ["8-10", 86.8]
    assert dobj[["clear head", "clear accuracy", "ud accuracy"]].to_list() == ["3-5", 70.0, 60.0]
    assert table.loc["pobj", ["ud head", "ud accuracy"]].isna().all()


def test_atlas_of_a_complete_and_a_partial_run():
    each_head = pd.DataFrame({"layer": np.repeat(np.arange(6) + 1, 2), "head": [1, 2] * 6})
    each_head["relation"] = ["det", "dobj"] * 6
    each_head["direction"] = "dependent attends to head"
    for name, first in (("accuracy", 60.0), ("margin", 20.0)):
        each_head[name] = np.arange(12) + first
    each_head["coreference"] = 4
    complete = run_like_the_paper() | {"each_head": each_head}
    importance = pd.DataFrame({"task": ["a", "b"], "layer": 2, "head": 2, "importance": [1.0, 3.0]})
    partial = {"token_types": complete["token_types"], "importance": importance}
    table = compare.atlas(runs_of(complete=complete, partial=partial))
    assert tuple(table) == ("model", *COLUMNS)
    assert list(table.groupby("model", sort=False).size()) == [12, 12]
    by_head = table.set_index(["model", "layer", "head"])
    head = by_head.loc[("complete", 3, 1)]
    assert (head["relation"], head["accuracy"], head["margin"]) == ("det", 64, 24)
    assert (head["sep"], head["entropy"]) == (0.6, 2.5)
    assert head["coreference"] == 4
    assert (head["kind"], head["name"]) == ("relation", "determiner to noun")
    assert head["number"] == "64% vs 40%"
    assert by_head.loc[("partial", 2, 2), "importance"] == 2
    assert by_head.loc["partial"]["relation"].isna().all()


def test_compare_writes_tables_figure_and_report(figures, capsys, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    build = figures.parent / "build"
    write_run(build / "minilm", settings={"seeds": 3})
    write_run(figures / "mpnet", settings={"seeds": 1})
    write_run(figures / "smollm2", settings={"seeds": 3})
    claims, notes, report = compare.compare(compare.open_runs([]))
    folder = report.parent
    assert folder == build / "compare" / "minilm-vs-mpnet-vs-smollm2"
    assert main(["compare"]) == 0
    assert not (figures / "compare").exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["id", "section", "claim", "paper", "minilm", "minilm"]
    assert lines[-len(notes) - 5 :] == [
        *notes,
        f"minilm is in {build / 'minilm'}",
        f"mpnet is in {figures / 'mpnet'}",
        f"smollm2 is in {figures / 'smollm2'}",
        f"tables and figure: {folder}",
        f"report: {report}",
    ]
    written = pd.read_csv(folder / "tables" / "claims.csv", dtype={"section": str})
    pd.testing.assert_frame_equal(written, claims.replace("", np.nan), rtol=1e-5, check_dtype=False)
    heads = pd.read_csv(folder / "tables" / "best_heads.csv")
    assert heads.loc[0, ["relation", "mpnet head"]].to_list() == ["All", "3-1"]
    assert len(pd.read_csv(folder / "tables" / "atlas.csv")) == 36
    assert Image.open(folder / "compare.png").width > 1000
    assert "These runs also differ in" in (folder / "compare.svg").read_text()
    assert notes[-1] == "These runs also differ in --seeds."
    page = report.read_text(encoding="utf-8")
    for text in (*notes, "Runs side by side", "atlas.csv"):
        assert html.escape(text) in page
    compare.compare(compare.open_runs([]), copy_to=figures / "compare")
    copy = figures / "compare" / folder.name
    assert (copy / "compare.png").is_file() and not (copy / "index.html").exists()


def test_compare_a_complete_and_a_partial_run(figures):
    """README's gold column: the default run beside one of notebooks 04 and 05 alone."""
    names = ["a" * 120, "ä" * 120]  # as long as folders may be called
    write_run(figures / names[0])
    tables = tables_with_heads()
    partial = ("dependency_heads", "dependency_heads_held_out", "probes")
    write_run(figures / names[1], {name: tables[name] for name in partial})
    claims, _, report = compare.compare(compare.open_runs(names))
    folder = report.parent
    numbers = claims.set_index("id")[names[1]]
    assert numbers[DIRECT_OBJECTS] == pytest.approx(46.8)
    assert np.isnan(numbers["sec3-special-half"])
    assert {f"{name} head" for name in names} <= set(
        pd.read_csv(folder / "tables" / "best_heads.csv")
    )
    assert (folder / "compare.png").is_file()


def test_compare_runs_of_later_notebooks_shows_their_claims_and_no_empty_pictures(figures):
    names = ["minilm-later", "mpnet-later"]
    runs = compare.open_runs([str(PROJECT_ROOT / "figures" / name) for name in names])
    claims, notes, report = compare.compare(runs)
    folder = report.parent
    assert claims[names].notna().any(axis=1).all()
    assert not claims["id"].str.startswith("sec").any()
    by_id = claims.set_index("id")
    assert {"causal-margin-turns-given-attention", "abnar-rollout"} <= set(by_id.index)
    for run in runs:
        saved = run.tables["claims"].set_index("id")["verdict"]
        saved = saved.reindex(by_id.index).fillna(NOT_MEASURED)
        assert (by_id[f"{run.name} verdict"] == saved).all()
    assert [path.name for path in (folder / "tables").iterdir()] == ["claims.csv"]
    assert not list(folder.glob("*.png"))
    assert len(notes) == 2


def test_comparison_name_of_long_names_is_that_of_one_comparison():
    first = compare.comparison_name(["a" * 120, "b"])
    second = compare.comparison_name(["a" * 120, "c"])
    assert first != second and len(first) < 120
