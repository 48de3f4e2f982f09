"""One table over runs: heads in rows, and how far runs agree on claims."""

import numpy as np
import pandas as pd
import pytest
from made_up_runs import run_like_the_paper

from helpers.run import compare
from helpers.run.atlas import COLUMNS, atlas, spread


@pytest.fixture
def tables():
    held_out = pd.DataFrame(
        {
            "relation": ["All", "dobj", "det"],
            "head": ["3-1", "3-1", "3-1"],
            "dev_accuracy": [30.0, 80.0, 70.0],
            "margin": [5.0, 20.0, 30.0],
            "margin_low": [4.0, 18.0, 28.0],
            "margin_high": [6.0, 22.0, 32.0],
        }
    )
    made = run_like_the_paper() | {"dependency_heads_held_out": held_out}
    made["coreference"]["system"] = made["coreference"]["system"].replace("head 5-4", "head 5-2")
    return made


def test_a_row_a_head_a_model(tables):
    importance = pd.DataFrame({"task": ["a", "b"], "layer": 2, "head": 2, "importance": [1.0, 3.0]})
    part = {name: tables[name] for name in ("token_types",)} | {"importance": importance}
    table = atlas({"whole": tables, "part": part})
    assert tuple(table) == COLUMNS
    assert list(table.groupby("model", sort=False).size()) == [12, 12]
    own = table.set_index(["model", "layer", "head"])
    head = own.loc[("whole", 3, 1)]
    assert (head["relation"], head["accuracy"], head["margin"]) == ("det", 70, 30)
    assert (head["ci_low"], head["ci_high"], head["sep"], head["entropy"]) == (28, 32, 0.6, 2.5)
    assert own.loc[("part", 2, 2), "importance"] == 2
    assert own.loc["part"]["relation"].isna().all()


def test_the_head_of_coreference(tables):
    tables["coreference"]["system"] = tables["coreference"]["system"].replace(
        "head 5-4", "head 5-2"
    )
    own = atlas({"whole": tables}).set_index(["layer", "head"])["coreference"]
    assert own.loc[(5, 2)] == 65 and own.notna().sum() == 1


def test_the_spread_of_claims():
    claims = pd.DataFrame(
        {
            "section": ["3.1", "5"],
            "claim": ["A", "B"],
            "paper": [1.0, np.nan],
            **{f"m{i}": [i, np.nan if i else 7.0] for i in range(3)},
            **{f"m{i} holds": ["yes" if i else "no", "yes"] for i in range(3)},
        }
    )
    table = spread(claims).set_index("claim")
    assert list(table.loc["A", ["runs", "mean", "sd", "least", "most"]]) == [3, 1, 1, 0, 2]
    assert table.loc["A", "verdicts"] == "2 yes, 1 no"
    assert table.loc["B", "runs"] == 1 and np.isnan(table.loc["B", "sd"])


def test_compare_writes_both(figures, tables):
    runs = [compare.Run(name, tables, {}) for name in ("one", "two")]
    for table in (tables["dependency_heads"],):
        table["head"], table["ci_high"] = "3-1", table["accuracy"] + 2
    _, folder = compare.compare(runs)
    assert len(pd.read_csv(folder / "atlas.csv")) == 24
    assert set(pd.read_csv(folder / "spread.csv")["runs"]) <= {0, 2}
