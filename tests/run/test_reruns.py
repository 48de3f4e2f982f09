"""The folder of a run: no other run uses it, and a rerun leaves it as it was."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

from helpers.__main__ import main
from helpers.run import notebooks

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["--max-tokens", "48"]


@pytest.fixture
def workplace(tmp_path, tiny_folder, figures, monkeypatch):
    """Make models and texts that have the same names; no notebook is run."""
    for model in ("x/tiny", "y/tiny", "x/minilm"):
        shutil.copytree(tiny_folder("bert"), tmp_path / model)
    for folder in ("a", "b", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mini.txt").write_text("A paragraph of a text.\nAnother one of it.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    monkeypatch.setattr("helpers.run.check.check_inputs", lambda *_: [])
    monkeypatch.setattr("beyond.pages.report.write_run_report", lambda *_, **__: "report")
    # Nothing is loaded that it could free, and among the objects of all tests it takes long.
    monkeypatch.setattr("helpers.__main__.gc", mock.Mock())

    def run(paths, settings, results):
        results.save_table(pd.DataFrame({"layer": [1]}), "anything")

    monkeypatch.setattr(notebooks, "run", run)
    return tmp_path


def name_of_run(capsys, *arguments):
    capsys.readouterr()
    assert main(["run", "--only", "03", *arguments]) == 0
    return re.search(r"^(\S+): 1 tables", capsys.readouterr().out, re.M)[1]


def from_subfolder(arguments):
    """Let relative paths among arguments count from a folder further down."""
    return [f"../{argument}" if "/" in argument else argument for argument in arguments]


@pytest.mark.parametrize(
    ("first", "second", "label"),
    [
        (SHORT, ["--model", "x/minilm", *SHORT], "minilm--max-tokens-48"),
        (["--model", "x/tiny", *SHORT], ["--model", "y/tiny", *SHORT], "tiny--max-tokens-48"),
        (["--text", "a/mini.txt"], ["--text", "b/mini.txt"], "minilm--mini"),
    ],
)
def test_run_name_has_the_digest_of_the_settings_and_not_of_the_path(
    first, second, label, workplace, capsys, monkeypatch
):
    first_name = name_of_run(capsys, *first)
    second_name = name_of_run(capsys, *second)
    assert first_name != second_name
    for name in (first_name, second_name):
        assert re.fullmatch(label + "-[0-9a-f]{6}", name)
    monkeypatch.chdir(workplace / "elsewhere")  # the same files by other paths
    assert name_of_run(capsys, *from_subfolder(second)) == second_name
    assert name_of_run(capsys, *from_subfolder(first)) == first_name
    sizes = SHORT if "48" in first else []
    third_name = name_of_run(capsys, "--text", "mini.txt", *sizes)  # another text of that name
    assert third_name not in (first_name, second_name)


def test_a_name_that_a_committed_run_has_is_refused(workplace, figures, capsys):
    assert name_of_run(capsys, "--name", "mine", "--text", "a/mini.txt") == "mine"
    figures.mkdir()
    (workplace / "build" / "mine").rename(figures / "mine")
    assert main(["run", "--only", "03", "--name", "mine", "--text", "b/mini.txt"]) == 2
    error = capsys.readouterr().err
    why = r"\(text is '.*a/mini.txt' there, '.*b/mini.txt' here\)"
    assert re.fullmatch(f"error: --name mine: .*/mine has .*{why}; .*\n", error)
    assert "another name" in error
    assert name_of_run(capsys, "--name", "mine", "--text", "a/mini.txt", "--stream") == "mine"


def test_a_committed_run_is_replaced_with_the_flag_only(workplace, figures, monkeypatch):
    monkeypatch.setattr("beyond.pages.publish.COMMITTED", ("mine",))
    arguments = ["run", "--only", "03", "--name", "mine"]
    assert main(arguments) == 0
    assert not figures.exists()
    assert main([*arguments, "--publish"]) == 0
    committed = figures / "mine" / "tables" / "anything.csv"
    committed.write_text("layer\n7\n")
    of_another_run = committed.with_name("of_another_run.csv")
    of_another_run.write_text("layer\n")
    assert main(arguments) == 0
    assert committed.read_text() == "layer\n7\n" and of_another_run.exists()
    assert main([*arguments, "--publish"]) == 0
    assert committed.read_text() == "layer\n1\n" and not of_another_run.exists()


@pytest.mark.default_model  # on which the command itself loads no model
def test_a_committed_run_done_again_in_a_clone_leaves_nothing_to_commit(tmp_path):
    """Its last line says that the tables agree; what the machine computed is in ``build/``."""
    environment = {key: value for key, value in os.environ.items() if "ATTENTION_" not in key}
    environment["ATTENTION_PROFILE"] = "small"
    environment["ATTENTION_CACHE"] = str(tmp_path / "cache")
    for role in ("AUTHOR", "COMMITTER"):
        environment[f"GIT_{role}_NAME"] = environment[f"GIT_{role}_EMAIL"] = "t@example.org"

    def call(folder, *command):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path / folder,
            env={**environment, "PYTHONPATH": tmp_path / folder},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    def run(folder, *arguments):
        command = [sys.executable, "-m", "helpers", "run", "--only", "03", *arguments]
        *_, last = call(folder, *command)
        return last, call(folder, "git", "status", "--porcelain")

    for part in ("beyond", "helpers", "notebooks"):  # with the compiled modules, which git ignores
        shutil.copytree(ROOT / part, tmp_path / "first" / part)
    shutil.copy(ROOT / ".gitignore", tmp_path / "first")
    call("first", "git", "init", "-q")
    for command in (["add", "-A"], ["commit", "-qm", "Code"]):
        call("first", "git", *command)
    committed = ("--name", "mpnet-ewt")  # which is in the list of committed runs
    last, _ = run("first", *committed, "--publish")
    assert "figures/mpnet-ewt" in last
    for command in (["add", "-A"], ["commit", "-qm", "A run"], ["clone", "-q", ".", "../clone"]):
        call("first", "git", *command)
    # The same files with their times, so that the compiled modules are theirs, too.
    shutil.copytree(tmp_path / "first/helpers", tmp_path / "clone/helpers", dirs_exist_ok=True)
    last, status = run("clone", *committed)
    assert "tables agree with the committed run" in last and status == []
    last, status = run("clone", "--name", "mine")
    assert "build/mine" in last and status == []
