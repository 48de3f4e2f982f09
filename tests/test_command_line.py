"""The command line: what it takes, what it prints, and its exit status."""

import dataclasses
import re
import subprocess
import sys
from itertools import chain
from unittest import mock

import pandas as pd
import pytest
from store_tools import content, extract_small, flip

from helpers import run
from helpers.__main__ import main
from helpers.errors import InputError
from helpers.run import NotebookFailed, declared, list_notebooks
from helpers.settings import Settings, flag


@pytest.fixture
def calls(monkeypatch, figures):
    """Collect the runs that the command starts: notebooks, settings and name; nothing runs."""
    calls = []

    def record(paths, settings, results, parameters):
        numbers = [path.name[:2] for path in paths]
        calls.append((numbers, dataclasses.asdict(settings), results.name))
        results.save_table(pd.DataFrame({"layer": [1]}), "anything")

    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    monkeypatch.setattr(run, "run", record)
    return calls


def fails(capsys, *arguments):
    """Run a command that is refused; return the one line that it prints."""
    assert main(list(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err.strip()


NUMBERS = [path.name[:2] for path in list_notebooks()]


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
        assert f"{name}: 1 tables are in {figures.parent / 'build' / name}" in output
        assert (figures.parent / "build" / name / "tables" / "anything.csv").is_file()
    assert not figures.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run", "--sgments", "3"], "unrecognized arguments: --sgments 3"),
        (["run", "-p", "task"], "expected 2 arguments"),
    ],
)
def test_main_refuses_unknown_arguments_in_two_lines(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("usage: ")
    assert error.count("\n") == 2
    assert message in error


def test_dry_run_lists_what_a_run_would_extract(figures, tiny_folder, tmp_path, capsys):
    text = tmp_path / "my.txt"
    text.write_text("\n".join(f"The cat {number} sat on a mat." for number in range(40)))
    options = ["--text", str(text), "--model", str(tiny_folder("bert")), "--max-tokens", "32"]
    before = set(tmp_path.rglob("*.safetensors"))
    assert main(["run", "--dry-run", "--only", "00,03", *options]) == 0
    inputs, _, support = capsys.readouterr().out.partition("what this model supports:\n")
    answers = [line for line in support.splitlines() if line.startswith(" ")]
    assert len(answers) == 5 and all(line.endswith(": yes") for line in answers[2:])
    *stores, in_all, disk = inputs.splitlines()
    first_lines = [line for line in stores if not line.startswith("  ")]
    assert [re.sub(r"\d+ MB", "MB", line) for line in first_lines] == [
        "language: English",
        "my: 20 examples, MB to extract",
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
CORPORA = ("--text", "--treebank", "--coref", "--vectors")


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
from itertools import chain
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
    monkeypatch.setattr("helpers.run.check_inputs", mock.Mock(side_effect=AssertionError))
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


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1", "tcp://127.0.0.1:99999"])
def test_run_refuses_an_absent_scheduler(address, calls, capsys):
    error = fails(capsys, "run", "--only", "00", "--scheduler", address)
    assert f"the cluster at {address} does not answer" in error
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


@pytest.mark.parametrize(("error", "status"), [(InputError, 2), (NotebookFailed, 1)])
def test_run_prints_the_error_of_a_notebook(error, status, monkeypatch, capsys, figures):
    monkeypatch.setattr(run, "execute_all", mock.Mock(side_effect=error("00_extract: broken")))
    assert main(["run", "--only", "00"]) == status
    assert capsys.readouterr().err == "error: 00_extract: broken\n"


@pytest.fixture
def parameters(monkeypatch, figures):
    """Collect the parameters of each notebook, by its number; nothing is executed."""
    by_number = {}

    def execute(stages, finished):
        for job in chain(*stages):
            by_number[job.notebook.name[:2]] = job.parameters

    monkeypatch.setattr(run, "execute_all", execute)
    monkeypatch.setattr(run, "check_inputs", lambda *_: [])
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    return by_number


# A value for each setting, by its type, or by its name if it does not take any text.
VALUES_BY_TYPE = {str: "x", str | None: "x", int: 9, int | None: 9, bool: True}
VALUES_BY_NAME = {"lens": "norm", "dtype": "float16", "formats": "png,pdf"}


@pytest.mark.parametrize("setting", dataclasses.fields(Settings), ids=lambda setting: setting.name)
def test_every_flag_reaches_every_notebook(setting, parameters):
    value = VALUES_BY_NAME.get(setting.name, VALUES_BY_TYPE[setting.type])
    arguments = [flag(setting.name)]
    if value is not True:
        arguments.append(str(value))
    only = "00,01,04" if setting.name == "pairs" else ""  # the others need trees
    assert main(["run", "--extended", "--only", only, *arguments]) == 0
    for path in list_notebooks(only):
        values = parameters[path.name[:2]]
        taken = values if setting.name in declared(path) else values["settings"]
        assert taken[setting.name] == value


def test_all_on_the_command_line_is_no_limit(parameters):
    assert main(["run", "--only", "00,07", "--segments", "all"]) == 0
    assert parameters["00"]["segments"] is None
    assert parameters["07"]["settings"]["segments"] is None
    assert "sentences" not in parameters["00"]  # its default stands in the notebook


def test_a_run_with_default_settings_has_no_parameters(parameters):
    """Its executed notebooks can therefore be committed."""
    assert main(["run"]) == 0
    assert not any(parameters[number] for number in NUMBERS[:7])


def test_a_parameter_reaches_the_notebooks_that_declare_it(parameters):
    """It counts for the name of the run."""
    assert main(["run", "--only", "03,09,11", "-p", "arct", "mine"]) == 0
    assert parameters["09"]["arct"] == "mine"
    assert "arct" not in parameters["11"]
    names = {parameters[number]["settings"]["name"] for number in ("03", "09", "11")}
    assert len(names) == 1 and names.pop().startswith("minilm--arct-mine-")


def test_run_refuses_a_parameter_that_no_chosen_notebook_declares(parameters, capsys):
    assert "-p arct: " in fails(capsys, "run", "--only", "03,07", "-p", "arct", "mine")
    assert "-p task_examplse: " in fails(capsys, "run", "-p", "task_examplse", "3")
    assert "give it as --seed" in fails(capsys, "run", "-p", "seed", "3")
    assert not parameters


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
    assert "03" in parameters


def test_run_refuses_a_corpus_that_no_chosen_notebook_takes(parameters, capsys):
    error = fails(capsys, "run", "--only", "03", "--treebank", "mine.conllu")
    assert "--treebank mine.conllu: " in error
    assert not parameters


def test_replicate_refuses_another_model_than_the_paper_s(tiny_folder, parameters, capsys):
    error = fails(capsys, "replicate", "--model", str(tiny_folder("bert")))
    assert "replicate needs the paper's model" in error
    assert not parameters


def test_compare_executes_the_page_on_the_folders_of_runs(figures, monkeypatch, capsys):
    stages = []
    monkeypatch.setattr(run, "execute_all", stages.extend)
    folders = [figures.parent / "build" / "mine", figures / "minilm"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    assert main(["compare", "mine", "minilm"]) == 0
    ((job,),) = stages
    assert job.parameters == {"runs": [str(folder) for folder in folders]}
    assert job.html == figures.parent / "build" / "compare" / "mine-vs-minilm" / "index.html"
    assert str(job.html) in capsys.readouterr().out
    assert "no run of this name" in fails(capsys, "compare", "mine", "another")


@pytest.fixture
def stores(own_cache, encoder, tiny_encoder):
    return [
        extract_small(store_encoder, own_cache, count).folder
        for store_encoder, count in ((encoder, 8), (tiny_encoder("electra"), 4), (encoder, 4))
    ]


def test_verify_repair_removes_damaged_files_that_a_run_makes_again(
    stores, own_cache, encoder, capsys
):
    before = content(stores[0])
    assert main(["verify"]) == 0
    flip(stores[0] / "shard-00000.safetensors")
    for path in (stores[1] / "manifest.json", stores[2] / "examples.jsonl"):
        path.write_bytes(path.read_bytes()[:50])
    assert main(["verify"]) == 1
    capsys.readouterr()
    assert main(["verify", "--repair"]) == 1
    output = capsys.readouterr().out
    assert output.count("  removed; the next run that needs it makes it again\n") == 2
    assert output.count(f"  not repaired: {stores[1] / 'manifest.json'}: ") == 1
    assert main(["verify", stores[0].name]) == 1
    extract_small(encoder, own_cache, 8)
    assert content(stores[0]) == before
    assert main(["verify", stores[0].name]) == 0
