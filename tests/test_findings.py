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
from helpers.studies.kovaleva2019.patterns import ANY_COLUMN, SPECIAL_COLUMN, TEXT


def tagged(path, tag):
    """List the sources of the cells of a notebook that have a tag."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if tag in cell.metadata.get("tags", [])]


# The committed run that a finding is about, by the number of its notebook.
RUNS = dict.fromkeys((*"12345678", "10"), "minilm") | {"9": "minilm-arct"}


def numbers_of_cell(source, run):
    """Execute a cell of numbers on the tables of a committed run."""
    tables = read_tables(committed_figures() / run)
    study = SimpleNamespace(tables=lambda: tables)
    names = {"np": np, "pd": pd, "study": study, "BROAD": BROAD}
    names |= {"ANY_COLUMN": ANY_COLUMN, "SPECIAL_COLUMN": SPECIAL_COLUMN, "TEXT": TEXT}
    exec(compile(source, "numbers", "exec"), names)
    return names["numbers"]


@pytest.mark.parametrize("path", notebooks(",".join(RUNS)), ids=lambda path: path.stem)
def test_each_number_of_a_finding_is_that_of_the_committed_tables(path):
    (finding,) = tagged(path, "finding")
    (source,) = tagged(path, "finding-numbers")
    missing = {}
    run = RUNS[path.stem[:2].removeprefix("0")]
    for name, text in numbers_of_cell(source, run).items():
        for number in text.removesuffix("%").split(", "):
            if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", finding):
                missing[name] = text
    assert not missing
