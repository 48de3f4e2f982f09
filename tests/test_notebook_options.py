"""At full size, pytest compares the outputs of notebooks with those that are committed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
RESULTS_ARE_ELSEWHERE = """
import os
from pathlib import Path
for name in ("ATTENTION_FIGURES", "ATTENTION_BUILD"):
    assert not Path(os.environ[name]).is_relative_to(Path.cwd())
assert Path(os.environ["ATTENTION_FIGURES"], "minilm", "tables").is_dir()
"""


def test_pytest_at_full_size_compares_outputs_and_its_header_says_so(tmp_path):
    """The committed output of the second cell is wrong; quick runs do not compare it."""
    cell = nbformat.v4.new_code_cell
    wrong = nbformat.v4.new_output("execute_result", {"text/plain": "3"}, execution_count=2)
    cells = [cell(RESULTS_ARE_ELSEWHERE), cell("1 + 1", execution_count=2, outputs=[wrong])]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "sums.ipynb")
    (tmp_path / "figures" / "minilm" / "tables").mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {name: text for name, text in os.environ.items() if "ATTENTION_" not in name}
    environment |= {"PYTHONPATH": str(ROOT), "ATTENTION_PROFILE": "full"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "sums.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout
    assert "notebooks: strict at full size" in done.stdout
