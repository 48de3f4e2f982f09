"""Two runs are compared table by table, also if one has a file for each control."""

import sys

import numpy as np
import pandas as pd
import pytest

from scripts import compare_tables


@pytest.fixture
def compare(figures, monkeypatch, capsys):
    """Compare two runs, which are given as tables by name."""

    def compare(old, new):
        for run, tables in {"old": old, "new": new}.items():
            (figures / run / "tables").mkdir(parents=True)
            for name, table in tables.items():
                table.to_csv(figures / run / "tables" / f"{name}.csv", index=False)
        monkeypatch.setattr(sys, "argv", ["compare_tables.py", "old", "new"])
        with pytest.raises(SystemExit) as stopped:
            compare_tables.main()
        lines = capsys.readouterr().out.splitlines()
        assert stopped.value.code == (not lines[0].startswith("all "))
        return lines

    return compare


def old_layout():
    """Tables of a run with a file for each control."""
    heads = {"layer": [1, 1, 2], "head": [1, 2, 1]}
    claims = {"id": ["a"], "section": ["3.1"], "unit": ["share"], "value": [0.5]}
    verdicts = {"verdict": ["supported"], "due_to_training": ["yes"]}
    return {
        "entropy": pd.DataFrame({**heads, "entropy": [1.0, 2.0, 3.0], "uniform": [4.0, 4.0, 4.0]}),
        "random_entropy": pd.DataFrame({**heads, "entropy": [3.0, 3.5, 3.9]}),
        "no_op": pd.DataFrame({"relation": ["NA"], "count": [30], "with": [40.0]}),
        "shuffled_no_op": pd.DataFrame({"relation": ["det"], "count": [20], "with": [10.0]}),
        "claims": pd.DataFrame({**claims, **verdicts}),
    }


def new_layout():
    """The same numbers with the controls as rows, in another order."""
    old = old_layout()
    entropy = {"random": old["random_entropy"], "trained": old["entropy"]}
    no_op = {"trained": old["no_op"], "shuffled": old["shuffled_no_op"]}
    return {
        "entropy": pd.concat(entropy, names=["model"]).reset_index("model"),
        "no_op": pd.concat(no_op, names=["model"]).reset_index("model"),
        "claims": old["claims"].rename(columns={"due_to_training": "larger_than_in_controls"}),
    }


def test_both_layouts_of_the_same_numbers_agree(compare):
    assert compare(old_layout(), new_layout()) == ["all 5 tables agree"]


def test_each_difference_has_a_line(compare):
    tables = new_layout()
    del tables["claims"]
    entropy = tables["entropy"]
    entropy.loc[entropy["entropy"] == 3.5, "entropy"] = 3.6  # the tolerance is 0.0039
    entropy.loc[entropy["entropy"] == 1.0, "uniform"] = np.nan
    tables["no_op"] = tables["no_op"][tables["no_op"]["model"] == "trained"].assign(
        relation=None, other=1
    )
    lines = compare(old_layout(), tables)
    assert sorted(line.partition(" ")[0] for line in lines) == sorted(
        ["claims:", "entropy:", "entropy", "no_op:", "no_op:", "no_op"]
    )
    (control_line,) = [line for line in lines if line.startswith("entropy (random): entropy ")]
    assert "0.1 " in control_line and "0.0039" in control_line
    assert any(line.startswith("no_op: relation ") for line in lines)  # NA is no empty cell


CLAIM = {"id": ["a", "b"], "section": ["3.1", "5"], "unit": ["share", "percent"]}
CASES = [  # a table, a column's values, other values that agree, and others that do not
    ("entropy", {"layer": [1, 2]}, "entropy", [4.0, 1.0], [4, 1.003], [4, 1.005]),
    ("coreference", {"system": ["head"]}, "accuracy", [60.0], [60.19], [60.3]),
    ("probes", {"probe": ["Attn"]}, "value", [60.0], [61.9], [62.1]),
    ("no_op", {}, "p_value", [0.051], [0.0555], [0.058]),
    ("each_head", {"head": ["1-1"]}, "accuracy", [9.0], [9.1], [9.3]),
    ("each_head", {"accuracy": [9.0]}, "head", ["1-1"], ["1-2"], []),
    ("claims", CLAIM, "value", [0.5, 60.0], [0.505, 61.0], [0.51, 61.0]),
    ("claims", {"id": ["a"]}, "verdict", ["supported"], ["supported"], ["not supported"]),
    ("probe_fits", {"passes": [93]}, "loss", [0.8356], [0.8358], [0.84]),
    ("anything", {}, "word", ["a"], ["a"], ["b"]),
]


@pytest.mark.parametrize(("name", "names", "column", "before", "near", "far"), CASES)
def test_the_tolerance_is_that_of_the_unit(name, names, column, before, near, far):
    before = pd.DataFrame({**names, column: before})
    agreeing = before.assign(**{column: near})[::-1]  # in another order of rows
    assert not list(compare_tables.compare_models(before, agreeing, name))
    if far:
        (line,) = compare_tables.compare_models(before, before.assign(**{column: far}), name)
        assert line.startswith(column)
