"""Mutations are made in a copy, and the tests tell which of them matter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mutate.py"
MODULE = '''
"""Not changed: 3."""
LIMIT = 3


def count_long(lengths: "list[1]") -> int:
    """Count lengths over 3."""
    return sum(length > 3 for length in lengths)
'''
TEST = """
from helpers.toy.lengths import count_long


def test_count_long():
    assert count_long([1, {case}]) == 1
"""


@pytest.mark.parametrize("case", [4, 2])
def test_mutate_finds_a_survivor_and_refuses_tests_that_fail(case, tmp_path):
    for name, text in [("helpers/toy/lengths", MODULE), ("tests/toy/test_lengths", TEST)]:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("{case}", str(case)))
    command = [sys.executable, SCRIPT, "--paths", "helpers/*/*.py", "--count", "2"]
    quick = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=quick, capture_output=True, text=True)
    assert done.returncode == 1
    assert (tmp_path / "helpers/toy/lengths.py").read_text() == MODULE
    if case == 2:  # the test fails without a mutation
        assert not done.stdout and done.stderr
        return
    outcomes = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    assert outcomes["killed"].endswith("lengths.py:8 off by one: 3 -> 4")
    assert outcomes["survived"].endswith("lengths.py:8 comparison: length > 3 -> length >= 3")
    assert "helpers/toy: 1 of 2 killed" in done.stdout
