"""The notebooks of a run, executed without anybody watching."""

import os

from helpers.progress import HEADLESS
from helpers.run import notebooks


def test_kernels_are_told_that_nobody_watches_and_nothing_else_is(monkeypatch):
    monkeypatch.delenv(HEADLESS, raising=False)
    with notebooks._headless():
        assert os.environ[HEADLESS] == "1"
    assert HEADLESS not in os.environ
    monkeypatch.setenv(HEADLESS, "0")
    with notebooks._headless():
        assert os.environ[HEADLESS] == "1"
    assert os.environ[HEADLESS] == "0"
