"""The names of ``import helpers``, and which package of that name is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import helpers

ROOT = Path(__file__).resolve().parent.parent


def test_public_names_are_there_and_listed():
    assert dir(helpers) == sorted(helpers.__all__)
    for name in helpers.__all__:
        assert getattr(helpers, name).__doc__, name
    assert helpers.metrics.surface.token_types
    with pytest.raises(AttributeError, match="Studi"):
        _ = helpers.Studi
    with pytest.raises(AttributeError, match="heds"):
        _ = helpers.metrics.heds


def test_importing_helpers_loads_nothing_else():
    code = (
        "import sys, helpers; print([name for name in sys.modules if name in ('numpy', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def from_folder_with_helpers(folder, *command):
    """Run Python in a folder that has a package of the same name."""
    (folder / "helpers").mkdir()
    (folder / "helpers" / "__init__.py").write_text("print('not ours')\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_console_script_says_which_package_hides_the_project(tmp_path):
    script = ROOT / "attention_notebooks.py"
    done = from_folder_with_helpers(tmp_path, str(script), "verify")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"finds a package 'helpers' in {tmp_path / 'helpers'} and not the one in" in done.stderr
    assert done.stderr.count("\n") == 1
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_import_of_a_hidden_package_names_its_file(tmp_path):
    done = from_folder_with_helpers(tmp_path, "-c", "from helpers import Study")
    assert done.returncode == 1
    assert f"cannot import name 'Study' from 'helpers' ({tmp_path / 'helpers'}" in done.stderr
