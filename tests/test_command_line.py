"""The command line: what it takes, what it prints, and its exit status."""

import dataclasses
from itertools import chain

import pytest
from store_tools import content, extract_small, flip

from helpers import run
from helpers.__main__ import main
from helpers.errors import InputError
from helpers.run import NotebookFailed, declared, list_notebooks
from helpers.settings import Settings, flag

NUMBERS = [path.name[:2] for path in list_notebooks()]


@pytest.fixture
def jobs(monkeypatch, figures):
    """Collect the jobs of a command by their folders and names; nothing is executed."""
    collected = {}

    def execute(stages, finished=None):
        for job in chain(*stages):
            collected[job.output.parent.name, job.notebook.stem[:2]] = job

    monkeypatch.setattr(run, "execute_all", execute)
    monkeypatch.setattr(run, "check_inputs", lambda *_: [])
    monkeypatch.delenv("ATTENTION_PROFILE", raising=False)
    return collected


def fails(capsys, *arguments):
    """Run a command that is refused; return the one line that it prints."""
    assert main(list(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    return output.err.strip()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"minilm": NUMBERS[:7]}),
        (["--extended"], {"minilm": NUMBERS[:7], "minilm-later": NUMBERS[7:]}),
        (["--only", "9"], {"minilm-later": ["09"]}),
        (["--only", "00-02, 5,01"], {"minilm": ["00", "01", "02", "05"]}),
    ],
)
def test_run_chooses_notebooks_and_the_default_settings(arguments, expected, jobs, figures):
    """A run with default settings has no parameters: its notebooks can be committed."""
    assert main(["run", *arguments]) == 0
    for name, numbers in expected.items():
        assert {number for folder, number in jobs if folder == name} == {*numbers, "cl", "re"}
        assert (figures.parent / "build" / name / "run.json").is_file()
        assert not any(jobs[name, number].parameters for number in numbers if number < "07")
    assert len({folder for folder, _ in jobs}) == len(expected) and not figures.exists()


def test_dry_run_lists_what_a_run_would_extract(figures, tiny_folder, tmp_path, capsys):
    text = tmp_path / "my.txt"
    text.write_text("\n".join(f"The cat {number} sat on a mat." for number in range(40)))
    options = ["--text", str(text), "--model", str(tiny_folder("bert")), "--max-tokens", "32"]
    assert main(["run", "--dry-run", "--only", "00,03", *options]) == 0
    output = capsys.readouterr().out
    inputs, _, supported = output.partition("what this model supports:\n")
    assert supported.count(": yes") == 4
    assert "  20 of 20 segments are used\n  the first: my.txt 1: [CLS] the cat " in inputs
    for count in ("my: 20 examples, ", "my-silver: 40 examples, ", "coreference-sample: 66 "):
        assert count in inputs
    assert not list(figures.parent.rglob("*.safetensors")) and not figures.exists()


@pytest.mark.parametrize("only", ["5-3", "1,99", "abc"])
def test_run_refuses_numbers_that_no_notebook_has(only, figures, capsys):
    assert f"--only {only}: " in fails(capsys, "run", "--only", only)


def test_run_refuses_missing_files_in_one_line(figures, capsys):
    for option in ("--text", "--treebank", "--coref", "--vectors"):
        assert "no/such/corpus.txt" in fails(capsys, "run", option, "no/such/corpus.txt")


def test_run_refuses_a_folder_that_no_run_wrote_before_it_reads_an_input(capsys, figures):
    page = figures.parent / "build" / "thesis" / "figure.png"
    page.parent.mkdir(parents=True)
    page.touch()
    error = fails(capsys, "run", "--only", "00", "--name", "thesis", "--text", "no/such.txt")
    assert f"{page.parent}: " in error and page.is_file()


def test_run_refuses_folders_that_cannot_be_written_to(jobs, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "file" / "inside"))
    error = fails(capsys, "run", "--only", "00")
    assert f"{tmp_path}/file/inside" in error and "ATTENTION_CACHE" in error
    assert not jobs


@pytest.mark.parametrize(("error", "status"), [(InputError, 2), (NotebookFailed, 1)])
def test_run_prints_the_error_of_a_notebook(error, status, monkeypatch, capsys, figures):
    def fail(*_):
        raise error("00_extract: broken")

    monkeypatch.setattr(run, "execute_all", fail)
    assert main(["run", "--only", "00"]) == status
    assert capsys.readouterr().err == "error: 00_extract: broken\n"


# A value for each setting, by its type, or by its name if it does not take any text.
VALUES_BY_TYPE = {str: "x", str | None: "x", int: 9, int | None: 9, bool: True}
VALUES_BY_NAME = {"lens": "norm", "dtype": "float16", "formats": "png,pdf", "segments": None}


@pytest.mark.parametrize("setting", dataclasses.fields(Settings), ids=lambda setting: setting.name)
def test_every_flag_reaches_every_notebook(setting, jobs):
    value = VALUES_BY_NAME.get(setting.name, VALUES_BY_TYPE[setting.type])
    text = "all" if value is None else str(value)
    only = "00,01,04" if setting.name == "pairs" else ""  # the others need trees
    arguments = [flag(setting.name)] if value is True else [flag(setting.name), text]
    assert main(["run", "--extended", "--only", only, *arguments]) == 0
    paths = {path.stem: path for path in list_notebooks(only)}
    for job in jobs.values():
        if job.notebook.stem in paths:
            names = declared(job.notebook)
            passed = job.parameters if setting.name in names else job.parameters["settings"]
            assert passed[setting.name] == value


def test_a_parameter_reaches_the_notebooks_that_declare_it(jobs, capsys):
    """It counts for the name of the run; one that no notebook has is refused."""
    assert main(["run", "--only", "03,09,11", "-p", "arct", "mine"]) == 0
    parameters = {number: job.parameters for (_, number), job in jobs.items() if number.isdigit()}
    assert parameters["09"]["arct"] == "mine" and "arct" not in parameters["11"]
    (name,) = {values["settings"]["name"] for values in parameters.values()}
    assert name.startswith("minilm--arct-mine-") and name in capsys.readouterr().out
    assert "-p arct: " in fails(capsys, "run", "--only", "03,07", "-p", "arct", "mine")
    assert "-p seed: " in fails(capsys, "run", "-p", "seed", "3")


def test_compare_executes_the_page_on_the_folders_of_runs(figures, jobs, capsys):
    folders = [figures.parent / "build" / "mine", figures / "minilm"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    assert main(["compare", "mine", "minilm"]) == 0
    (job,) = jobs.values()
    assert job.parameters == {"runs": [str(folder) for folder in folders]}
    assert job.output == figures.parent / "build" / "compare" / "mine-vs-minilm" / "index.ipynb"
    assert str(job.output.with_suffix(".html")) in capsys.readouterr().out
    assert "another: " in fails(capsys, "compare", "mine", "another")


def test_verify_repair_removes_damaged_files_that_a_run_makes_again(own_cache, encoder, capsys):
    store = extract_small(encoder, own_cache, 8).folder
    before = content(store)
    assert main(["verify"]) == 0
    flip(store / "shard-00000.safetensors")
    assert main(["verify"]) == 1
    assert main(["verify", "--repair"]) == 0
    assert main(["verify", store.name]) == 1  # it lacks a shard
    extract_small(encoder, own_cache, 8)
    assert content(store) == before and main(["verify", store.name]) == 0
    manifest = store / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    capsys.readouterr()
    assert main(["verify", "--repair", store.name]) == 2  # nothing says what belongs to it
    assert str(manifest) in capsys.readouterr().err and manifest.is_file()
    assert "another" in fails(capsys, "verify", "another")
