"""Progress bars of long work, and the variable by which a batch run tells its notebooks so."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from IPython import get_ipython
from IPython.display import display
from tqdm import tqdm
from tqdm.notebook import tqdm_notebook

Item = TypeVar("Item")

PROGRESS_LINE = re.compile(
    r".*\[[\d:]+(<[\d:?]+)?, .*/.*\]\n?"
)  # a progress bar, as a line of a log
# The environment variable that a batch run sets for its kernels: the path of the file in which a
# notebook lists its tables and figures.  Progress bars then go to a log.
OUTPUT_LIST_VARIABLE = "ATTENTION_WRITTEN"


def progress(
    items: Iterable[Item], label: str, *, unit: str = "it", total: int | None = None
) -> tqdm[Item]:
    """Show the progress of long work.

    In a notebook that a person looks at, the bar is a widget; on a terminal, it redraws in place.
    Both disappear at the end.  In a log, the bar is a line at most every ten seconds, and nothing
    for shorter work.

    Parameters
    ----------
    items : iterable
        What to iterate over.
    label : str
        Text in front of the bar.
    unit : str
        Name of an item, for the rate.
    total : int, optional
        Number of items.  By default ``len(items)``; without either, the bar shows no end.

    Returns
    -------
    tqdm
        Iterate over it.
    """
    options = {"desc": label, "unit": unit, "total": total, "leave": False}
    is_notebook = hasattr(get_ipython(), "kernel")
    if OUTPUT_LIST_VARIABLE not in os.environ and (is_notebook or sys.stderr.isatty()):
        bar = NotebookBar if is_notebook else tqdm
        return bar(items, delay=0.5, mininterval=0.2, **options)
    options |= {"ascii": True, "ncols": 100, "file": _Lines()}
    return tqdm(items, delay=10, mininterval=10, maxinterval=10, **options)


class NotebookBar(tqdm_notebook):
    """A bar that is a widget, and whose output is empty when the work is done.

    Otherwise the saved notebook would hold the widget, and JupyterLab would say that it has no
    model when it opens the notebook again.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.displayed = True  # tqdm leaves it to this class to show the widget
        self.output = None

    def display(self, *args: Any, check_delay: bool = True, **options: Any) -> None:
        """Redraw the bar, and show it if this is the first time after the delay."""
        super().display(*args, check_delay=check_delay, **options)
        if check_delay and self.output is None:
            self.output = display(self.container, display_id=True)

    def close(self) -> None:
        """Empty the output."""
        if self.output is not None and not self.disable:
            self.output.update({"text/plain": ""}, raw=True)
        super().close()


class _Lines(io.TextIOBase):
    """Standard error, in which each redrawing of a bar is a line of its own."""

    def write(self, text: str) -> int:
        """Write the visible part of a redrawing, if there is one."""
        visible = text.strip("\r\n ")
        if visible:
            sys.stderr.write(f"{visible}\n")
        return len(text)
