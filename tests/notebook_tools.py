"""Notebooks of the series, executed by tests."""

import linecache
import warnings
from contextlib import nullcontext
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import pandas as pd

from helpers.run import list_notebooks

UNSOLVED = "Not written yet"  # what an exercise prints that has only its stub


def count_exercises(number):
    """Count the exercises of a notebook."""
    (path,) = list_notebooks(number)
    return path.read_text(encoding="utf-8").count('"check(')


def draw(figure, folder, name, *, formats=()):
    """Lay out and draw a figure, in place of `save_figure`."""
    figure.draw_without_rendering()
    path = folder / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def executed(number, *, files=False, **parameters):
    """Execute a notebook of the series in this process: a warning ends it as an error does.

    Without ``files``, figures are drawn and not written, which would take half of the time: nbval
    writes those of all notebooks.
    """
    (path,) = list_notebooks(number)
    names = {}
    column_width = pd.option_context("display.max_colwidth", 50)  # which a notebook sets
    figures = nullcontext() if files else mock.patch("helpers.plots.style.save_figure", draw)
    with warnings.catch_warnings(action="error", category=UserWarning), column_width, figures:
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
