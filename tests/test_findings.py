"""The numbers in the notebooks' findings are those of the committed tables."""

import re
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from committed import committed_figures

from helpers.metrics.reference import BROAD
from helpers.results import read_tables
from helpers.run.notebooks import notebooks


def tagged(path, tag):
    """List the sources of the cells of a notebook that have a tag."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if tag in cell.metadata.get("tags", [])]


def numbers_of_cell(source):
    """Execute a cell of numbers on the tables of the default run."""
    tables = read_tables(committed_figures() / "minilm")
    study = SimpleNamespace(tables=lambda: tables)
    names = {"np": np, "pd": pd, "study": study, "BROAD": BROAD}
    exec(compile(source, "numbers", "exec"), names)
    return names["numbers"]


@pytest.mark.parametrize("path", notebooks("1,2,3,4,5,6,10"), ids=lambda path: path.stem)
def test_each_number_of_a_finding_is_that_of_the_committed_tables(path):
    tables = read_tables(committed_figures() / "minilm")
    if path.stem.startswith("10") and "token" not in tables["special_tokens"]:
        pytest.skip("the committed tables are older than what notebook 10 measures")
    (finding,) = tagged(path, "finding")
    (source,) = tagged(path, "finding-numbers")
    missing = {}
    for name, text in numbers_of_cell(source).items():
        for number in text.removesuffix("%").split(", "):
            if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", finding):
                missing[name] = text
    assert not missing
