"""Notebooks of the series, executed by tests."""

import linecache
import warnings

import matplotlib.pyplot as plt
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
        for position, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "code":
                file = f"<{path.stem}, cell {position}>"
                lines = cell.source.splitlines(keepends=True)
                linecache.cache[file] = (len(cell.source), None, lines, file)  # as IPython does
                exec(compile(cell.source, file, "exec"), names)
                plt.close("all")  # as in Jupyter
            if "parameters" in cell.metadata.get("tags", []):
                for name, value in parameters.items():  # as a batch run passes them
                    (names if name in names else names["settings"])[name] = value
