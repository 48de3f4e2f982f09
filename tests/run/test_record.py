"""What ``run.json`` says of a run."""

import json
import subprocess

import pandas as pd
import pytest

from helpers.errors import InputError
from helpers.run import record
from helpers.run.notebooks import _record_times, read_times
from helpers.study import Study


def test_the_commit_is_marked_where_the_code_differs_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "project_root", lambda: tmp_path)
    assert record._commit() is None  # no repository
    (tmp_path / "helpers").mkdir()
    (tmp_path / "figures").mkdir()
    for name in ("helpers/code.py", "requirements.txt", "figures/table.csv"):
        (tmp_path / name).write_text("1\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = record._commit()
    assert len(clean) == 12
    (tmp_path / "figures/table.csv").write_text("2\n")
    assert record._commit() == clean
    (tmp_path / "helpers/code.py").write_text("2\n")
    assert record._commit() == f"{clean}-dirty"


@pytest.fixture
def facts(figures, tmp_path, monkeypatch):
    """What a run would say of itself; no model is loaded for it."""
    found = {"model": {"name": "toy"}, "commit": "abc", "corpora": {}}
    monkeypatch.setattr(record, "describe", lambda study: {"settings": vars(study)} | found)
    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path / "build"))
    return found


def notebook(study, own, name, *tables):
    with own.of(name):
        for table in tables:
            study.save_table(pd.DataFrame({"a": [1]}), table)


def test_a_run_lists_what_each_notebook_wrote(facts):
    study = Study(name="mine")
    with record.recorded(study) as own:
        notebook(study, own, "02_two", "one", "two")
        notebook(study, own, "03_three", "three")
    written = json.loads((study.results / "run.json").read_text())["notebooks"]
    assert written["02_two"] == {"tables": ["one", "two"], "figures": []}
    assert written["03_three"]["tables"] == ["three"]
    assert sorted(Study(name="mine").tables()) == ["one", "three", "two"]


def test_tables_of_another_run_in_the_folder_are_not_this_runs(facts):
    for settings, tables in (({}, "one"), ({"segments": 7}, "two"), ({"segments": 7}, "three")):
        study = Study(name="mine", **settings)
        with record.recorded(study) as own:
            notebook(study, own, tables, tables)
    assert sorted(study.tables()) == ["three", "two"]  # "one" had other settings
    facts["commit"] = "def"
    with record.recorded(study) as own:
        assert own.notebooks == {}  # the code may count differently by now


def test_one_run_at_a_time_has_a_name(facts):
    study = Study(name="mine")
    again = record.recorded(Study(name="mine"))
    with record.recorded(study), pytest.raises(InputError, match="mine: a run of this name"), again:
        pass
    with record.recorded(study):
        pass


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"00": "x"}', "null"])
def test_damaged_run_times_cost_nothing(tmp_path, damage):
    (tmp_path / "times.json").write_text(damage)
    assert read_times(tmp_path) == {}
    _record_times(tmp_path, {"00_extract": 2.5})
    assert read_times(tmp_path) == {"00_extract": 2.5}


def test_an_empty_table_keeps_its_header(figures):
    study = Study(name="mine")
    study.save_table(pd.DataFrame({"relation": [], "accuracy": []}), "empty")
    assert list(study.tables()["empty"]) == ["relation", "accuracy"]
    assert not list(study.results.rglob("*.tmp"))
