"""The names of ``import helpers``, and which package of that name is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import helpers

ROOT = Path(__file__).resolve().parent.parent


def test_public_names_are_there_and_listed_and_imported_when_they_are_used():
    assert dir(helpers) == sorted(helpers.__all__)
    for name in helpers.__all__:
        assert getattr(helpers, name).__doc__, name
    assert helpers.metrics.surface.token_types
    for package in (helpers, helpers.metrics):
        with pytest.raises(AttributeError, match="heds"):
            _ = package.heds
    code = "import sys, helpers; print({'numpy', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_console_script_says_which_package_hides_the_project(tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("print('not ours')\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(ROOT / "attention_notebooks.py")]
    options = {"env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, "verify"], cwd=tmp_path, **options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(tmp_path / "helpers") in done.stderr
    done = subprocess.run([*command, "--help"], cwd=ROOT, **options)
    assert (done.returncode, done.stderr) == (0, "")
