"""Finished runs side by side: the committed ones, and tables by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed_figures
from executed_pages import execute

from beyond.pages import compare
from beyond.pages.run_folder import Run, open_run, rows_of
from helpers.errors import InputError


@pytest.fixture(scope="module")
def runs():
    return [open_run(committed_figures() / name) for name in ("minilm", "mpnet")]


def test_numbers_and_best_heads_are_those_of_the_tables(runs):
    numbers = compare.numbers(runs).set_index("number")
    best = compare.best_heads(runs).set_index("relation")
    *_, axes = compare.draw_comparison(runs).axes
    marks = {line.get_label(): line.get_xdata() for line in axes.lines}
    in_paper = best.dropna(subset="paper accuracy")
    assert best.index[0] == "All"
    assert best.loc["dobj", "paper head"] == "8-10"
    assert best["paper accuracy"].isna().any()  # of relations that only the runs have
    for run in runs:
        shares = rows_of(run.tables, "token_types")[["cls", "sep"]].sum(axis=1)
        random = rows_of(run.tables, "token_types", "random")[["cls", "sep"]].sum(axis=1)
        probes = rows_of(run.tables, "probes").set_index(["probe", "metric"])["value"]
        expected = [100 * shares.mean(), 100 * random.mean()]
        assert numbers[run.name].iloc[:2].tolist() == pytest.approx(expected)
        uas = probes["Attn + GloVe", "UAS without punctuation"]
        assert numbers.loc["UAS: attention and word vectors", run.name] == uas
        heads = rows_of(run.tables, "dependency_heads").set_index("relation")
        assert best.loc["dobj", f"{run.name} accuracy"] == heads.loc["dobj", "accuracy"]
        np.testing.assert_allclose(marks[run.name], in_paper[f"{run.name} accuracy"])


def test_claims_and_treebanks_side_by_side():
    claims = pd.DataFrame({
        "id": ["a", "b"], "claim": ["A", "B"], "section": "3.1", "unit": "share", "reason": None,
        "paper_value": [0.5, None], "value": [0.36, None], "value_low": [0.35, None],
        "value_high": [0.37, None], "verdict": ["supported", "not measured"],
    })  # fmt: skip
    rows = [("1-1", 90.0, 5.0), ("1-2", 80.0, 7.0)]
    heads = pd.DataFrame(rows, columns=["head", "train_accuracy", "margin"])
    heads = heads.assign(relation="obj", direction="to parent", layer=1)
    second_heads = heads.assign(train_accuracy=[10.0, 20.0], margin=[1.0, 2.0])
    runs = [
        Run(Path(name), {"settings": settings}, {"claims": claims, "universal_relations": table})
        for name, settings, table in (
            ("x", {"model": "m", "segments": 1}, heads),
            ("y", {"model": "m", "segments": 2}, second_heads),
        )
    ]
    (row,) = compare.claims_side_by_side(runs).to_dict("records")
    assert row["x"] == row["y"] == "36.0% (35.0 to 37.0): supported"
    scores = compare.across_treebanks(runs).set_index("run_of_choice")[["head", "x", "y"]]
    assert scores.loc[["x", "y"]].to_numpy().tolist() == [["1-1", 5, 1], ["1-2", 7, 2]]
    assert compare.different_settings(runs) == ["segments"]


def test_compare_page_saves_tables_and_a_picture(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path / "build"))
    execute("compare", runs=[str(run.folder) for run in runs])
    folder = tmp_path / "build" / "compare" / "minilm-vs-mpnet"
    assert (folder / "compare.png").is_file()
    assert {path.stem for path in folder.glob("tables/*.csv")} == {
        "numbers",
        "best_heads",
        "claims",
    }
    with pytest.raises(InputError, match="not the folder of a run"):
        open_run(tmp_path)
