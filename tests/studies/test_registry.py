"""Studies of later papers take part in a run, and no other layer knows them."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import helpers
from helpers.errors import InputError
from helpers.settings import LATER_SETTINGS, PATH_SETTINGS, RESULT_SETTINGS, Settings, flag
from helpers.studies import registry

PACKAGE = Path(helpers.__file__).parent
ABOVE = ("studies", "run", "__main__.py")
PAPERS = ("kovaleva", "michel", "niven")  # the lens of Kobayashi et al. is a setting of all


def modules_below():
    """List the modules of the layers below the studies."""
    paths = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in ABOVE:
            paths.append(path)
    return paths


def test_later_claims_are_those_of_every_study_in_the_order_of_the_notebooks():
    names = ["kovaleva2019", "michel2019", "niven2019", "kobayashi2020"]
    folders = {path.name for path in (PACKAGE / "studies").glob("[a-z]*") if path.is_dir()}
    assert set(names) == folders - {"common"}
    claims = []
    for name in names:
        for path in sorted((PACKAGE / "studies" / name).glob("*claims.py"), reverse=True):
            claims += import_module(f"helpers.studies.{name}.{path.stem}").CLAIMS
    assert registry.later_claims() == claims


def test_settings_of_later_papers_are_flags_and_parameters():
    settings = {setting.name: setting for setting in fields(Settings)}
    assert set(LATER_SETTINGS) == {"appendix", "task_examples", "arct"}
    assert set(LATER_SETTINGS) - set(RESULT_SETTINGS) == {"appendix"}
    assert set(LATER_SETTINGS) & set(PATH_SETTINGS) == {"arct"}
    assert settings["task_examples"].type == "int | None"
    assert Settings().task_examples == LATER_SETTINGS["task_examples"]["default"]


@pytest.mark.parametrize("path", modules_below(), ids=lambda path: path.stem)
def test_layers_below_name_no_later_paper_and_none_of_its_settings(path):
    source = path.read_text(encoding="utf-8")
    assert not [paper for paper in PAPERS if paper in source.lower()]
    assert not [name for name in LATER_SETTINGS if re.search(rf"{flag(name)}\b", source)]
    attributes = {
        node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
    }
    assert not attributes & set(LATER_SETTINGS)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("arct", "nowhere is neither a path nor the name of a corpus with argument pairs"),
        ("task", "--task nowhere: expected two files"),
    ],
)
def test_check_inputs_refuses_missing_files(setting, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        registry.check_inputs(Settings(**{setting: "nowhere"}))
