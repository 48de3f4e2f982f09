"""How pytest runs notebooks: laxly on a small sample, or strictly at full size."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS_ARE_ELSEWHERE = """
import os
from pathlib import Path
for name in ("ATTENTION_FIGURES", "ATTENTION_BUILD"):
    assert not Path(os.environ[name]).is_relative_to(Path.cwd())
committed_tables = Path(os.environ["ATTENTION_FIGURES"], "minilm", "tables")
assert committed_tables.is_dir() == (os.environ["ATTENTION_PROFILE"] != "quick")
"""


@pytest.fixture
def run_pytest(tmp_path):
    """Run pytest on a notebook of two cells; the committed output of the second is wrong."""
    cell = nbformat.v4.new_code_cell
    wrong = nbformat.v4.new_output("execute_result", {"text/plain": "3"}, execution_count=2)
    cells = [cell(RESULTS_ARE_ELSEWHERE), cell("1 + 1", execution_count=2, outputs=[wrong])]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "sums.ipynb")
    (tmp_path / "figures" / "minilm" / "tables").mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    variables = {name: text for name, text in os.environ.items() if "ATTENTION_" not in name}

    def run(*arguments, **profile):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        environment = variables | {"PYTHONPATH": str(ROOT)} | profile
        done = subprocess.run(
            [*command, "sums.ipynb"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        (header,) = [line for line in done.stdout.splitlines() if line.startswith("notebooks: ")]
        return done.stdout, header

    return run


@pytest.mark.parametrize(
    ("arguments", "profile", "summary", "described"),
    [
        ([], {}, "2 passed", ("lax", "small")),
        ([], {"ATTENTION_PROFILE": ""}, "1 failed, 1 passed", ("strict", "full size")),
        (["--nbval-lax"], {"ATTENTION_PROFILE": "full"}, "2 passed", ("lax", "full size")),
    ],
    ids=["by hand", "full size", "lax"],
)
def test_pytest_says_how_it_checks_notebooks(arguments, profile, summary, described, run_pytest):
    stdout, header = run_pytest(*arguments, **profile)
    assert summary in stdout and all(word in header for word in described)
