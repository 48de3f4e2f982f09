"""Golden tables: every number of three tiny models, as the notebooks save it.

A rewrite keeps them.  After a change of a definition, ``python tests/golden/make.py`` writes them
again and prints what has changed.
"""

from functools import cache

import pytest
from golden.comparison import differences, read_golden
from golden.runs import FOLDER, run_model

MODELS = ("encoder", "decoder", "window")
GOLDEN = [(model, path.stem) for model in MODELS for path in sorted((FOLDER / model).glob("*.csv"))]


@pytest.fixture(scope="module")
def tables_of(tmp_path_factory):
    """Run the notebooks on a golden model, once."""
    return cache(lambda model: run_model(model, tmp_path_factory.mktemp(model)))


@pytest.mark.parametrize(("model", "measure"), GOLDEN)
def test_numbers_are_the_golden_ones(model, measure, tables_of):
    tables = tables_of(model)
    assert measure in tables
    assert not differences(measure, tables[measure], read_golden(model, measure))


def test_all_tables_are_golden(tables_of):
    for model in MODELS:
        assert set(tables_of(model)) == {measure for name, measure in GOLDEN if name == model}
