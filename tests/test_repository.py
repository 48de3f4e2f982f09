"""Checks of the whole project: pins agree, imports point downwards, nothing is unsafe."""

import ast
import re
import sys
import tomllib
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.utils import canonicalize_name

from helpers.model import mpnet
from helpers.settings import Settings
from scripts.constraints import direct_requirements, installed_versions

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "helpers"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LAYERS = (  # from the bottom up
    {
        "__init__",
        "cache",
        "errors",
        "files",
        "progress",
        "settings",
        "torch_utils",
    },
    {"data"},
    {"model"},
    {"store"},
    {"metrics"},
    {"probes"},
    {"claims"},
    {"plots"},
    {"viewer"},
    {"results", "study"},
    {"studies"},
    {"run"},
    {"__main__"},
)


def pinned_versions(name):
    """The exact versions in a file of requirements, by package."""
    versions = {}
    for line in (ROOT / name).read_text().splitlines():
        if line[0] not in "#-":
            package, version = line.partition(" #")[0].rstrip().split("==")
            versions[canonicalize_name(package)] = version
    return versions


def test_requirements_and_pyproject_name_the_same_packages():
    extras = PROJECT["optional-dependencies"]
    names = PROJECT["dependencies"] + extras["cluster"] + extras["test"]
    assert sorted(map(canonicalize_name, names)) == sorted(pinned_versions("requirements.txt"))


@pytest.mark.skipif(sys.platform != "linux", reason="constraints.txt is written on Linux")
def test_every_installed_need_of_the_requirements_has_its_version_pinned():
    pinned = pinned_versions("constraints.txt") | pinned_versions("requirements.txt")
    installed = installed_versions(direct_requirements())
    assert installed.items() <= pinned.items(), set(installed.items()) - set(pinned.items())


def test_the_conda_environment_installs_the_requirements():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert {"pip": ["-r requirements.txt"]} in environment["dependencies"]
    minimum = PROJECT["requires-python"].removeprefix(">=")
    assert f"python={minimum}" in environment["dependencies"]


def test_the_second_model_is_an_extra_that_setting_up_leaves_out():
    extra = PROJECT["optional-dependencies"]["mpnet"]
    lines = (ROOT / "requirements-mpnet.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == extra
    assert extra == [f"{package}=={mpnet.VERSION}" for package in mpnet.PACKAGES]
    extra_names = {entry.split("==")[0] for entry in extra}
    assert not extra_names & set(pinned_versions("requirements.txt"))
    assert "mpnet" not in (ROOT / "Makefile").read_text()


def imports(path):
    """Yield the full names that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def modules():
    """The files of the package by module, such as "data.treebank"."""
    by_name = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        by_name[".".join(parts)] = path
    return by_name


def imported_modules(name):
    """The modules of the package that a module imports."""
    paths = modules()
    names = {imported.removeprefix("helpers.") for imported in imports(paths[name])}
    return (names & paths.keys()) - {name}


def layer(module):
    """The number of a module's layer, from the bottom."""
    subpackage = module.split(".")[0]
    for number, subpackages in enumerate(LAYERS):
        if subpackage in subpackages:
            return number
    raise AssertionError(f"{module} is in no layer: add {subpackage} to LAYERS")


@pytest.mark.parametrize("name", modules())
def test_imports_point_downwards(name):
    """No module imports from a layer above; see `helpers/README.md`."""
    above = [imported for imported in imported_modules(name) if layer(imported) > layer(name)]
    assert not above


def test_imports_have_no_circle():
    graph = {name: imported_modules(name) for name in modules()}
    order = list(TopologicalSorter(graph).static_order())  # CycleError names a circle
    assert set(order) == set(modules())


@pytest.mark.parametrize("name", [name for name in modules() if name.count(".") == 2])
def test_studies_do_not_import_each_other(name):
    study = name.rpartition(".")[0]
    for imported in imported_modules(name):
        if imported.count(".") == 2:
            assert imported.startswith((f"{study}.", "studies.common."))


WITHOUT_A_MODEL = [
    path
    for layer in ("metrics", "probes", "claims")
    for path in sorted((PACKAGE / layer).glob("*.py"))
]


@pytest.mark.parametrize("path", WITHOUT_A_MODEL, ids=lambda p: f"{p.parent.name}.{p.stem}")
def test_metrics_probes_and_claims_import_no_model(path):
    for name in imports(path):
        assert name.split(".")[0] not in ("transformers", "spacy")
        assert not name.startswith("helpers.model.encoder")


PICKLERS = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "pd.read_pickle", "__import__"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_no_module_can_run_code_from_a_file(path):
    top_level_names = {name.split(".")[0] for name in imports(path)}
    assert not PICKLERS & top_level_names
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in CODE_RUNNERS
            for keyword in node.keywords:
                if keyword.arg in ("trust_remote_code", "allow_pickle"):
                    assert ast.unparse(keyword.value) == "False"


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
def test_notebooks_fold_settings_and_solutions(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if {"parameters", "solution"} & {*cell.metadata.get("tags", [])}:
            assert cell.metadata["jupyter"]["source_hidden"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_have_headings_for_a_table_of_contents(path):
    cells = nbformat.read(path, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.M)]
    assert levels[:2] == [1, 2] and set(levels[1:]) <= {2, 3}
    assert cells[0].source.startswith(f"# {path.stem[:2]} · ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_have_the_default_and_meaning_of_each_parameter(path):
    cells = nbformat.read(path, as_version=4).cells
    (parameters,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    settings = {setting.name: setting for setting in fields(Settings)}
    for line in parameters.source.splitlines():
        setting = settings[line.split()[0]]
        default = repr(setting.default).replace("'", '"')
        assert line == f"{setting.name} = {default}  # {setting.metadata['help']}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_pass_each_parameter_to_the_study(path):
    """A setting that is not passed would have no effect, and none is passed by another name."""
    cells = nbformat.read(path, as_version=4).cells
    (parameters,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    declared = [line.split()[0] for line in parameters.source.splitlines()]
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    (call,) = re.findall(r"^study = Study\(\n(.*?)\n\)", code, re.M | re.S)
    assert re.findall(r"(\w+)=\1\b", call) == declared
    assert call.count("=") == len(declared)
    assert "globals()" not in code


def test_citation_file_agrees_with_the_readme():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    names = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
    readme = (ROOT / "README.md").read_text()
    assert f'"{" and ".join(names)}"' in readme
    assert paper["doi"] in readme
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_workflow_runs_the_two_commands_of_the_readme():
    (path,) = (ROOT / ".github" / "workflows").glob("*.yml")
    workflow = yaml.safe_load(path.read_text())
    assert {"pull_request", "schedule"} <= workflow[True].keys()  # YAML's "on"
    commands = workflow["jobs"]["series"]["strategy"]["matrix"]["command"]
    readme = (ROOT / "README.md").read_text()
    assert commands == re.findall(r"^(make \w+) +#", readme, re.M)


def test_pre_commit_has_its_two_hooks():
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["id"] for hook in hooks["hooks"]] == ["ruff", "notebooks-executed"]


def test_no_file_is_large():
    large = []
    for folder in ("notebooks", "helpers", "tests", "figures"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.stat().st_size > 2 << 20:
                large.append(path)
    assert not large
