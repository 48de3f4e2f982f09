"""Every notebook to its end: on the bundled model by nbval or in this process, or on a tiny one."""

import tomllib
from pathlib import Path

import pytest
from golden.runs import LATER, PROBES, QUICK
from notebook_tools import UNSOLVED, count_exercises, executed

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.default_model
def test_notebook_09_ends_on_the_bundled_model(monkeypatch, capsys):
    monkeypatch.setattr("helpers.probes.training.MIN_UPDATES", 20)
    executed("09")
    assert capsys.readouterr().out.count(UNSOLVED) == count_exercises("09") >= 2


def test_notebooks_are_all_executed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    by_nbval = [Path(path).name[:2] for path in settings["ini_options"]["testpaths"][1:]]
    series = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}
    on_tiny_models = {*QUICK, *PROBES["encoder"], *LATER["encoder"]}
    assert {"09", *by_nbval} | on_tiny_models == series
