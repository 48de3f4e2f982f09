"""The command line: what it takes, what it prints, and its exit status."""

import dataclasses
import re
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from unittest import mock

import pandas as pd
import pytest
from papermill.exceptions import PapermillExecutionError

from beyond.pages.supports import supports
from helpers.__main__ import main
from helpers.model.encoder import load_encoder
from helpers.run import notebooks
from helpers.settings import Settings, flag


@pytest.fixture
def calls(monkeypatch, figures):
    """Collect the runs that the command starts: notebooks, settings and name; nothing runs."""
    calls = []

    def run(paths, settings, results):
        numbers = [path.name[:2] for path in paths]
        calls.append((numbers, dataclasses.asdict(settings), results.name))
        results.save_table(pd.DataFrame({"layer": [1]}), "anything")

    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    monkeypatch.setattr(notebooks, "run", run)
    return calls


def fails(capsys, *arguments):
    """Run a command that is refused; return the one line that it prints."""
    assert main(list(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err.strip()


NUMBERS = [path.name[:2] for path in notebooks.notebooks()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"minilm": NUMBERS[:7]}),
        (["--extended"], {"minilm": NUMBERS[:7], "minilm-later": NUMBERS[7:]}),
        (["--only", "9"], {"minilm-later": ["09"]}),
        (["--only", "03_focused_vs_broad"], {"minilm": ["03"]}),
        (["--only", "3,01"], {"minilm": ["01", "03"]}),
        (["--only", "00-02, 5"], {"minilm": ["00", "01", "02", "05"]}),
    ],
)
def test_run_chooses_notebooks_and_the_default_settings(
    arguments, expected, calls, figures, capsys
):
    assert main(["run", *arguments]) == 0
    defaults = dataclasses.asdict(Settings())
    assert calls == [(numbers, defaults, name) for name, numbers in expected.items()]
    output = capsys.readouterr().out
    for name in expected:
        assert f"report: {figures.parent / 'build' / name / 'index.html'}" in output
        assert (figures.parent / "build" / name / "tables" / "anything.csv").is_file()
    assert not figures.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND; see python -m helpers --help"),
        (["fly"], "invalid choice: 'fly'"),
        (
            ["run", "--sgments", "3"],
            "unrecognized arguments: --sgments 3; did you mean --segments?",
        ),
        (["run", "--zzz"], "unrecognized arguments: --zzz; see"),
    ],
)
def test_main_refuses_unknown_arguments_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_dry_run_lists_what_a_run_would_extract(figures, tiny_folder, tmp_path, capsys):
    text = tmp_path / "my.txt"
    text.write_text("\n".join(f"The cat {number} sat on a mat." for number in range(40)))
    options = ["--text", str(text), "--model", str(tiny_folder("bert")), "--max-tokens", "32"]
    before = set(tmp_path.rglob("*.safetensors"))
    assert main(["run", "--dry-run", "--only", "00,03", *options]) == 0
    inputs, _, support = capsys.readouterr().out.partition("what this model supports:\n")
    assert support.count("\n") == len(supports(load_encoder(options[3])))
    *stores, in_all, disk = inputs.splitlines()
    first_lines = [line for line in stores if not line.startswith("  ")]
    assert [re.sub(r"\d+ MB", "MB", line) for line in first_lines] == [
        "language: English",
        "my: 12 examples, MB to extract",
        "my-silver: 40 examples, MB to extract",
        "coreference-sample: 66 examples, MB to extract",
    ]
    assert "GB to extract in all" in in_all and "GB are free" in disk
    assert sum(line.startswith("  the first: ") for line in stores) == 3
    assert not list(figures.rglob("*"))
    assert set(tmp_path.rglob("*.safetensors")) == before


INVALID = [
    ("--only", "90", "the series has 00, 01"),
    ("--only", "05-90", "the series has 00, 01"),
    ("--only", "5-3", "the series has 00, 01"),
    ("--only", "1,99", "the series has 00, 01"),
    ("--only", "abc", "the series has 00, 01"),
    ("--only", ",", "the series has 00, 01"),
]
CORPORA = ("--text", "--treebank", "--coref", "--vectors", "--task", "--arct")


@pytest.mark.parametrize(("option", "value", "message"), INVALID)
def test_run_refuses_invalid_values_in_one_line(option, value, message, calls, capsys):
    assert message in fails(capsys, "run", option, value)
    assert not calls


@pytest.mark.parametrize("option", CORPORA)
def test_run_refuses_missing_files_in_one_line(option, calls, capsys):
    assert "no/such/corpus.txt" in fails(capsys, "run", option, "no/such/corpus.txt")
    assert not calls


def test_run_refuses_invalid_values_before_it_imports_torch(own_cache):
    code = """
import sys
from helpers.__main__ import main
print(main(["run", "--only", "99"]), main(["run", "--text", "no/such.txt"]))
print({"torch", "anywidget", "spacy"} & set(sys.modules))
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output == "2 2\nset()\n"


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--text", "README.md"]])
@pytest.mark.parametrize("parent", ["build", "figures"])
def test_run_refuses_a_folder_that_no_run_wrote_before_it_reads_an_input(
    parent, arguments, calls, capsys, figures, monkeypatch
):
    monkeypatch.setattr("helpers.run.check.check_inputs", mock.Mock(side_effect=AssertionError))
    page = figures.parent / parent / "screens" / "viewer.png"
    page.parent.mkdir(parents=True)
    page.touch()
    error = fails(capsys, "run", "--only", "00", "--name", "screens", *arguments)
    assert f"{page.parent}: " in error
    assert page.is_file() and not calls


@pytest.mark.parametrize("name", ["book", "compare", "student"])
def test_run_refuses_the_name_of_another_folder_of_build(name, calls, capsys):
    assert f"--name {name}: " in fails(capsys, "run", "--name", name)
    assert not calls


def test_run_publishes_only_committed_runs(calls, capsys):
    error = fails(capsys, "run", "--name", "mine", "--publish")
    assert "--publish: mine is none of the committed runs" in error
    assert not calls


class InterruptedWhenFreed:
    """An object that only the garbage collector frees, and Ctrl-C at that moment."""

    def __init__(self):
        self.cycle = self

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_between_the_check_and_the_first_notebook_is_not_lost(
    figures, capsys, monkeypatch
):
    """Python drops the KeyboardInterrupt of a finalizer."""
    execute = mock.Mock()
    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(notebooks, "started_kernel", lambda *_: nullcontext())
    monkeypatch.setattr(notebooks, "write_html", mock.Mock())
    monkeypatch.setattr("beyond.pages.report.write_run_report", mock.Mock())
    monkeypatch.setattr("helpers.run.check.check_inputs", lambda *_: [str(InterruptedWhenFreed())])
    assert main(["run", "--only", "03", "--max-tokens", "48"]) == 130
    assert not execute.called
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted; run again")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1", "tcp://127.0.0.1:99999"])
def test_run_refuses_an_absent_scheduler(address, calls, capsys):
    error = fails(capsys, "run", "--only", "00", "--scheduler", address)
    assert f"--scheduler {address}: does not answer" in error
    assert "tcp://HOST:8786" in error
    assert not calls


@pytest.mark.parametrize("name", ["CACHE", "BUILD"])
def test_run_refuses_folders_that_cannot_be_written_to(name, calls, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "inside"
    monkeypatch.setenv(f"ATTENTION_{name}", str(folder))
    error = fails(capsys, "run", "--only", "00")
    assert error.startswith(f"error: {folder}/minilm: cannot be written (Not a directory; ")
    assert f"ATTENTION_{name}" in error
    assert not calls


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ("ModelError", 2, "error: 00_extract: here: not a model"),
        ("KeyError", 1, "KeyError: here: not a model"),
    ],
)
def test_run_prints_the_error_of_a_notebook(error, status, message, monkeypatch, capsys, tmp_path):
    """An error of the user's arrives from the kernel as the one line of the command."""

    def execute(*_, **__):
        raise PapermillExecutionError(3, 1, "", error, "here: not a model", [])

    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path))
    monkeypatch.setattr("papermill.execute_notebook", execute)
    assert main(["run", "--only", "00"]) == status
    assert f"{message}\n" in capsys.readouterr().err


@pytest.fixture
def parameters(monkeypatch, figures):
    """Collect the parameters of each notebook, by its number; nothing is executed."""
    by_number = {}

    def execute(path, output, **options):
        by_number[path.name[:2]] = options["parameters"]
        shutil.copy(path, output)

    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(notebooks, "started_kernel", lambda *_: nullcontext())
    monkeypatch.setattr(notebooks, "write_html", lambda *_: None)
    monkeypatch.setattr("helpers.run.check.check_files", lambda *_: None)
    monkeypatch.setattr("helpers.run.check.check_inputs", lambda *_: [])
    monkeypatch.setattr("beyond.papers.registry.check_inputs", lambda *_: None)
    monkeypatch.setattr("beyond.pages.supports.check_supported", lambda *_: None)
    monkeypatch.setattr("beyond.per_example.save_per_example", lambda *_: [])
    monkeypatch.setattr("beyond.pages.report.example_viewers", lambda *_: [])
    # No weights are loaded that it could free, and among the objects of all tests it takes long.
    monkeypatch.setattr("helpers.__main__.gc", mock.Mock())
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    return by_number


# A value for each setting, by its type, or by its name if it does not take any text.
VALUES_BY_TYPE = {str: "x", str | None: "x", int: 9, int | None: 9, bool: True}
VALUES_BY_NAME = {"lens": "norm", "dtype": "float16", "figures": "pdf"}


@pytest.mark.parametrize("setting", dataclasses.fields(Settings), ids=lambda setting: setting.name)
def test_every_flag_reaches_every_notebook(setting, parameters):
    value = VALUES_BY_NAME.get(setting.name, VALUES_BY_TYPE[setting.type])
    arguments = [flag(setting.name)]
    if value is not True:
        arguments.append(str(value))
    if setting.name == "entropy_matched":
        arguments += ["--random-init", "7"]
    only = "00,01,04" if setting.name == "pairs" else ""  # the others need trees
    assert main(["run", "--extended", "--only", only, *arguments]) == 0
    for path in notebooks.notebooks(only):
        values = parameters[path.name[:2]]
        taken = values if setting.name in notebooks.declared(path) else values["settings"]
        assert taken[setting.name] == value


def test_all_on_the_command_line_is_no_limit(parameters):
    assert main(["run", "--only", "00,07", "--segments", "all", "--task-examples", "all"]) == 0
    assert parameters["00"]["segments"] is None
    values = parameters["07"] | parameters["07"]["settings"]
    assert values["segments"] is None and values["task_examples"] is None
    assert "sentences" not in parameters["00"]  # its default stands in the notebook


def test_a_run_with_default_settings_has_no_parameters(parameters):
    """Its executed notebooks can therefore be committed."""
    assert main(["run"]) == 0
    assert parameters == {number: {} for number in NUMBERS[:7]}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--segments", "many"),
        ("--seed", "-1"),
        ("--seeds", "0"),
        ("--segments", "0"),
        ("--minimum-count", "0"),
    ],
)
def test_a_number_that_no_run_can_use_is_refused_at_once(option, value, parameters, capsys):
    error = fails(capsys, "run", option, value)
    assert error.startswith(f"error: {option} {value}: ")
    assert not parameters


def test_run_takes_a_size_that_no_chosen_notebook_has(parameters):
    assert main(["run", "--only", "03", "--gradient-segments", "8"]) == 0
    assert set(parameters) == {"03"}


def test_run_refuses_a_corpus_that_no_chosen_notebook_takes(parameters, capsys):
    error = fails(capsys, "run", "--only", "03", "--treebank", "mine.conllu")
    assert "--treebank mine.conllu: " in error and "(00" in error
    assert not parameters
