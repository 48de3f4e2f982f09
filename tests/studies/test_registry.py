"""Studies of later papers take part in a run, and no other layer knows them."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import helpers
from helpers.errors import InputError
from helpers.settings import Settings
from helpers.studies import registry

PACKAGE = Path(helpers.__file__).parent


def test_later_claims_are_those_of_every_study_in_the_order_of_the_notebooks():
    names = ["kovaleva2019", "michel2019", "niven2019", "kobayashi2020"]
    folders = {path.name for path in (PACKAGE / "studies").glob("[a-z]*") if path.is_dir()}
    assert set(names) == folders - {"common"}
    claims = []
    for name in names:
        for path in sorted((PACKAGE / "studies" / name).glob("*claims.py"), reverse=True):
            claims += import_module(f"helpers.studies.{name}.{path.stem}").CLAIMS
    assert registry.later_claims() == claims


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
