"""Notebooks of the series, executed by tests."""

import warnings

import nbformat
import pandas as pd

from helpers.run import notebooks


def executed(number, **parameters):
    """Execute a notebook of the series in this process: a warning ends it as an error does."""
    (path,) = notebooks.notebooks(number)
    names = {}
    column_width = pd.option_context("display.max_colwidth", 50)  # which a notebook sets
    with warnings.catch_warnings(action="error", category=UserWarning), column_width:
        warnings.filterwarnings("ignore", "no installed font")  # that is about the machine
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, path.name, "exec"), names)
            if "parameters" in cell.metadata.get("tags", []):
                for name, value in parameters.items():  # as a batch run passes them
                    (names if name in names else names["settings"])[name] = value
