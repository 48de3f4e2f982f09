"""Two runs are compared table by table, also if one has a file for each control."""

import sys

import numpy as np
import pandas as pd
import pytest

from scripts import compare_tables


@pytest.fixture
def compare(figures, monkeypatch, capsys):
    """Compare two runs, which are given as tables by name."""

    def compare(**runs):
        for run, tables in runs.items():
            folder = figures / run / "tables"
            folder.mkdir(parents=True)
            for name, table in tables.items():
                table.to_csv(folder / f"{name}.csv", index=False)
        monkeypatch.setattr(sys, "argv", ["compare_tables.py", *runs])
        with pytest.raises(SystemExit) as stopped:
            compare_tables.main()
        return stopped.value.code, capsys.readouterr().out.splitlines()

    return compare


def old_layout():
    """Tables of a run with a file for each control."""
    heads = {"layer": [1, 1, 2], "head": [1, 2, 1]}
    claims = {"id": ["a"], "section": ["3.1"], "unit": ["share"], "value": [0.5]}
    verdicts = {"verdict": ["supported"], "due_to_training": ["yes"]}
    return {
        "entropy": pd.DataFrame({**heads, "entropy": [1.0, 2.0, 3.0], "uniform": [4.0, 4.0, 4.0]}),
        "random_entropy": pd.DataFrame({**heads, "entropy": [3.0, 3.5, 3.9]}),
        "entropy_matched_entropy": pd.DataFrame({**heads, "entropy": [1.1, 2.2, 2.9]}),
        "no_op": pd.DataFrame({"relation": ["NA"], "count": [30], "with": [40.0]}),
        "shuffled_no_op": pd.DataFrame({"relation": ["det"], "count": [20], "with": [10.0]}),
        "random_no_op": pd.DataFrame({"relation": [], "count": [], "with": []}),
        "claims": pd.DataFrame({**claims, **verdicts}),
    }


def new_layout():
    """The same numbers with the controls as rows, in another order."""
    old = old_layout()
    entropy = {"random": old["random_entropy"], "trained": old["entropy"]}
    entropy["entropy-matched"] = old["entropy_matched_entropy"]
    no_op = {"trained": old["no_op"], "shuffled": old["shuffled_no_op"]}
    return {
        "entropy": pd.concat(entropy, names=["model"]).reset_index("model"),
        "no_op": pd.concat(no_op, names=["model"]).reset_index("model"),
        "claims": old["claims"].rename(columns={"due_to_training": "larger_than_in_controls"}),
    }


def test_main_finds_that_both_layouts_have_the_same_numbers(compare):
    code, lines = compare(old=old_layout(), new=new_layout())
    assert (code, lines) == (0, ["all 6 tables agree"])


@pytest.mark.parametrize("layout", [old_layout, new_layout])
def test_main_reports_a_changed_number_of_a_control(compare, layout):
    tables = layout()
    name = "random_entropy" if "random_entropy" in tables else "entropy"
    table = tables[name]
    table.loc[table["entropy"] == 3.5, "entropy"] = 3.6  # the tolerance is 0.0039
    code, lines = compare(old=old_layout(), changed=tables)
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("entropy (random): entropy ")
    assert "0.1 " in lines[0]
    assert "0.0039" in lines[0]


def test_main_allows_the_tolerance_and_another_chosen_head(compare):
    tables = new_layout()
    tables["entropy"]["entropy"] += 0.0009
    tables["no_op"]["with"] += 0.0005
    before = old_layout()
    for heads, run in (("1-1", before), ("2-1", tables)):
        run["dependency_heads"] = pd.DataFrame({"relation": ["det"], "head": [heads]})
    assert compare(old=before, new=tables)[0] == 0


def test_main_tells_the_label_na_from_an_empty_cell(compare):
    tables = old_layout()
    tables["no_op"]["relation"] = [None]
    code, lines = compare(old=old_layout(), new=tables)
    assert code == 1
    assert [line.split()[:2] for line in lines] == [["no_op:", "relation"]]


@pytest.mark.parametrize("column", ["verdict", "larger_than_in_controls"])
def test_main_reports_a_changed_verdict(compare, column):
    tables = new_layout()
    tables["claims"][column] = "inconclusive"
    code, lines = compare(old=old_layout(), new=tables)
    assert code == 1
    assert [line.split()[:2] for line in lines] == [["claims:", column]]


def test_main_reports_each_column_that_differs(compare):
    tables = old_layout()
    tables["entropy"]["entropy"] *= 2
    tables["entropy"].loc[0, "uniform"] = np.nan
    code, lines = compare(old=old_layout(), new=tables)
    assert code == 1
    assert [line.split()[:2] for line in lines] == [
        ["entropy:", "entropy"],
        ["entropy:", "uniform"],
    ]


@pytest.mark.parametrize("missing", ["no_op", "random_entropy"])
@pytest.mark.parametrize("is_second", [False, True])
def test_main_reports_a_missing_table(compare, missing, is_second):
    tables = old_layout()
    del tables[missing]
    runs = {"new": new_layout(), "old": tables}
    if is_second:
        runs = dict(reversed(runs.items()))
    code, lines = compare(**runs)
    assert code == 1
    assert [line.split(":")[0] for line in lines] == [
        "no_op" if missing == "no_op" else "entropy (random)"
    ]


def test_main_reports_a_column_and_a_row_of_one_run(compare):
    tables = old_layout()
    del tables["entropy"]["uniform"]
    tables["no_op"] = pd.concat([tables["no_op"]] * 2)
    code, lines = compare(old=old_layout(), new=tables)
    assert code == 1
    assert [line.split()[:2] for line in lines] == [["entropy:", "uniform"], ["no_op:", "1"]]


def test_find_run_prefers_build_and_takes_folders(figures):
    for folder in (figures / "mine", figures.parent / "build" / "mine", figures / "other"):
        (folder / "tables").mkdir(parents=True)
        (folder / "tables" / "entropy.csv").write_text("layer\n1\n")
    assert compare_tables.find_run("mine") == figures.parent / "build" / "mine"
    assert compare_tables.find_run("other") == figures / "other"
    assert compare_tables.find_run(str(figures / "mine")) == figures / "mine"
    with pytest.raises(SystemExit):
        compare_tables.find_run("nobody")


def test_main_compares_the_part_that_a_run_has_with_the_committed_run(figures, monkeypatch, capsys):
    committed = old_layout()
    part = {name: committed[name] for name in ("entropy", "claims")}
    other_section = committed["claims"].assign(id="b", section="Kovaleva")
    committed["claims"] = pd.concat([committed["claims"], other_section])
    monkeypatch.setattr(compare_tables, "find_run", lambda name: figures.parent / "build" / name)
    for folder, tables in ((figures, committed), (figures.parent / "build", part)):
        (folder / "minilm" / "tables").mkdir(parents=True)
        for name, table in tables.items():
            table.to_csv(folder / "minilm" / "tables" / f"{name}.csv", index=False)
    monkeypatch.setattr(sys, "argv", ["compare_tables.py", "minilm"])
    with pytest.raises(SystemExit) as stopped:
        compare_tables.main()
    assert not stopped.value.code
    assert capsys.readouterr().out == "all 2 tables agree with the committed run\n"


def table(**columns):
    return pd.DataFrame(columns)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "entropy",
            table(layer=[1, 2], entropy=[4.0, 1.0]),
            table(layer=[1, 2], entropy=[4, 1.003]),
        ),
        (
            "probes",
            table(probe=["Attn"], value=[60.0]),
            table(probe=["Attn"], value=[60.19]),
        ),
        (
            "probes",
            table(probe=["Structural probe"], value=[60.0]),
            table(probe=["Structural probe"], value=[61.9]),
        ),
        ("no_op", table(p_value=[0.051]), table(p_value=[0.0555])),
        ("each_head", table(head=["1-1"], accuracy=[9.0]), table(head=["1-2"], accuracy=[9.1])),
        (
            "anything",
            table(relation=["a", "b"], x=[1.0, 2.0]),
            table(relation=["b", "a"], x=[2.0, 1.0]),
        ),
        (
            "claims",
            table(
                id=["a", "b"], section=["3.1", "5"], unit=["share", "percent"], value=[0.5, 60.0]
            ),
            table(
                id=["b", "a"], section=["5", "3.1"], unit=["percent", "share"], value=[61.0, 0.505]
            ),
        ),
        (
            "probe_fits",
            table(loss=[0.8356], gradient=[0.0012], passes=[93]),
            table(loss=[0.8358], gradient=[0.0014], passes=[88]),
        ),
        ("probe_heads", table(layer=[1, 2], gain=[2.0, 1.0]), table(layer=[2, 1], gain=[1.0, 2.0])),
    ],
)
def test_compare_models_allows_the_tolerance_of_the_unit(name, before, after):
    assert not list(compare_tables.compare_models(before, after, name))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "entropy",
            table(layer=[1, 2], entropy=[4.0, 1.0]),
            table(layer=[1, 2], entropy=[4, 1.005]),
        ),
        ("probes", table(probe=["Attn"], value=[60.0]), table(probe=["Attn"], value=[60.3])),
        ("probes", table(probe=["Attn"], value=[60.0]), table(probe=["Attn"], value=[np.nan])),
        ("no_op", table(p_value=[0.051]), table(p_value=[0.058])),
        ("anything", table(word=["a"]), table(word=["b"])),
        (
            "anything",
            table(relation=["a", "b"], x=[1.0, 2.0]),
            table(relation=["b", "a"], x=[1.0, 2.0]),
        ),
        (
            "claims",
            table(id=["a"], section=["4.2"], unit=["percent"], value=[60.0], verdict=["supported"]),
            table(
                id=["a"], section=["4.2"], unit=["percent"], value=[60.0], verdict=["not supported"]
            ),
        ),
        ("anything", table(word=["a"]), table(word=["a", "a"])),
        ("anything", table(word=["a"]), table(text=["a"])),
    ],
)
def test_compare_models_names_what_differs_by_more(name, before, after):
    assert list(compare_tables.compare_models(before, after, name))
