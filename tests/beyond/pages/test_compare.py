"""Finished runs side by side, from made-up folders of tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from executed_pages import execute
from made_up_runs import tables_with_heads, write_run

from beyond.pages import compare
from beyond.pages.run_folder import Run, open_run
from helpers.errors import InputError
from helpers.metrics import by_model


@pytest.fixture
def runs(tmp_path):
    """Make two runs: in the second, the head for direct objects is worse."""
    worse = tables_with_heads(dobj=10.0)
    worse["dependency_heads"]["accuracy_low"] = worse["dependency_heads"]["accuracy"] - 2
    tables = {"first": tables_with_heads(), "second": worse}
    return [open_run(write_run(tmp_path / name, saved)) for name, saved in tables.items()]


def test_numbers_of_two_runs(runs):
    types = runs[0].tables["token_types"]
    stacked = by_model({"trained": types, "random": types.assign(cls=0.01, sep=0.02)})
    runs[0].tables["token_types"] = stacked
    numbers = compare.numbers(runs).set_index("number")["first"]
    special = 100 * types[["cls", "sep"]].sum(axis=1).mean()
    assert numbers.iloc[:2].tolist() == pytest.approx([special, 3])
    assert numbers["UAS: attention and word vectors"] == 77
    assert numbers["coreference: best head (%)"] == 65
    assert not numbers.index.str.contains("sink").any()


def test_best_heads_have_the_paper_first_and_a_mark_each(runs):
    table = compare.best_heads(runs)
    assert table["relation"].iloc[0] == "All"
    columns = ["paper accuracy", "first accuracy", "second accuracy"]
    assert table.set_index("relation").loc["dobj", columns].to_list() == [86.8, 86.8, 10.0]
    words = compare.best_heads_in_words(table).set_index("relation")
    assert words.loc["dobj", "paper"] == "8-10, 87%"
    *_, axes = compare.draw_comparison(runs).axes
    marks = {line.get_label(): line.get_xdata() for line in axes.lines}
    in_paper = table.dropna(subset="paper accuracy")
    np.testing.assert_allclose(marks["second"], in_paper["second accuracy"])
    np.testing.assert_allclose(marks["the paper"], in_paper["paper accuracy"])


def test_claims_and_treebanks_side_by_side():
    claims = pd.DataFrame({
        "id": ["a", "b"], "claim": ["A", "B"], "section": "3.1", "unit": "share", "reason": None,
        "paper_value": [0.5, None], "value": [0.36, None], "value_low": [0.35, None],
        "value_high": [0.37, None], "verdict": ["supported", "not measured"],
    })  # fmt: skip
    rows = [("1-1", 90.0, 5.0), ("1-2", 80.0, 7.0)]
    heads = pd.DataFrame(rows, columns=["head", "train_accuracy", "margin"])
    heads = heads.assign(relation="obj", direction="to parent", layer=1)
    other_heads = heads.assign(train_accuracy=[10.0, 20.0], margin=[1.0, 2.0])
    runs = [
        Run(Path(name), {"settings": settings}, {"claims": claims, "universal_relations": table})
        for name, settings, table in (
            ("x", {"model": "m", "segments": 1}, heads),
            ("y", {"model": "m", "segments": 2}, other_heads),
        )
    ]
    (row,) = compare.claims_side_by_side(runs).to_dict("records")
    assert row["x"] == row["y"] == "36% (35 to 37): supported"
    scores = compare.across_treebanks(runs).set_index("run_of_choice")[["head", "x", "y"]]
    assert scores.loc[["x", "y"]].to_numpy().tolist() == [["1-1", 5, 1], ["1-2", 7, 2]]
    assert compare.different_settings(runs) == ["segments"]


def test_compare_page_saves_tables_and_a_picture(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path / "build"))
    page = execute("compare", tmp_path / "page.html", runs=[str(run.folder) for run in runs])
    folder = tmp_path / "build" / "compare" / "first-vs-second"
    assert (folder / "compare.png").is_file()
    assert {path.stem for path in folder.glob("tables/*.csv")} >= {"numbers", "best_heads"}
    assert page.read_text(encoding="utf-8").count("<section") >= 2
    with pytest.raises(InputError, match="not the folder of a run"):
        open_run(tmp_path)
