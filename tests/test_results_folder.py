"""A run writes one folder, and a folder is of one run: ``build/<run>/`` and its ``run.json``."""

import json
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers import results
from helpers.errors import InputError
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, read_tables, run_record
from helpers.settings import Settings
from helpers.study import Study


@pytest.fixture
def today(figures, monkeypatch):
    """Stand in for the commit and the digest of the code, which tests change."""
    made_by = {"versions": {"torch": "2.13.0"}, "code": "first"}
    monkeypatch.setattr(results, "made_by", lambda: made_by)
    monkeypatch.setattr(results, "git_commit", lambda: "a")
    return made_by


def save(run, number=4.0, table="entropy"):
    run.save_table(pd.DataFrame({"layer": [1], "entropy": [number]}), table)


def test_git_commit_is_marked_only_where_the_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PROJECT_ROOT", tmp_path)
    assert results.git_commit() is None  # no repository
    (tmp_path / "helpers").mkdir()
    (tmp_path / "figures").mkdir()
    for name in ("helpers/cache.py", "requirements.txt", "figures/table.csv"):
        (tmp_path / name).write_text("1\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = results.git_commit()
    assert len(clean) == 12
    (tmp_path / "figures/table.csv").write_text("2\n")
    assert results.git_commit() == clean
    (tmp_path / "helpers/cache.py").write_text("2\n")
    assert results.git_commit() == f"{clean}-dirty"


def test_a_run_of_the_same_settings_and_code_adds_to_its_folder(today, monkeypatch, capsys):
    save(Results(Settings(name="mine")))
    monkeypatch.setattr(results, "git_commit", lambda: "b")  # of a page of the README
    again = Results(Settings(name="mine", device="cpu"))  # which changes no result
    again.start_run()
    save(again, table="gradients")
    assert set(again.own_tables()) == {"entropy", "gradients"}
    assert capsys.readouterr().err == ""
    record = run_record(again.build)
    assert record["commit"] == "b" and record["code"] == "first"
    assert record["settings"]["segments"] == again.settings.segments


@pytest.mark.parametrize("change", ["code", "settings"])
def test_any_other_run_starts_the_folder_afresh_and_says_so(change, today, capsys):
    first = Results(Settings(name="mine"))
    save(first)
    first.save_figure(plt.figure(), "fig4", caption="Look.")
    if change != "settings":
        today[change] = "another"
    other = Results(Settings(name="mine", seed=1 if change == "settings" else 0))
    assert other.own_tables() == {}
    other.start_run()
    assert f"were of other {change}" in capsys.readouterr().err
    save(other, 5.0, table="gradients")
    assert set(read_tables(other.build)) == {"gradients"}
    assert not list(other.build.glob("fig4*"))
    assert run_record(other.build)["figures"] == {}


@pytest.mark.parametrize("change", ["code", "settings"])
def test_a_notebook_opened_by_hand_replaces_its_own_tables_and_empties_nothing(
    change, today, capsys
):
    first = Results(Settings(name="mine"))
    for table in ("entropy", "gradients"):
        save(first, table=table)
    today["code"] = "another" if change == "code" else "first"
    by_hand = Results(Settings(name="mine", seed=1 if change == "settings" else 0))
    for table in ("entropy", "probes"):
        save(by_hand, 5.0, table)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"mine: its results were of other {change}" in line
    files = {path.stem: pd.read_csv(path) for path in (first.build / "tables").glob("*.csv")}
    numbers = {name: table["entropy"][0] for name, table in files.items()}
    assert numbers == {"entropy": 5.0, "gradients": 4.0, "probes": 5.0}
    assert set(by_hand.own_tables()) == {"entropy", "probes"}  # of one code
    Results(by_hand.settings).start_run()  # of the same code
    assert {path.stem for path in first.build.glob("tables/*")} == {"entropy", "probes"}


def test_a_folder_that_no_run_wrote_is_refused(today):
    for run in (Results(Settings(name="mine")), Results(Settings(name="screens"))):
        folder = run.build if run.name == "mine" else run.published
        folder.mkdir(parents=True)
        run.check_folders()
        (folder / "thesis.txt").touch()
        with pytest.raises(InputError, match=f"{folder}: .* no run wrote; choose another --name"):
            run.check_folders()
    mine = Results(Settings(name="mine"))
    for write in (lambda: save(mine), mine.start_run):
        with pytest.raises(InputError, match="no run wrote"):
            write()
    assert [path.name for path in mine.build.iterdir()] == ["thesis.txt"]


def test_a_notebook_of_a_batch_run_lists_no_tables_of_another_text(today, monkeypatch):
    first = Results(Settings(name="mine"))
    first.facts["corpora"] = {"text fingerprint": "1"}
    save(first, table="gradients")
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "03_focused")
    other = Results(Settings(name="mine"))
    other.start_run()
    assert set(other.own_tables()) == {"gradients"}  # no text has been opened
    other.facts["corpora"] = {"text fingerprint": "2"}
    save(other)
    assert set(read_tables(other.build)) == {"entropy"}
    other.start_run()
    assert {path.stem for path in other.build.glob("tables/*")} == {"entropy"}


def test_own_tables_of_another_text_of_the_same_name_are_not_read(today):
    first = Results(Settings(name="mine"))
    first.facts["corpora"] = {"text": "mini", "text fingerprint": "1"}
    save(first)
    other = Results(Settings(name="mine"))
    other.facts["corpora"] = {"treebank": "trees", "treebank fingerprint": "9"}
    assert set(other.own_tables()) == {"entropy"}  # another notebook of the run
    other.facts["corpora"]["text fingerprint"] = "2"
    assert other.own_tables() == {}


def test_run_json_says_which_notebook_wrote_what(today, monkeypatch):
    run = Results(Settings(name="mine"))
    save(run)
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/03_focused.ipynb")  # of JupyterLab
    save(run, table="gradients")
    save(run, table="gradients")
    save(run, table="averages")
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "02_types")  # of a batch run
    save(run, table="averages")
    run.save_figure(plt.figure(), "fig2", caption="Look for\nnothing.")
    record = run_record(run.build)
    assert record["tables"] == {
        "entropy": "",
        "gradients": "03_focused",
        "averages": "02_types, 03_focused",
    }
    assert record["figures"] == {
        "fig2": {"notebook": "02_types", "title": "", "caption": "Look for nothing."}
    }


def test_tables_reads_from_the_finished_run_what_this_one_lacks(today):
    run = Results(Settings(name="mine"))
    save(run, 1.0)
    save(run, 1.0, table="gradients")
    run.published.mkdir(parents=True)
    for path in ("run.json", "tables"):
        (run.build / path).rename(run.published / path)
    save(run, 2.0)
    tables = run.tables()
    assert tables["entropy"]["entropy"][0] == 2.0
    assert tables["gradients"]["entropy"][0] == 1.0


def test_later_notebooks_are_a_run_of_their_own(today):
    paper, later = Study(name="mine"), Study(name="mine", later=True)
    save(paper)
    save(later, table="edges")
    assert later.results.build.name == "mine-later"
    assert set(later.tables()) == {"edges"}
    assert set(paper.tables()) == {"entropy"}


def test_check_folders_refuses_the_name_of_a_committed_run_with_other_settings(today):
    finished = Results(Settings(name="mine"))
    save(finished)
    finished.published.parent.mkdir()
    finished.build.rename(finished.published)
    finished.check_folders()
    with pytest.raises(InputError, match=r"a run with other settings; choose another name"):
        Results(Settings(name="mine", seed=5)).check_folders()


def test_tables_of_a_damaged_record_are_not_read(today):
    run = Results(Settings(name="mine"))
    save(run)
    (run.build / "run.json").write_text("{")
    save(run, table="gradients")
    assert set(run.own_tables()) == {"gradients"}


def test_read_tables_reads_labels_as_text_and_empty_cells_as_missing(today):
    run = Results(Settings(name="mine"))
    labels = ["NA", "None", "null", None]
    run.save_table(pd.DataFrame({"relation": labels, "accuracy": [1.0, np.nan, 2, 3]}), "heads")
    table = run.own_tables()["heads"]
    assert table["relation"].isna().tolist() == [False, False, False, True]
    assert table["relation"][:3].tolist() == labels[:3]
    np.testing.assert_array_equal(table["accuracy"], [1, np.nan, 2, 3])


def test_read_tables_names_a_file_that_is_no_table(today):
    run = Results(Settings(name="mine"))
    save(run)
    path = run.build / "tables" / "entropy.csv"
    path.write_text("")
    with pytest.raises(InputError, match=r"entropy\.csv: not a table"):
        run.own_tables()


def test_run_json_has_the_model_and_the_corpora_that_were_used(tmp_path, tiny_folder, figures):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"A cat sat here {n}.\nA dog sat there {n}." for n in range(12)))
    study = Study(
        model=str(tiny_folder("bert")), text=str(text), max_tokens=32, device="cpu", name="mine"
    )
    store = study.segment_store()
    study.save_table(pd.DataFrame({"n": [len(store)]}), "n")
    record = json.loads((study.results.build / "run.json").read_text())
    assert record["model"]["weights_sha256"]
    assert record["corpora"]["text"] == "text"
    assert record["corpora"]["text fingerprint"] == study.segment_corpus().fingerprint
    assert "treebank" not in record["corpora"]
