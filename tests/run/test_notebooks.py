"""The notebooks of a run, executed without anybody watching."""

import os
import random
import re

import nbformat
import pytest
from faults import SLOW_KILLS

from helpers.progress import HEADLESS
from helpers.run import notebooks
from helpers.run.notebooks import NotebookFailed


def test_kernels_are_told_that_nobody_watches_and_nothing_else_is(monkeypatch):
    monkeypatch.delenv(HEADLESS, raising=False)
    with notebooks._headless():
        assert os.environ[HEADLESS] == "1"
    assert HEADLESS not in os.environ
    monkeypatch.setenv(HEADLESS, "0")
    with notebooks._headless():
        assert os.environ[HEADLESS] == "1"
    assert os.environ[HEADLESS] == "0"


KILLED = """
import os, signal, time
from pathlib import Path
if {path!r} and not Path({path!r}).exists():
    Path({path!r}).touch()
    time.sleep({seconds})
    os.kill(os.getpid(), signal.SIGKILL)
print("done")
"""


def test_a_killed_kernel_is_one_line_and_the_next_run_is_whole(tmp_path, record_property):
    rng, ran = random.Random(0), 0
    for kill in range(SLOW_KILLS):
        once, path = tmp_path / f"once-{kill}", tmp_path / f"0{kill % 7}_toy.ipynb"
        code = KILLED.format(path=str(once), seconds=rng.uniform(0, 0.2))
        tagged = nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})
        cells = [tagged, nbformat.v4.new_code_cell(code)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        with pytest.raises(NotebookFailed) as stopped:
            notebooks._execute(path, tmp_path / "out.ipynb", {})
        message = str(stopped.value)
        assert re.match(rf"{path.name}: its process was killed, .* and run again$", message)
        notebooks._execute(path, tmp_path / "out.ipynb", {})
        outputs = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[-1].outputs
        assert [output.text for output in outputs] == ["done\n"]
        ran += 1
    record_property("found", f"kernels: {ran} of {SLOW_KILLS} kills ended in one line")
