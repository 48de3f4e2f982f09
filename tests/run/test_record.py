"""What ``run.json`` says of a run."""

import json
import subprocess

import pandas as pd
import pytest

from helpers.data.records import Corpus
from helpers.errors import InputError
from helpers.run import record
from helpers.run.record import check
from helpers.sources import known
from helpers.study import Study
from helpers.work import WRITTEN


def test_the_commit_is_marked_where_the_code_differs_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "project_root", lambda: tmp_path)
    assert record._commit() is None  # no repository
    (tmp_path / "helpers").mkdir()
    (tmp_path / "figures").mkdir()
    for name in ("helpers/cache.py", "requirements.txt", "figures/table.csv"):
        (tmp_path / name).write_text("1\n")
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = record._commit()
    assert len(clean) == 12
    (tmp_path / "figures/table.csv").write_text("2\n")
    assert record._commit() == clean
    (tmp_path / "helpers/cache.py").write_text("2\n")
    assert record._commit() == f"{clean}-dirty"


@pytest.fixture
def facts(figures, monkeypatch):
    """What a run would say of itself; no model is loaded for it."""
    found = {"model": {"name": "toy"}, "commit": "abc", "corpora": {}}

    def describe(study):
        return {"settings": known(study, study.declared), **found}

    monkeypatch.setattr(record, "describe", describe)
    return found


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Have a study save tables, as in the kernel of a notebook."""

    def run(study, own, name, *tables, number=1):
        notes = tmp_path / f"{name}.written"
        notes.unlink(missing_ok=True)
        monkeypatch.setenv(WRITTEN, str(notes))
        for table in tables:
            study.save_table(pd.DataFrame({"a": [number]}), table)
        own.note(name, notes)

    return run


def test_an_entry_stays_while_its_notebook_writes_the_same_bytes(facts, notebook):
    def run(commit, **numbers):
        facts["commit"] = commit
        study = Study(name="mine")
        with record.recorded(study) as own:
            for table, number in numbers.items():
                notebook(study, own, table, table, number=number)
        written = json.loads((study.results / "run.json").read_text())
        entries = written["notebooks"]
        assert all(entry["tables"] == [name] for name, entry in entries.items())
        commits = {name: entry.get("commit") for name, entry in entries.items()}
        return own.outcome(), written["commit"], commits

    new = "2 tables, 0 figures; new or changed: all"
    assert run("a", one=1, two=1) == (new, "a", {"one": None, "two": None})
    same = "0 figures: as they were, byte for byte"
    assert run("b", one=1) == (f"1 table, {same}", "a", {"one": None, "two": None})
    changed = "2 tables, 0 figures; new or changed: one"
    assert run("c", one=2, two=1) == (changed, "a", {"one": "c", "two": None})
    assert run("d", one=2, two=1) == (f"2 tables, {same}", "a", {"one": "c", "two": None})
    assert run("e", two=2)[1:] == ("e", {"one": "c", "two": None})  # nothing is left of "a"
    facts["model"] = {"name": "toy", "weights_sha256": "others"}
    assert run("e") == ("0 tables, 0 figures: as they were, byte for byte", "e", {})


def test_one_run_at_a_time_has_a_name(facts):
    study = Study(name="mine")
    again = record.recorded(Study(name="mine"))
    with record.recorded(study), pytest.raises(InputError, match="mine: a run of this name"), again:
        pass
    with record.recorded(study):
        pass


def test_a_run_that_fails_in_its_first_notebook_leaves_nothing(facts, notebook, figures, tmp_path):
    (figures / "mine").mkdir(parents=True)
    (figures / "mine" / "notes.md").touch()
    for done in (0, 1):
        study = Study(name="mine")
        with pytest.raises(ZeroDivisionError), record.recorded(study) as own:
            if done:
                notebook(study, own, "00_zero", "zero")
            study.save_table(pd.DataFrame({"a": [1]}), "half")
            raise ZeroDivisionError
        left = {path.name for path in figures.rglob("*.*")} - {"notes.md"}
        assert left == ({"half.csv", "run.json", "zero.csv"} if done else set())
        assert (figures / "mine" / "notes.md").is_file()


def refused(tiny_folder, **settings):
    own = {"model": str(tiny_folder("bert")), "device": "cpu", "max_tokens": 48} | settings
    with pytest.raises(InputError) as error:
        list(check(Study(**own), []))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)  # which has a limit for --max-tokens
    assert "no-such-model" in refused(tiny_folder, model="./no-such-model")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(tiny_folder, model=str(tmp_path / "empty"))
    assert "--device cpu" in refused(tiny_folder, device="tpu")
    assert "--max-tokens 100000" in refused(tiny_folder, max_tokens=100_000)


def test_tasks_are_read(tiny_folder, tmp_path):
    (tmp_path / "train.tsv").write_text("one column\n")
    (tmp_path / "test.tsv").write_text("a\tx\nb\ty\n")
    error = refused(tiny_folder, task=f"{tmp_path / 'train.tsv'},{tmp_path / 'test.tsv'}")
    assert "column" in error and "train.tsv" in error
    assert "expected TRAIN.tsv,TEST.tsv" in refused(tiny_folder, task=str(tmp_path / "test.tsv"))


ROW = "{}\t{}\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
TREE = ROW.format(1, "Go", 0) + ROW.format(2, "on", 1) + "\n"
COMMENTS = 50 * "## A comment.\n"
BRACKETS = "# a story\n[Ann]1 lost [her]1 ring.\n"


@pytest.mark.parametrize(
    ("setting", "name", "content", "fault"),
    [
        ("text", "empty.txt", "", "no segment"),
        ("treebank", "empty.conllu", "", "holds no sentence"),
        ("treebank", "columns.conllu", 50 * TREE + "1\tGo\n", "151: expected 10 columns, found 2"),
        ("treebank", "order.conllu", 50 * TREE + ROW.format(2, "on", 0), "151: expected word 1"),
        ("treebank", "roots.conllu", TREE + TREE.replace("\t1\tdep", "\t0\tdep"), "5: a second"),
        ("coref", "open.txt", COMMENTS + BRACKETS.replace("]1 ring", " ring"), "52: '['"),
        ("coref", "none.txt", "# a story\nIt rained.\n", "no mention in any document"),
    ],
)  # fmt: skip
def test_check_reads_files_of_the_user_before_a_model_is_loaded(
    setting, name, content, fault, tmp_path, monkeypatch
):
    """Loading a model and parsing the sample of Wikipedia take half a minute."""
    monkeypatch.setattr("helpers.model.encoder.load", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setattr("helpers.data.treebank.pipeline", lambda: pytest.fail("parsed"))
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError) as error:
        list(check(Study(**{setting: str(path)}), [setting]))
    assert str(error.value).startswith(f"{path}:") and fault in str(error.value)
    assert "\n" not in str(error.value)


def test_check_does_not_read_registered_corpora_and_samples_ahead(monkeypatch):
    monkeypatch.setattr(Corpus, "validate", lambda corpus: pytest.fail(f"read {corpus.name}"))
    monkeypatch.setattr("helpers.model.encoder.load", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(check(Study(), []))
