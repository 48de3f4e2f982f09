"""The registry knows every study, and checks what only studies read."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from beyond import papers
from beyond.papers import registry
from helpers.errors import InputError
from helpers.settings import Settings


def test_later_claims_are_those_of_every_paper():
    folder = Path(papers.__file__).parent
    expected = []
    for path in folder.glob("*/claims.py"):
        module = import_module(f"beyond.papers.{path.parent.name}.claims")
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


def test_check_inputs_reads_tasks(tmp_path):
    (tmp_path / "train.tsv").write_text("one column\n")
    (tmp_path / "test.tsv").write_text("a\tx\nb\ty\n")
    with pytest.raises(InputError, match=r"train\.tsv.*column"):
        registry.check_inputs(Settings(task=f"{tmp_path / 'train.tsv'},{tmp_path / 'test.tsv'}"))
    with pytest.raises(InputError, match=r"TRAIN\.tsv,TEST\.tsv"):
        registry.check_inputs(Settings(task=str(tmp_path / "test.tsv")))
