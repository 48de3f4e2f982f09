"""Finished runs side by side, from made-up folders of tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from executed_pages import execute
from made_up_runs import tables_with_heads, write_run

from beyond.pages import compare
from beyond.pages.run_folder import Run, open_run
from helpers.metrics.models import by_model


@pytest.fixture
def runs(tmp_path):
    """Make two runs: in the second, the head for direct objects is worse."""
    first = open_run(write_run(tmp_path / "first", tables_with_heads()))
    worse = tables_with_heads(dobj=10.0)
    heads = worse["dependency_heads"]
    heads["accuracy_low"] = heads["accuracy"] - 2
    return [first, open_run(write_run(tmp_path / "second", worse))]


def test_numbers_of_two_runs(runs):
    types = runs[0].tables["token_types"]
    stacked = by_model({"trained": types, "random": types.assign(cls=0.01, sep=0.02)})
    runs[0].tables["token_types"] = stacked
    numbers = compare.numbers(runs).set_index("number")
    shares = types[["cls", "sep"]].sum(axis=1)
    special = numbers.loc["attention to special tokens (%)"]
    np.testing.assert_allclose(special, 100 * shares.mean())
    random = numbers.loc["the same, random weights (%)"]
    assert random["first"] == pytest.approx(3) and np.isnan(random["second"])
    assert numbers.loc["UAS: attention and word vectors", "first"] == 77
    assert numbers.loc["coreference: best head (%)", "first"] == 65
    assert not numbers.index.str.contains("sink").any()


def test_best_heads_have_the_paper_first(runs):
    table = compare.best_heads(runs).set_index("relation")
    assert table.loc["dobj", ["paper accuracy", "first accuracy", "second accuracy"]].to_list() == [
        86.8, 86.8, 10.0,
    ]  # fmt: skip
    assert table.index[0] == "All"
    words = compare.best_heads_in_words(table.reset_index()).set_index("relation")
    assert words.loc["dobj", "paper"] == "8-10, 87%"


def test_claims_side_by_side_leaves_out_what_no_run_measures():
    claims = pd.DataFrame({
        "id": ["a", "b"], "claim": ["A", "B"], "section": "3.1", "unit": "share", "reason": None,
        "paper_value": [0.5, None], "value": [0.36, None], "value_low": [0.35, None],
        "value_high": [0.37, None], "verdict": ["supported", "not measured"],
    })  # fmt: skip
    runs = [Run(name, {}, {"claims": claims}) for name in (Path("x"), Path("y"))]
    table = compare.claims_side_by_side(runs)
    assert table.to_dict("records") == [
        {
            "section": "3.1", "claim": "A", "paper": "50%",
            "x": "36% (35 to 37): supported", "y": "36% (35 to 37): supported",
        }
    ]  # fmt: skip


def test_draw_comparison_has_a_mark_for_each_accuracy(runs):
    figure = compare.draw_comparison(runs)
    *_, axes = figure.axes
    marks = {line.get_label(): line.get_xdata() for line in axes.lines}
    in_paper = compare.best_heads(runs).dropna(subset="paper accuracy")
    np.testing.assert_allclose(marks["second"], in_paper["second accuracy"])
    np.testing.assert_allclose(marks["the paper"], in_paper["paper accuracy"])


def test_different_settings_leaves_out_those_of_the_model(tmp_path):
    settings = ({"model": "a", "segments": 100}, {"model": "b", "segments": 200})
    runs = [Run(tmp_path / value["model"], {"settings": value}, {}) for value in settings]
    assert compare.different_settings(runs) == ["segments"]


def test_compare_page_saves_tables_and_a_picture(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path / "build"))
    page = execute("compare", tmp_path / "page.html", runs=[str(run.folder) for run in runs])
    folder = tmp_path / "build" / "compare" / "first-vs-second"
    assert (folder / "compare.png").is_file()
    assert {path.stem for path in folder.glob("tables/*.csv")} >= {"numbers", "best_heads"}
    assert page.read_text(encoding="utf-8").count("<section") >= 2
