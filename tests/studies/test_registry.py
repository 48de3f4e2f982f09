"""The registry knows every study, and checks what only studies read."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from helpers import studies
from helpers.errors import InputError
from helpers.settings import Settings
from helpers.studies import registry


def test_later_claims_are_those_of_every_study():
    folder = Path(studies.__file__).parent
    expected = []
    for path in folder.glob("claims/[!_]*.py"):
        module = import_module(f"helpers.studies.claims.{path.stem}")
        expected += [claim.statement for claim in module.CLAIMS]
    claims = [claim.statement for claim in registry.later_claims()]
    assert sorted(claims) == sorted(expected)
    assert len(set(claims)) == len(claims)


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
