"""Two runs are compared table by table."""

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


HEADS = {"model": ["trained", "trained", "random"], "layer": [1, 1, 2], "head": [1, 2, 1]}
RUN = {
    "entropy": pd.DataFrame({**HEADS, "entropy": [1.0, 2.0, 3.5], "uniform": [4.0, 4.0, 4.0]}),
    "no_op": pd.DataFrame({"relation": ["NA"], "count": [30], "with": [40.0]}),
    "claims": pd.DataFrame({"id": ["a"], "section": ["3.1"], "unit": ["share"], "value": [0.5]}),
}


def test_the_same_numbers_in_another_order_agree(compare):
    reordered = {name: table[::-1] for name, table in RUN.items()}
    assert compare(RUN, reordered) == ["all 3 tables agree"]


def test_each_difference_has_a_line(compare):
    entropy = RUN["entropy"].assign(entropy=[1.0, 2.0, 3.6], uniform=[np.nan, 4.0, 4.0])
    no_op = RUN["no_op"].assign(relation=None, other=1)  # NA is no empty cell
    assert compare(RUN, {"entropy": entropy, "no_op": no_op}) == [
        "claims: only in one of the runs",
        "entropy: entropy differs by up to 0.1 in 1 rows",
        "entropy: uniform differs by up to inf in 1 rows",
        "no_op: other is in one of the runs",
        "no_op: relation differs in 1 rows",
    ]


CLAIM = {"id": ["a", "b"], "section": ["3.1", "5"], "unit": ["share", "percent"]}
CASES = [  # a table, a column's values, other values that agree, and others that do not
    ("entropy", {"layer": [1, 2]}, "entropy", [4.0, 1.0], [4, 1.003], [4, 1.005]),
    ("coreference", {"system": ["head"]}, "accuracy", [60.0], [60.19], [60.3]),
    ("probes", {"probe": ["Attn"]}, "value", [60.0], [61.9], [62.1]),
    ("no_op", {}, "p_value", [0.051], [0.0555], [0.058]),
    ("dependency_heads", {"accuracy": [9.0]}, "head", ["1-1"], ["1-2"], []),
    ("claims", CLAIM, "value", [0.5, 60.0], [0.505, 61.0], [0.51, 61.0]),
    ("anything", {}, "word", ["a"], ["a"], ["b"]),
]


@pytest.mark.parametrize(("name", "names", "column", "before", "near", "far"), CASES)
def test_the_tolerance_is_that_of_the_unit(name, names, column, before, near, far):
    before = pd.DataFrame({**names, column: before})
    agreeing = before.assign(**{column: near})[::-1]  # in another order of rows
    assert not list(compare_tables.compare_tables(before, agreeing, name))
    if far:
        (line,) = compare_tables.compare_tables(before, before.assign(**{column: far}), name)
        assert line.startswith(column)
