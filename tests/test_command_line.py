"""The command line: what it takes, what it prints, and its exit status."""

import dataclasses
import re
import shutil
import subprocess
import sys
import time

import pytest
from papermill.exceptions import PapermillExecutionError

from helpers.__main__ import main
from helpers.run import notebooks
from helpers.settings import flag
from helpers.study import Study


@pytest.fixture
def ran(monkeypatch, figures):
    """Return what the pipeline is asked to run; nothing runs."""
    calls = []

    def run(paths, study, _):
        calls.append(([path.name[:2] for path in paths], dataclasses.asdict(study), study.slug))
        return figures.parent / "build" / study.slug

    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    monkeypatch.setattr(notebooks, "run", run)
    monkeypatch.setattr(notebooks, "check_settings", lambda *_: set())  # no corpus is read
    return calls


def fails(capsys, *arguments):
    """Return the one line that a command prints before it exits with 2."""
    assert main(list(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err.strip()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [f"{n:02}" for n in range(7)]),
        (["--extended"], [f"{n:02}" for n in range(11)]),
        (["--only", "9"], ["09"]),
        (["--only", "3,01"], ["01", "03"]),
    ],
)
def test_without_options_the_papers_own_notebooks_run_on_the_default(
    arguments, expected, ran, figures, capsys
):
    assert main(["run", *arguments]) == 0
    assert ran == [(expected, dataclasses.asdict(Study()), "minilm")]
    output = capsys.readouterr().out
    assert f"figures and tables: {figures / 'minilm'}" in output
    assert f"notebooks: {figures.parent / 'build' / 'minilm'}" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND; see python -m helpers --help"),
        (["fly"], "invalid choice: 'fly'"),
        (
            ["run", "--segments", "many"],
            "argument --segments: 'many' is not a size; give a whole number, or all",
        ),
        (["run", "--sgments", "3"], "unrecognized arguments: --sgments 3; see"),
    ],
)
def test_what_cannot_be_parsed_is_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert message in error


def test_a_dry_run_says_what_a_run_would_extract(figures, tiny_folder, tmp_path, capsys):
    (tmp_path / "my.txt").write_text("\n".join(f"The cat {n} sat on a mat." for n in range(40)))
    own = ["--text", str(tmp_path / "my.txt"), "--model", str(tiny_folder("bert"))]
    assert main(["run", "--dry-run", "--only", "00,03", *own, "--max-tokens", "32"]) == 0
    first, *stores, disk = capsys.readouterr().out.splitlines()
    assert first == (
        "my.txt: a line is a paragraph, a blank line starts a new document; one document: "
        "blocks of 4 of its 40 paragraphs stand for articles"
    )
    assert [re.sub(r"\d+ MB", "MB", line) for line in stores] == [
        "my: 12 examples, MB to extract",
        "my-silver: 40 examples, MB to extract; documents: 10",
        "coreference-sample: 66 examples, MB to extract",
    ]
    assert "GB in all" in disk and not list(figures.rglob("*"))
    assert not list(tmp_path.rglob("*.safetensors"))[1:]  # but the model's


CORPORA = ["--text", "--treebank", "--coref", "--vectors", "--task", "--framenet", "--arct"]
SLIPS = [
    *(("--only", only, "the series has 00, 01") for only in ("11", "1,99", "abc", ",")),
    *((option, "no/such/corpus.txt", "no/such/corpus.txt") for option in CORPORA),
    *(("--model", model, "expected a model, or several different") for model in ("", " , ", "a,a")),
]


@pytest.mark.parametrize(("option", "value", "message"), SLIPS)
def test_a_value_that_cannot_be_is_one_line(option, value, message, ran, capsys):
    assert message in fails(capsys, "run", option, value) and not ran


def test_a_slip_is_answered_before_torch_is_imported():
    code = """import sys; from helpers.__main__ import main
slips = ["--only", "99"], ["--text", "no/such.txt"]
print([main(["run", *slip]) for slip in slips], {"torch", "anywidget", "spacy"} & {*sys.modules})"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2] set()\n"


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1", "tcp://127.0.0.1:99999"])
def test_a_scheduler_that_is_not_there_is_one_line_at_once(address, ran, capsys):
    begun = time.monotonic()
    error = fails(capsys, "run", "--only", "00", "--scheduler", address)
    assert f"--scheduler {address}: does not answer" in error and "tcp://HOST:8786" in error
    assert time.monotonic() - begun < 3 and not ran


@pytest.mark.parametrize("kind", ["CACHE", "FIGURES", "BUILD"])
def test_a_folder_that_cannot_be_written_to_is_named_before_any_work(
    kind, ran, capsys, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "inside"
    monkeypatch.setenv(f"ATTENTION_{kind}", str(folder))
    monkeypatch.setattr("helpers.run.record.check", lambda *_: pytest.fail("work has begun"))
    error = fails(capsys, "run", "--only", "00")
    assert f"{folder}: cannot be written to (Not a directory); set ATTENTION_{kind} to" in error


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("ModelError", 2, "error: 00_extract: here: not a model"),
        ("KeyError", 1, "KeyError: here: not a model"),
    ],
)
def test_what_goes_wrong_in_a_notebook(kind, status, said, monkeypatch, capsys, tmp_path):
    """An error of the user's arrives from the kernel as the one line of the command."""

    def execute(*_, **__):
        raise PapermillExecutionError(3, 1, "", kind, "here: not a model", [])

    monkeypatch.setenv("ATTENTION_BUILD", str(tmp_path))
    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(notebooks, "_kernels", no_kernels)
    assert main(["run", "--only", "00"]) == status
    assert f"{said}\n" in capsys.readouterr().err


def no_kernels(paths, _):
    """Start nothing."""
    for path in paths:
        yield path, None


@pytest.fixture
def given(monkeypatch, figures):
    """Return the parameters that each notebook is executed with; nothing is executed."""
    parameters = {}

    def execute(path, output, **how):
        parameters[path.name[:2]] = how["parameters"]
        shutil.copy(path, output)

    monkeypatch.setattr("papermill.execute_notebook", execute)
    monkeypatch.setattr(notebooks, "_kernels", no_kernels)
    monkeypatch.setattr(notebooks, "write_html", lambda *_: None)
    monkeypatch.setattr("helpers.run.record.check", lambda *_: [])
    monkeypatch.setattr("helpers.run.record.describe", lambda study: {"settings": {}})
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    return parameters


VALUES = {"str": "x", "str | None": "x", "int": 9, "int | None": 9, "bool": True}
VALUES |= {"lens": "norm", "dtype": "float16", "figures": "pdf"}  # which are not any text


@pytest.mark.parametrize("setting", dataclasses.fields(Study), ids=lambda setting: setting.name)
def test_every_flag_reaches_a_notebook(setting, given):
    value = VALUES.get(setting.name, VALUES[setting.type])
    arguments = [flag(setting.name)] if value is True else [flag(setting.name), str(value)]
    seed = ["--random-init", "7"] if setting.name == "focused" else []
    assert main(["run", "--extended", *arguments, *seed]) == 0
    takers = [own for own, parameters in given.items() if parameters.get(setting.name) == value]
    assert takers, setting.name
    others = [path for path in notebooks.notebooks() if path.name[:2] not in takers]
    for path in others:  # those that do not declare it would pass over it
        assert setting.name not in notebooks.declared(path)


def test_all_on_the_command_line_is_no_limit(given):
    assert main(["run", "--only", "00,07", "--segments", "all", "--task-examples", "all"]) == 0
    assert given["00"]["segments"] is None and given["07"]["segments"] is None
    assert given["07"]["task_examples"] is None and given["00"]["sentences"] == 2000


@pytest.mark.parametrize(
    ("option", "value"),
    [("--seed", "-1"), ("--seeds", "0"), ("--segments", "0"), ("--minimum-count", "0")],
)
def test_a_number_that_no_run_can_use_is_refused_at_once(option, value, given, capsys):
    error = fails(capsys, "run", option, value)
    assert error.startswith(f"error: {option} {value}: ")
    assert not given


def test_a_flag_that_no_chosen_notebook_takes_is_refused_or_of_a_size_noted(given, capsys):
    assert main(["run", "--only", "03", "--gradient-segments", "8"]) == 0
    note = "note: --gradient-segments 8: no effect on 03; it is for notebook 02\n"
    assert capsys.readouterr().err.startswith(note)
    given.clear()
    error = fails(capsys, "run", "--only", "03", "--treebank", "mine.conllu")
    assert error.startswith("error: --treebank mine.conllu: no effect on 03; it is for notebook 00")
    assert not given


def test_several_models_are_run_one_by_one_and_compared(given, monkeypatch, capsys):
    compared, models = [], []

    def describe(study):
        models.append(study.model)
        return {"settings": {}}

    monkeypatch.setattr("helpers.__main__._compare", lambda options: compared.append(options.runs))
    monkeypatch.setattr("helpers.run.record.describe", describe)
    main(["run", "--only", "03", "--model", "a,b,./c", "--segments", "7"])
    assert models == ["a", "b", "./c"]
    assert compared == [[f"{name}--segments-7" for name in "abc"]]
    capsys.readouterr()
    error = fails(capsys, "run", "--model", "a,b", "--name", "one")
    assert "several models have a name each" in error
