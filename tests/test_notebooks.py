"""Every notebook on the bundled model to its end: three by nbval, the others in this process."""

import tomllib
from pathlib import Path

import pytest
from notebook_tools import executed

from helpers.run import list_notebooks

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ("07", "08", "09", "11", "01", "02", "03", "05", "06")  # 08 uses the models of 07


@pytest.mark.default_model
@pytest.mark.parametrize("number", NUMBERS)
def test_a_notebook_ends_on_the_bundled_model(number, capsys, monkeypatch):
    # Each permutation passes several checks of types.
    monkeypatch.setattr("beyond.papers.accuracy_and_function.centred_ranks.PERMUTATIONS", 100)
    executed(number)
    (path,) = list_notebooks(number)
    n_exercises = path.read_text().count('"check(')
    assert capsys.readouterr().out.count("Not written yet") == n_exercises >= 2


def test_no_notebook_is_left_out():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    by_nbval = [Path(path).name[:2] for path in settings["ini_options"]["testpaths"][1:]]
    series = [path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted([*NUMBERS, *by_nbval]) == sorted(series)
