"""``run.json`` and the files beside it, after reruns, kills, edits and notebooks run by hand."""

import copy
import json
import subprocess

import pandas as pd
import pytest

from helpers import results
from helpers.errors import InputError
from helpers.plots.style import canvas
from helpers.progress import NOTEBOOK_VARIABLE
from helpers.results import serialize_settings
from helpers.run import record
from helpers.run.record import check
from helpers.study import Study


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


@pytest.fixture
def today(figures, monkeypatch):
    """Stand in for the description of a run, which tests change; no model is loaded for it."""
    description = {
        "model": {"name": "toy"},
        "corpora": {"text": "mini", "text fingerprint": "1"},
        "commit": "a",
        "versions": {"torch": "2.13.0"},
        "code": "first",
    }

    def describe(study):
        settings = serialize_settings(study.settings, study.results.declared)
        return {"settings": settings} | copy.deepcopy(description)

    monkeypatch.setattr(record, "describe", describe)
    makers = ("commit", "versions", "code")
    monkeypatch.setattr(results, "made_by", lambda: {key: description[key] for key in makers})
    return description


@pytest.fixture
def notebook(monkeypatch):
    """Save tables as the kernel of a notebook does, and note them in the record of the run."""

    def run(study, run_record, name, cells="", **numbers):
        with monkeypatch.context() as kernel:
            kernel.setenv(NOTEBOOK_VARIABLE, name)
            for table, number in numbers.items():
                study.save_table(pd.DataFrame({"layer": [1], "entropy": [number]}), table)
        run_record.note(name, cells)

    return run


@pytest.fixture
def run(today, notebook):
    """Run notebooks of one table each; return what the run says at its end."""

    def run(**numbers):
        study = Study(name="mine")
        with record.recorded(study) as run_record:
            for table, number in numbers.items():
                notebook(study, run_record, f"0_{table}", **{table: number})
        return run_record.outcome()

    return run


def written(figures):
    return json.loads((figures / "mine" / "run.json").read_text())


def number_in(folder, table):
    return float(pd.read_csv(folder / "mine" / "tables" / f"{table}.csv")["entropy"][0])


def test_record_of_a_first_run(run, figures):
    outcome = run(entropy=4.0, random_entropy=1.0)
    assert outcome.startswith("2 tables and 0 figures; tables: 2 new; all verdicts agree. ")
    assert number_in(figures, "entropy") == 4.0
    assert written(figures)["notebooks"] == {
        "0_random_entropy": {"tables": ["random_entropy"], "figures": [], "cells": ""},
        "0_entropy": {"tables": ["entropy"], "figures": [], "cells": ""},
    }


def test_record_of_a_figure_for_papers_has_its_page_for_a_column(today, figures, monkeypatch):
    study = Study(name="mine", figures="pdf")
    with record.recorded(study) as run_record:
        with monkeypatch.context() as kernel:
            kernel.setenv(NOTEBOOK_VARIABLE, "02")
            figure = canvas(2.0, "Figure 2 · Attention")
            figure.subplots()
            figure.draw_for_column = lambda: figure
            study.save_figure(figure, "fig2")
        run_record.note("02")
    written_files = {path.name for path in (figures / "mine").glob("fig2*")}
    assert written_files == {"fig2.png", "fig2.svg", "fig2.pdf", "fig2_column.pdf"}


def test_record_of_the_same_bytes_leaves_everything(run, today, figures):
    run(entropy=4.0)
    before = (figures / "mine" / "run.json").read_bytes()
    today["commit"] = "b"
    today["versions"] = {"torch": "2.13.1"}
    assert "tables: 1 identical; all verdicts agree" in run(entropy=4.0)
    assert (figures / "mine" / "run.json").read_bytes() == before


def test_record_of_rounding_leaves_the_results_folder(run, today, figures, tmp_path):
    run(entropy=4.0, random_entropy=1.0)
    before = {path: path.read_bytes() for path in figures.rglob("*.*") if path.is_file()}
    today["commit"] = "b"
    outcome = run(entropy=4.0001, random_entropy=1.0)
    assert "tables: 1 identical; 1 rounding in averages (0.0001 in entropy.csv)" in outcome
    assert "all verdicts agree" in outcome and "stay as they were" in outcome
    assert str(tmp_path / "build" / "mine" / "results") in outcome
    assert before == {path: path.read_bytes() for path in figures.rglob("*.*") if path.is_file()}
    computed = pd.read_csv(tmp_path / "build/mine/results/tables/entropy.csv")
    assert computed["entropy"][0] == 4.0001


def test_record_of_more_than_rounding_writes_every_table(run, figures):
    run(entropy=4.0, random_entropy=1.0)
    outcome = run(random_entropy=1.00001, entropy=4.1)
    assert "1 different in averages (0.1 in entropy.csv)" in outcome
    assert f"They are now in {figures / 'mine'}" in outcome
    assert (number_in(figures, "entropy"), number_in(figures, "random_entropy")) == (4.1, 1.00001)


def test_record_of_rounding_by_other_code_writes_every_table(run, today, figures):
    run(entropy=4.0)
    today["code"] = "second"
    run(entropy=4.0001)
    assert number_in(figures, "entropy") == 4.0001
    assert written(figures)["code"] == "second"


def test_record_of_other_cells_writes_every_table(today, notebook, figures):
    for cells, number in (("first", 4.0), ("second", 4.0001)):
        study = Study(name="mine")
        with record.recorded(study) as run_record:
            notebook(study, run_record, "03", cells, entropy=number)
    assert number_in(figures, "entropy") == 4.0001


def test_record_of_the_same_bytes_by_other_code_names_it(run, today, figures):
    run(entropy=4.0)
    today |= {"commit": "b", "code": "second"}
    assert "tables: 1 identical; all verdicts agree" in run(entropy=4.0)
    assert (written(figures)["commit"], written(figures)["code"]) == ("b", "second")


def test_record_of_a_part_keeps_the_other_entries(run, today, figures):
    run(entropy=4.0, random_entropy=1.0)
    today["commit"] = "b"
    run(entropy=5.0)
    entries = written(figures)["notebooks"]
    assert written(figures)["commit"] == "b"
    assert "commit" not in entries["0_entropy"] and entries["0_random_entropy"]["commit"] == "a"
    today["commit"] = "c"
    run(random_entropy=2.0)
    entries = written(figures)["notebooks"]
    assert written(figures)["commit"] == "c"
    assert entries["0_entropy"]["commit"] == "b" and "commit" not in entries["0_random_entropy"]


def test_notebooks_of_a_run_read_its_own_tables(today, notebook, monkeypatch, run):
    run(entropy=4.0, random_entropy=1.0)
    study = Study(name="mine")
    with record.recorded(study) as run_record:
        notebook(study, run_record, "0_entropy", entropy=4.0001)
        with monkeypatch.context() as kernel:
            kernel.setenv(NOTEBOOK_VARIABLE, "next")
            tables = Study(name="mine").tables()
    assert tables["entropy"]["entropy"][0] == 4.0001
    assert tables["random_entropy"]["entropy"][0] == 1.0
    assert Study(name="mine").tables()["entropy"]["entropy"][0] == 4.0


def test_earlier_table_stays_listed_with_its_commit(today, notebook, monkeypatch, figures):
    def rerun(commit, computes):
        today["commit"] = commit
        study = Study(name="mine")
        with record.recorded(study) as run_record:
            notebook(study, run_record, "08", **dict.fromkeys(computes, 4.0))
            with monkeypatch.context() as kernel:
                kernel.setenv(NOTEBOOK_VARIABLE, "08")
                shown = study.results.earlier_table("pruning")
            run_record.note("08")
        return shown

    assert rerun("a", ["ablation"]) is None
    rerun("b", ["ablation", "pruning"])
    for commit in "cd":
        shown = rerun(commit, ["ablation"])
        assert shown["entropy"][0] == 4.0
        assert set(Study(name="mine").tables()) == {"ablation", "pruning"}
    entry = written(figures)["notebooks"]["08"]
    assert entry["tables"] == ["ablation"] and entry["earlier tables"] == {"pruning": "b"}


def test_a_run_on_an_edited_text_leaves_the_results_of_before(run, today, figures):
    run(entropy=4.0)
    before = (figures / "mine" / "run.json").read_bytes()
    today["corpora"] = {"text": "mini", "text fingerprint": "2"}
    with pytest.raises(InputError, match=r"mine: .*text fingerprint.* --name$"):
        run(entropy=4.5)
    assert number_in(figures, "entropy") == 4.0
    assert (figures / "mine" / "run.json").read_bytes() == before


def test_tables_of_a_run_without_fingerprints_still_count(run, today, figures):
    """A results folder of earlier code names its corpora and has no fingerprints."""
    today["corpora"] = {"text": "mini"}
    run(entropy=4.0, random_entropy=1.0)
    today["corpora"] = {"text": "mini", "text fingerprint": "1"}
    run(entropy=4.0001)
    assert set(Study(name="mine").tables()) == {"entropy", "random_entropy"}
    assert number_in(figures, "entropy") == 4.0001  # but do not stand for today's


def test_tables_saved_in_jupyterlab_count_after_a_run(run, today, figures):
    run(entropy=4.0, random_entropy=1.0)
    today["commit"] = "b"
    lab = Study(name="mine")
    for table, number in (("entropy", 4.2), ("relative_position", 0.5)):
        lab.save_table(pd.DataFrame({"layer": [1], "entropy": [number]}), table)
    assert set(Study(name="mine").tables()) == {"entropy", "random_entropy", "relative_position"}
    assert number_in(figures, "entropy") == 4.2
    entries = written(figures)["notebooks"]
    assert entries["0_entropy"]["tables"] == []
    assert entries["interactive"] == {
        "tables": ["entropy", "relative_position"], "figures": [],
        "commit": "b", "versions": today["versions"], "code": "first",
    }  # fmt: skip
    run(entropy=4.2)
    entries = written(figures)["notebooks"]
    assert entries["0_entropy"]["tables"] == ["entropy"]
    assert entries["interactive"]["tables"] == ["relative_position"]


def test_save_description_leaves_the_record_of_a_run(run, figures):
    run(entropy=4.0)
    before = (figures / "mine" / "run.json").read_bytes()
    record.save_description(Study(name="mine"))
    assert (figures / "mine" / "run.json").read_bytes() == before


def test_tables_saved_in_jupyterlab_count_beside_a_run(today, notebook, figures):
    study = Study(name="mine")
    with record.recorded(study) as run_record:
        Study(name="mine").save_table(pd.DataFrame({"layer": [1]}), "relative_position")
        notebook(study, run_record, "03", entropy=4.0)
    assert set(Study(name="mine").tables()) == {"entropy", "relative_position"}


def test_tables_saved_in_jupyterlab_before_a_run_count(run, figures, today):
    Study(name="mine").save_table(pd.DataFrame({"layer": [1]}), "relative_position")
    run(entropy=4.0)
    assert set(Study(name="mine").tables()) == {"entropy", "relative_position"}


def test_description_has_the_fingerprints_of_the_text_and_its_parses(tmp_path, tiny_folder):
    text = tmp_path / "mini.txt"
    descriptions = []
    for words in ("A cat sat.\nA dog sat.", "A cat sat.\nA cow sat."):
        text.write_text(words)
        study = Study(model=str(tiny_folder("bert")), text=str(text))
        descriptions.append(record.describe(study)["corpora"])
    before, after = descriptions
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["text fingerprint", "treebank fingerprint"]


def test_recorded_allows_one_run_of_a_name(today):
    study = Study(name="mine")
    again = record.recorded(Study(name="mine"))
    with record.recorded(study), pytest.raises(InputError, match=r"^mine: .* --name"), again:
        pass
    with record.recorded(study):
        pass


def test_a_run_that_fails_in_its_first_notebook_leaves_nothing(
    today, notebook, figures, tmp_path, monkeypatch
):
    (figures / "mine").mkdir(parents=True)
    (figures / "mine" / "notes.md").touch()
    monkeypatch.setenv(NOTEBOOK_VARIABLE, "half")
    for finished in (False, True):
        study = Study(name="mine")
        with pytest.raises(ZeroDivisionError), record.recorded(study) as run_record:
            if finished:
                notebook(study, run_record, "00_zero", entropy=4.0)
            study.save_table(pd.DataFrame({"layer": [1]}), "half")
            raise ZeroDivisionError
        names = {path.name for path in figures.rglob("*.*") if path.is_file()}
        assert names == ({"notes.md", "run.json", "entropy.csv"} if finished else {"notes.md"})
        assert (tmp_path / "build/mine/results/tables/half.csv").is_file()


def test_a_run_killed_while_it_copies_lists_no_table_of_two_runs(run, figures, monkeypatch):
    run(entropy=4.0, random_entropy=1.0)
    copy_file = record.write_atomic

    def killed(path, content):
        copy_file(path, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(record, "write_atomic", killed)
        run(entropy=5.0)
    assert number_in(figures, "entropy") == 5.0
    assert list(Study(name="mine").tables()) == ["random_entropy"]
    run(entropy=5.0)
    assert set(Study(name="mine").tables()) == {"entropy", "random_entropy"}


def refused(tiny_folder, **settings):
    usual = {"model": str(tiny_folder("bert")), "device": "cpu", "max_tokens": 48}
    with pytest.raises(InputError) as error:
        list(check(Study(**{**usual, **settings}), []))
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
    assert "TRAIN.tsv,TEST.tsv" in refused(tiny_folder, task=str(tmp_path / "test.tsv"))


ROW = "{}\t{}\t_\tX\t_\t_\t{}\tdep\t_\t_\n"
TREE = ROW.format(1, "Go", 0) + ROW.format(2, "on", 1) + "\n"
COMMENTS = 50 * "## A comment.\n"
BRACKETS = "# a story\n[Ann]1 lost [her]1 ring.\n"


@pytest.mark.parametrize(
    ("setting", "name", "content", "fault"),
    [
        ("text", "empty.txt", "", "paragraphs"),
        ("treebank", "empty.conllu", "", "no sentence; expected"),
        ("treebank", "columns.conllu", 50 * TREE + "1\tGo\n", "151: expected 10 columns, found 2"),
        ("treebank", "order.conllu", 50 * TREE + ROW.format(2, "on", 0), "151: expected word 1"),
        ("treebank", "roots.conllu", TREE + TREE.replace("\t1\tdep", "\t0\tdep"), "5: a second"),
        ("coref", "open.txt", COMMENTS + BRACKETS.replace("]1 ring", " ring"), "52: '['"),
        ("coref", "none.txt", "# a story\nIt rained.\n", "coreference annotation"),
    ],
)  # fmt: skip
def test_check_reads_files_of_the_user(setting, name, content, fault, tiny_folder, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    study = Study(model=str(tiny_folder("bert")), max_tokens=48, **{setting: str(path)})
    declared = {"text": "segments", "treebank": "sentences", "coref": "coref"}[setting]
    with pytest.raises(InputError) as error:
        list(check(study, [declared]))
    assert str(error.value).startswith(f"{path}:") and fault in str(error.value)
    assert "\n" not in str(error.value)
