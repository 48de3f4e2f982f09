"""A run writes one folder, and a folder is of one run: ``build/<run>/`` and its ``run.json``."""

import subprocess

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers import results
from helpers.errors import InputError
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import Results, read_tables, run_record
from helpers.settings import Settings

pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture
def today(monkeypatch):
    """Stand in for the commit and the digest of the code, which tests change."""
    made_by = {"versions": {"torch": "2.13.0"}, "code": "first"}
    monkeypatch.setattr(results, "made_by", lambda: made_by)
    return made_by


def save(run, number=4.0, table="entropy"):
    run.save_table(pd.DataFrame({"layer": [1], "entropy": [number]}), table)


def files_of(run):
    return {path.stem for path in run.build.glob("tables/*")}


def test_git_commit_is_marked_only_where_the_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PROJECT_ROOT", tmp_path)
    assert results.git_commit() is None  # no repository
    (tmp_path / "helpers").mkdir()
    (tmp_path / "figures").mkdir()
    for name in ("helpers/cache.py", "figures/table.csv"):
        (tmp_path / name).write_text("1\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = results.git_commit()
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
    assert set(again.tables()) == files_of(again) == {"entropy", "gradients"}
    assert capsys.readouterr().err == ""
    record = run_record(again.build)
    assert record["commit"] == "b" and record["code"] == "first"
    assert record["settings"]["segments"] == again.settings.segments


@pytest.mark.parametrize(
    ("change", "by_hand"), [("code", False), ("settings", True), ("corpora", False)]
)
def test_any_other_run_lists_only_its_own_and_a_batch_run_removes_the_rest(
    change, by_hand, today, capsys
):
    first = Results(Settings(name="mine"))
    first.facts["corpora"] = {"text fingerprint": "1"}
    for table in ("entropy", "gradients"):
        save(first, table=table)
    first.save_figure(plt.figure(), "fig4", caption="Look.")
    today["code"] = "another" if change == "code" else "first"
    other = Results(Settings(name="mine", seed=int(change == "settings")))
    assert set(other.tables()) == (set() if change != "corpora" else files_of(first))
    other.facts["corpora"] = {"text fingerprint": "2" if change == "corpora" else "1"}
    assert other.tables() == {}
    if not by_hand:
        other.start_run()
    for table in ("entropy", "probes"):
        save(other, 5.0, table)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"of other {change}" in line
    assert set(read_tables(other.build)) == {"entropy", "probes"}
    assert other.tables()["entropy"]["entropy"][0] == 5.0
    assert run_record(other.build)["figures"] == {}
    assert files_of(other) == {"entropy", "probes", *(["gradients"] if by_hand else [])}
    assert len(list(other.build.glob("fig4*"))) == by_hand
    Results(other.settings).start_run()  # of the same code
    assert files_of(other) == {"entropy", "probes"}


def test_a_folder_that_no_run_wrote_is_refused():
    results_of_mine = Results(Settings(name="mine"))
    results_of_mine.build.mkdir(parents=True)
    (results_of_mine.build / "thesis.csv").touch()
    for write in (lambda: save(results_of_mine), results_of_mine.start_run):
        with pytest.raises(InputError, match=str(results_of_mine.build)):
            write()
    assert [path.name for path in results_of_mine.build.iterdir()] == ["thesis.csv"]


def test_run_json_says_which_notebook_wrote_what(monkeypatch):
    run = Results(Settings(name="mine"))
    save(run)
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/03_focused.ipynb")  # of JupyterLab
    save(run, table="averages")
    save(run, table="averages")
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "02_types")  # of a batch run
    save(run, table="averages")
    run.save_figure(plt.figure(), "fig2", caption="Look for\nnothing.")
    record = run_record(run.build)
    assert record["tables"] == {"entropy": "", "averages": "02_types, 03_focused"}
    assert record["figures"]["fig2"]["notebook"] == "02_types"
    assert record["figures"]["fig2"]["caption"] == "Look for nothing."


def test_tables_reads_from_the_committed_run_what_this_one_lacks():
    run = Results(Settings(name="mine"))
    save(run, 1.0)
    save(run, 1.0, table="gradients")
    run.published.mkdir(parents=True)
    for path in ("run.json", "tables"):
        (run.build / path).rename(run.published / path)
    save(run, 2.0)
    tables = run.tables()
    assert tables["entropy"]["entropy"][0] == 2.0 and tables["gradients"]["entropy"][0] == 1.0
    assert Results(Settings(name="mine", seed=5)).tables() == {}
