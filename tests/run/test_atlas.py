"""One table over runs: heads in rows, and how far runs agree on claims."""

import numpy as np
import pandas as pd
import pytest
from made_up_runs import run_like_the_paper
from viewer_stores import OTHER, SENTENCE, word_store

from helpers.run import compare
from helpers.run.atlas import COLUMNS, atlas, lacking, nearest_heads, spread


@pytest.fixture
def tables():
    each = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(6) + 1, 2),
            "head": [1, 2] * 6,
            "relation": ["det", "dobj"] * 6,
            "direction": "dependent attends to head",
            "accuracy": np.arange(12) + 60.0,
            "margin": np.arange(12) + 20.0,
            "ci_low": np.arange(12) + 19.0,
            "ci_high": np.arange(12) + 21.0,
            "coreference": np.arange(12) + 40.0,
        }
    )
    return run_like_the_paper() | {"each_head": each}


def test_a_row_a_head_a_model(tables):
    importance = pd.DataFrame({"task": ["a", "b"], "layer": 2, "head": 2, "importance": [1.0, 3.0]})
    part = {name: tables[name] for name in ("token_types",)} | {"importance": importance}
    table = atlas({"whole": tables, "part": part})
    assert tuple(table) == COLUMNS
    assert list(table.groupby("model", sort=False).size()) == [12, 12]
    own = table.set_index(["model", "layer", "head"])
    head = own.loc[("whole", 3, 1)]
    assert (head["relation"], head["accuracy"], head["margin"]) == ("det", 64, 24)
    assert (head["ci_low"], head["ci_high"], head["sep"], head["entropy"]) == (23, 25, 0.6, 2.5)
    assert own.loc[("part", 2, 2), "importance"] == 2
    assert own.loc["part"]["relation"].isna().all()


def test_every_head_has_its_relation_and_its_coreference(tables):
    own = atlas({"whole": tables}).set_index(["layer", "head"])
    columns = ["relation", "accuracy", "margin", "ci_low", "ci_high", "coreference"]
    assert own[columns].notna().all(axis=None)
    assert list(own["coreference"]) == list(np.arange(12) + 40)


def test_what_no_head_of_a_run_has_is_said(tables):
    part = {name: tables[name] for name in ("token_types", "entropy")}
    table = atlas({"whole": tables, "part": part})
    table.loc[table["model"] == "whole", "importance"] = 1.0
    assert lacking(table)[0] == "the atlas has no behaviour for whole"
    own = "behaviour, relation, accuracy, margin, ci_low, ci_high, coreference, importance"
    assert lacking(table)[1:] == [f"the atlas has no {own} for part"]


def test_the_nearest_head_of_every_other_model(figures):
    """A model whose heads are another's in another order finds each of them."""
    one, same, other = (word_store(SENTENCE, OTHER) for _ in range(3))
    strange = word_store({**OTHER, "words": ["No", "such", "words", "here", "."]})
    for example in same.examples:
        example.attention[:] = example.attention[::-1, ::-1].copy()
    for example in other.examples:
        example.attention[:, 1:] = 1 / len(example.record["words"])
    for key, store in enumerate((one, same, other, strange)):
        store.key = str(key)
    stores = {"one": one, "same": same, "other": other}
    table = nearest_heads(stores)
    assert list(table) == ["model", "layer", "head", "other", "nearest", "distance", "mean",
                           "mutual", "sentences"]  # fmt: skip
    assert len(table) == 3 * 2 * 12 and set(table["sentences"]) == {2}
    found = table.set_index(["model", "other", "layer", "head"]).sort_index()
    pair = found.loc["one", "same"]
    assert pair.loc[(1, 2), "nearest"] == "3-3" and pair.loc[(3, 4), "nearest"] == "1-1"
    assert pair["mutual"].all() and (pair["distance"].abs() < 1e-6).all()
    assert (pair["mean"] > 0.05).all()
    back = found.loc["other", "one"]
    assert back.loc[(2, 1), "nearest"] == "2-1" and back.loc[(2, 1), "mutual"]
    assert back["mutual"].sum() < 12  # many uniform heads, one of another's is the nearest to all
    assert nearest_heads({"one": one, "strange": strange}).empty
    assert nearest_heads({"one": one}).empty


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
    _, _, (folder, _) = compare.compare(runs)
    assert len(pd.read_csv(folder / "atlas.csv")) == 24
    assert set(pd.read_csv(folder / "spread.csv")["runs"]) <= {0, 2}
