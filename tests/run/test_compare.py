"""Finished runs side by side, from made-up folders of tables."""

import html
import json
import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from made_up_runs import run_like_the_paper, tables_with_heads, write_run
from PIL import Image

from helpers.analysis.claims import check_claims
from helpers.analysis.claims_clark import clark_claims
from helpers.errors import InputError
from helpers.run import compare


def runs_of(**tables):
    return [compare.Run(name, these, {}) for name, these in tables.items()]


# Opening runs


def test_a_run_is_found_by_name_by_path_and_by_model(figures, tmp_path, monkeypatch):
    write_run(figures / "minilm", settings={"model": "minilm"})
    write_run(figures / "google--electra")
    elsewhere = write_run(tmp_path / "elsewhere" / "mine")
    (tmp_path / "models" / "tuned").mkdir(parents=True)
    write_run(figures / "tuned")
    monkeypatch.chdir(tmp_path)
    names = ["minilm", "google/electra", "elsewhere/mine", str(elsewhere), "models/tuned"]
    opened = [compare.open_run(name) for name in names]
    assert [run.name for run in opened] == ["minilm", "google--electra", "mine", "mine", "tuned"]
    assert opened[0].settings == {"model": "minilm"}
    assert opened[1].settings == {}
    pd.testing.assert_frame_equal(
        opened[0].tables["dependency_heads"], tables_with_heads()["dependency_heads"]
    )


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("minilm", "python -m helpers run"),
        ("minilm-random-0", "python -m helpers run --random-init 0"),
        ("bert-base-uncased", "python -m helpers run --model bert-base-uncased"),
        ("mine-random-12", "python -m helpers run --model mine --random-init 12"),
        ("my models/a", "python -m helpers run --model 'my models/a'"),
    ],
)
def test_an_unknown_run_is_one_line_with_the_command_that_makes_it(figures, given, command):
    with pytest.raises(InputError, match="no finished run") as caught:
        compare.open_run(given)
    message = str(caught.value)
    assert message.startswith(f"{given}: ") and "\n" not in message
    assert message.endswith(f"make it with: {command}")


PROBES = ("probes", "probe_differences")


def test_what_a_run_lacks_is_named_with_the_command_that_makes_it(figures):
    tables = tables_with_heads()
    for name in ("coreference", "gradients", *PROBES):
        del tables[name]
    settings = {"model": "roberta-base", "treebank": "a b.conllu", "seeds": 3, "stream": True}
    write_run(figures / "other", tables, settings)
    write_run(figures / "minilm-random-3", {name: run_like_the_paper()[name] for name in PROBES})
    other, random = (compare.open_run(name) for name in ("other", "minilm-random-3"))
    assert compare.gaps([other])[0] == (
        "other has no gradients, coreference, probes, probe_differences (make them "
        "with: python -m helpers run --model roberta-base --treebank 'a b.conllu' "
        "--stream --only 02,04,05)"
    )
    assert "helpers run --random-init 3 --only 01,02,03,04,06)" in compare.gaps([random])[0]
    with pytest.raises(InputError, match="no table is in all of other, minilm-random-3; other has"):
        compare.open_runs(["other", "minilm-random-3"])


def test_partial_runs_are_compared_by_what_both_have(figures):
    """README's gold column: the default run beside one of notebooks 04 and 05 alone."""
    write_run(figures / "minilm")
    own = ("dependency_heads", "dependency_heads_held_out", "probes")
    part = {name: table for name, table in tables_with_heads().items() if name in own}
    write_run(figures / "minilm-ewt", part)
    runs = compare.open_runs(["minilm", "minilm-ewt"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a figure that has not been laid out
        claims, _, (folder, _) = compare.compare(runs)
    here = claims.set_index("claim")["minilm-ewt"]
    assert here["Direct objects have a head of their own"] == pytest.approx(46.8)
    assert np.isnan(here["Over half of the attention in middle layers goes to one special token"])
    heads = pd.read_csv(folder / "best_heads.csv")
    assert {"minilm head", "minilm-ewt head"} <= set(heads)
    assert (folder / "compare.png").is_file()


def test_what_an_earlier_run_left_in_the_folder_is_not_compared(figures):
    folder = write_run(figures / "minilm")
    record = {"settings": {}, "notebooks": {"03": {"tables": ["entropy"], "figures": []}}}
    (folder / "run.json").write_text(json.dumps(record))
    assert list(compare.open_run("minilm").tables) == ["entropy"]


def test_every_table_of_a_claim_is_asked_for():
    assert set(compare.NOTEBOOKS) == set(run_like_the_paper())


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("tables/entropy.csv", "", r"entropy\.csv: not a table"),
        ("tables/entropy.csv", "layer,head\n1,1\n", r"entropy\.csv: no column entropy, uniform"),
        ("tables/head_cohesion.csv", "by,within\nlayer,1\nlayer,x2\n", "column within has what is"),
        (
            "tables/probes.csv",
            "probe,value\nAttn,inf\n",
            "column value has what is no number, or inf",
        ),
        ("tables/each_head.csv", "layer,head\n1,3-1\n", "column head has what is no number"),
        ("tables/importance.csv", "task,importance\na,1\n", "no column head, layer"),
        ("run.json", "{", r"run\.json: not the description of a run"),
        ("run.json", "[]", r"run\.json: not the description of a run"),
        ("run.json", '{"settings": {"seed": [1]}}', r"run\.json: not the description of a run"),
        ("run.json", '{"a":' * 100_000, r"run\.json: not the description of a run"),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(figures, file, content, expected):
    folder = write_run(figures / "minilm", settings={})
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=expected) as caught:
        compare.open_run("minilm")
    assert "\n" not in str(caught.value)


def test_the_default_is_compared_with_its_control(figures):
    write_run(figures / "minilm")
    with pytest.raises(InputError, match=r"helpers run --random-init 0$"):
        compare.open_runs([])
    write_run(figures / "minilm-random-0")
    assert [run.name for run in compare.open_runs([])] == ["minilm", "minilm-random-0"]


def test_two_different_runs_are_needed(figures, tmp_path):
    write_run(figures / "minilm")
    write_run(tmp_path / "minilm")
    with pytest.raises(InputError, match="takes two or more runs"):
        compare.open_runs(["minilm"])
    for twice in (["minilm", "minilm"], ["minilm", str(tmp_path / "minilm")]):
        with pytest.raises(InputError, match="two runs are called minilm"):
            compare.open_runs(twice)


# Tables


def test_claims_stand_side_by_side():
    one, other = tables_with_heads(), tables_with_heads(dobj=10.0)
    dobj = other["dependency_heads_held_out"]["relation"] == "dobj"
    other["dependency_heads_held_out"].loc[dobj, ["margin", "margin_low", "margin_high"]] = -30.0
    del other["probe_differences"]
    table = compare.claims_side_by_side(runs_of(one=one, other=other))
    assert list(table) == ["section", "claim", "paper", "one", "one holds", "other", "other holds"]
    for name, tables in (("one", one), ("other", other)):
        checked = check_claims(tables, clark_claims())
        np.testing.assert_array_equal(table[name], checked["here"])
        assert list(table[f"{name} holds"]) == list(checked["holds"])
    row = table.set_index("claim").loc["Direct objects have a head of their own"]
    assert list(row) == ["4.2", *[pytest.approx(46.8)] * 2, "yes", -30.0, "no"]
    assert set(table.query("section == '5'")["other holds"]) == {"not measured"}


def test_best_heads_by_the_papers_names_in_its_order():
    clear, ud = tables_with_heads(dobj=70.0), tables_with_heads(dobj=60.0)
    ud["dependency_heads"]["relation"] = [
        "All", "case", "det", "nsubj:pass", "obj", "nmod:poss", "aux:pass",
    ]  # fmt: skip
    table = compare.best_heads(runs_of(clear=clear, ud=ud)).set_index("relation")
    assert list(table.index) == ["All", "pobj", "det", "nn", "dobj", "poss", "auxpass"]
    assert list(table) == [
        "paper head", "paper accuracy", "paper baseline",
        "clear head", "clear accuracy", "clear ci_low", "clear ci_high", "clear baseline",
        "ud head", "ud accuracy", "ud ci_low", "ud ci_high", "ud baseline",
    ]  # fmt: skip
    assert table.loc["dobj", ["paper head", "paper accuracy", "clear head"]].to_list() == [
        "8-10", 86.8, "3-5",
    ]  # fmt: skip
    assert table.loc["dobj", ["clear accuracy", "ud accuracy"]].to_list() == [70.0, 60.0]
    assert table.loc["pobj", ["ud head", "ud accuracy"]].isna().all()


def test_a_relation_that_the_paper_lacks_is_listed_where_two_runs_have_it():
    one, other = tables_with_heads(), tables_with_heads()
    for tables, names in ((one, ["punct", "neg"]), (other, ["punct", "expl"])):
        extra = tables["dependency_heads"].tail(2).assign(relation=names)
        tables["dependency_heads"] = pd.concat([tables["dependency_heads"], extra])
    table = compare.best_heads(runs_of(one=one, other=other))
    assert list(table["relation"])[-1] == "punct"
    assert not {"neg", "expl"} & set(table["relation"])


def test_the_most_frequent_relation_stands_for_one_of_the_papers():
    tables = tables_with_heads()
    extra = tables["dependency_heads"].tail(2)
    extra = extra.assign(relation=["npadvmod", "npadvmod"], accuracy=[11.0, 22.0])
    tables["dependency_heads"] = pd.concat([tables["dependency_heads"], extra])
    table = compare.best_heads(runs_of(one=tables, other=tables)).set_index("relation")
    assert table.loc["npadvmod", "one accuracy"] == 11.0


def test_differences_of_settings_other_than_the_models():
    settings = {"model": "a", "random_init": None, "treebank": "", "seeds": 3}
    one = compare.Run("one", {}, settings)
    other = compare.Run("other", {}, settings | {"model": "b", "random_init": 1})
    assert compare.differences([one, other]) == {}
    third = compare.Run("third", {}, settings | {"treebank": "gum", "seeds": 1})
    assert compare.differences([one, third]) == {
        "--treebank": "default in one, gum in third",
        "--seeds": "3 in one, 1 in third",
    }
    assert compare.differences([one, compare.Run("unknown", {}, {})]) == {}


# What is written and printed


def test_compare_writes_two_tables_and_a_figure(figures):
    write_run(figures / "minilm", settings={"seeds": 3})
    write_run(figures / "minilm-random-0", settings={"seeds": 1})
    claims, notes, (folder, report) = compare.compare(compare.open_runs([]))
    assert folder == figures / "compare" / "minilm-vs-minilm-random-0"
    written = pd.read_csv(folder / "claims.csv", dtype={"section": str})
    pd.testing.assert_frame_equal(written, claims, rtol=1e-5)
    heads = pd.read_csv(folder / "best_heads.csv")
    assert heads.loc[0, ["relation", "minilm-random-0 head"]].to_list() == ["All", "3-1"]
    assert Image.open(folder / "compare.png").width > 1000
    assert "These runs also differ in" in (folder / "compare.svg").read_text()
    assert notes[0] == "the runs differ in --seeds: 3 in minilm, 1 in minilm-random-0"
    assert "the atlas has no behaviour, relation" in "".join(notes)
    page = report.read_text(encoding="utf-8")
    for said in (*notes, "minilm: ", "Atlas of heads", "atlas.csv", "nearest_heads.csv"):
        assert html.escape(said) in page


def test_the_folder_name_stays_within_what_file_systems_allow(figures):
    names = [letter * 120 for letter in "aä"]
    for name in names:
        write_run(figures / name)
    _, _, (folder, _) = compare.compare(compare.open_runs(names))
    assert (folder / "compare.png").is_file()


@pytest.mark.parametrize("name", ["paper", "claim", "relation", "minilm holds"])
def test_no_run_takes_the_place_of_a_column(figures, name):
    for run in ("minilm", name):
        write_run(figures / run)
    with pytest.raises(InputError, match=f"{name} is a column of the tables; rename"):
        compare.open_runs(["minilm", name])


@pytest.mark.parametrize("file", ["run.json", "tables/entropy.csv"])
def test_what_is_no_file_is_not_waited_for(figures, file):
    folder = write_run(figures / "minilm")
    (folder / file).unlink(missing_ok=True)
    os.mkfifo(folder / file)
    assert ("entropy" in compare.open_run("minilm").tables) == (file == "run.json")


def small_claims():
    return pd.DataFrame(
        {
            "section": ["3.1", "3.1", "5"],
            "claim": ["Heads are positional", "Most heads put little on " + "themselves " * 4, "X"],
            "paper": [4.0, np.nan, 61.0],
            "minilm": [0.97222, 12.0, np.nan],
            "minilm holds": ["yes", "no", "not measured"],
            "other": [0.000999, 123.4, 54.25],
            "other holds": ["no", "yes", "yes"],
        }
    )


def test_claims_are_printed_in_columns():
    lines = compare.claims_text(small_claims(), width=120).splitlines()
    table, counts = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert [re.split(r"\s{2,}", line.strip()) for line in table] == [
        ["claim", "paper", "minilm", "other"],
        ["3.1", "Heads are positional", "4", "0.972 yes", "0.000999", "no"],
        ["Most heads put little on themselves themselves themselves themselves", "12", "no",
         "123 yes"],
        ["5", "X", "61", "-", "54.2 yes"],
    ]  # fmt: skip
    assert counts == ["minilm: 1 of 2 claims hold, 1 not measured", "other: 2 of 3 claims hold"]
    ends = {len(line) for line in table if not line.endswith("-")}
    assert len(ends) == 1  # the last column is flush right


def test_long_claims_are_wrapped_to_the_terminal():
    lines = compare.claims_text(small_claims(), width=76).splitlines()
    assert max(map(len, lines)) <= 76
    assert "themselves" in lines[3] and not re.search(r"\d", lines[3])
