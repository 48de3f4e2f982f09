"""The Makefile sets up `.venv` with uv where it is installed, and with pip otherwise."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Programs that write their arguments into a file, and act as uv and python as far as make sees.
UV = """#!/bin/sh
echo "uv $@" >> calls
if [ "$1" = venv ]; then mkdir -p .venv/bin && cp "$PYTHON_STUB" .venv/bin/python; fi
if [ "$1" = pip ] && [ -e no-network ]; then exit 1; fi
"""
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi  # the check of the version
echo "python $2 $3" >> calls
case "$2" in
  venv) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  ensurepip) rm no-pip ;;
  pip) if [ -e no-pip ] || [ -e no-network ]; then exit 1; fi ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def program(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path, monkeypatch):
    path = program(tmp_path / "programs" / "python3", PYTHON)
    monkeypatch.setenv("PYTHON_STUB", str(path))
    return path


@pytest.fixture
def uv(tmp_path):
    return program(tmp_path / "programs" / "uv", UV)


@pytest.fixture
def set_up(tmp_path, python, monkeypatch):
    """Run the rule that makes ``.venv`` in a folder, and return the calls of uv and python."""
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.setenv("PATH", f"{python.parent}:/usr/bin:/bin")
    folder = tmp_path / "a checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml"):
        (folder / name).touch()
    monkeypatch.chdir(folder)

    def run(*variables):
        command = ["make", ".venv/.ready", *variables]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode == 0) == Path(".venv/.ready").exists(), done.stderr
        return Path("calls").read_text().splitlines()

    return run


def test_set_up_uses_uv_where_it_is_installed(set_up, uv, python):
    make_environment, install = set_up()
    assert make_environment.startswith("uv venv ") and "--seed" in make_environment.split()
    assert make_environment.endswith(f"--python {python} .venv")
    assert install == (
        "uv pip install --quiet --python .venv/bin/python --requirement requirements.txt"
    )


@pytest.mark.parametrize(
    ("target", "files"),
    [
        ("run", ["requirements.txt"]),
        ("lab", ["requirements.txt"]),
        ("strict", ["requirements.txt"]),
        ("lint", ["requirements.txt", "requirements-dev.txt"]),
        ("test", ["requirements.txt", "requirements-dev.txt"]),
        ("book", ["requirements.txt", "requirements-book.txt"]),
    ],
)
@pytest.mark.parametrize("variables", [["UV=uv"], ["UV="]], ids=["uv", "pip"])
def test_make_installs_what_its_target_needs(target, files, variables):
    command = ["make", "--dry-run", "--always-make", target, *variables]
    commands = subprocess.check_output(command, cwd=ROOT, text=True)
    assert re.findall(r"--requirement (\S+)", commands) == files


def test_set_up_with_uv_keeps_an_environment_that_exists(set_up, uv):
    Path(".venv").mkdir()
    program(Path(".venv/bin/python"), PYTHON)
    (install,) = set_up()
    assert install.startswith("uv pip install ")


def test_set_up_uses_pip_where_uv_is_missing(set_up):
    if Path("/usr/bin/uv").exists():
        pytest.skip("uv is installed beside make")
    assert set_up() == ["python venv .venv", "python pip --version", "python pip install"]


def test_set_up_uses_pip_where_make_is_told_so(set_up, uv):
    assert set_up("UV=") == ["python venv .venv", "python pip --version", "python pip install"]


def test_set_up_adds_pip_to_an_environment_without_it(set_up):
    Path("no-pip").touch()
    _, _, add_pip, install = set_up("UV=")
    assert add_pip == "python ensurepip --default-pip"
    assert install == "python pip install"


@pytest.mark.parametrize("variables", [[], ["UV="]], ids=["uv", "pip"])
def test_set_up_is_not_finished_where_an_installation_fails(variables, set_up, uv):
    Path("no-network").touch()
    set_up(*variables)
    assert not Path(".venv/.ready").exists()
