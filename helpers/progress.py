"""Progress bars of long work, and the variables by which a batch run tells its notebooks so."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

PROGRESS_LINE = re.compile(
    r".*\[[\d:]+(<[\d:?]+)?, .*/.*\]\n?"
)  # a progress bar, as a line of a log
# Environment variables that a batch run sets for its kernels.
BATCH_VARIABLE = "ATTENTION_HEADLESS"  # progress bars go to a log
OUTPUT_LIST_VARIABLE = (
    "ATTENTION_WRITTEN"  # path of the file that lists the tables and figures of a notebook
)


def progress(
    items: Iterable[Item] | None, label: str, *, unit: str = "it", total: int | None = None
) -> tqdm[Item]:
    """Show the progress of long work.

    On a terminal, or in a notebook that a person looks at, the bar redraws in place and disappears
    at the end.  In a log it is a line at most every ten seconds, and nothing for shorter work.

    Parameters
    ----------
    items : iterable or None
        What to iterate over; None for a bar that is updated by hand.
    label : str
        Text in front of the bar.
    unit : str
        Name of an item, for the rate.
    total : int, optional
        Number of items.  By default ``len(items)``; without either, the bar shows no end.

    Returns
    -------
    tqdm
        Iterate over it, or call its ``update``.
    """
    is_watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    redraws = is_watched and not os.environ.get(BATCH_VARIABLE)
    return tqdm(
        items,
        desc=label,
        unit=unit,
        total=total,
        leave=False,
        delay=0.5 if redraws else 10,
        mininterval=0.2 if redraws else 10,
        maxinterval=10,
        ascii=not redraws,
        ncols=None if redraws else 100,
        file=sys.stderr if redraws else _Lines(),
    )


class _Lines(io.TextIOBase):
    """Standard error, in which each redrawing of a bar is a line of its own."""

    def write(self, text: str) -> int:
        """Write the visible part of a redrawing, if there is one."""
        visible = text.strip("\r\n ")
        if visible:
            sys.stderr.write(f"{visible}\n")
        return len(text)
