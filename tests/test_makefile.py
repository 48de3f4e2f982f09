"""The Makefile sets up `.venv` with uv where it is installed, and with pip otherwise."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Programs that write their arguments into a file, and act as uv and python as far as make sees.
UV = """#!/bin/sh
echo "uv $1" >> calls
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


@pytest.mark.parametrize(
    ("variables", "condition", "calls"),
    [
        ([], "", ["uv venv", "uv pip"]),
        ([], "no-network", ["uv venv", "uv pip"]),
        (["UV="], "no-pip", ["python ensurepip --default-pip", "python pip install"]),
    ],
)
def test_set_up_uses_uv_or_pip_and_is_not_finished_if_it_fails(
    variables, condition, calls, tmp_path, monkeypatch
):
    for name, script in {"programs/python3": PYTHON, "programs/uv": UV}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    for name in ("UV", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHON_STUB", str(tmp_path / "programs/python3"))
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:/usr/bin:/bin")
    folder = tmp_path / "a checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml", condition or "nothing"):
        (folder / name).touch()
    done = subprocess.run(["make", ".venv/.ready", *variables], cwd=folder, capture_output=True)
    is_ready = (folder / ".venv/.ready").exists()
    assert is_ready == (done.returncode == 0) == (condition != "no-network")
    assert (folder / "calls").read_text().splitlines()[-len(calls) :] == calls
