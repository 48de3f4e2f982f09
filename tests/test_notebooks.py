"""Every notebook to its end: on the bundled model by nbval or in this process, or on a tiny one."""

import tomllib
from pathlib import Path

import pytest
from golden.runs import CORPORA, LATER
from notebook_tools import UNSOLVED, count_exercises, executed

ROOT = Path(__file__).resolve().parent.parent
TEXT = {"text": str(CORPORA / "articles"), "segments": 8, "gradient_segments": 4}
TREES = {"sentences": 60}
# By notebook.  A model is fine-tuned or its edges are removed too slowly for 07, 08 and 11.
SIZES = {"01": TEXT, "02": TEXT, "03": TEXT, "05": TREES, "06": TEXT | TREES, "09": {}}
# The golden tables have the numbers; here it is enough that each loop has turns.
REPETITIONS = ("helpers.metrics.clustering.PERMUTATIONS", "helpers.probes.training.MIN_UPDATES")


@pytest.mark.default_model
@pytest.mark.parametrize("number", SIZES)
def test_notebook_ends_on_the_bundled_model(number, monkeypatch, capsys):
    for constant in REPETITIONS:
        monkeypatch.setattr(constant, 20)
    executed(number, **SIZES[number])
    assert capsys.readouterr().out.count(UNSOLVED) == count_exercises(number) >= 2


def test_notebooks_are_all_executed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    by_nbval = [Path(path).name[:2] for path in settings["ini_options"]["testpaths"][1:]]
    series = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {*SIZES, *by_nbval, *LATER["encoder"]} == series
