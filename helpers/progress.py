"""Progress bars of long work, and notes to the batch run about the files that it writes."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

BAR = re.compile(r".*\[[\d:]+(<[\d:?]+)?, .*/.*\]\n?")  # a line in a log
HEADLESS = "ATTENTION_HEADLESS"  # set by batch runs: their kernels' bars go to a log
WRITTEN = "ATTENTION_WRITTEN"  # set by batch runs: the file in which a kernel notes what it writes


def progress(
    items: Iterable[Item] | None, label: str, *, unit: str = "it", total: int | None = None
) -> tqdm[Item]:
    """Return a bar with a rate and an end: to iterate over ``items``, or to be updated.

    On a terminal, or in a notebook that someone looks at, it redraws in place and disappears; in a
    log it is a line at most every ten seconds, and nothing at all for work that is over sooner.
    """
    seen = sys.stderr.isatty() or "ipykernel" in sys.modules
    redraws = seen and not os.environ.get(HEADLESS)
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


def note_written(kind: str, name: str) -> None:
    """Tell the batch run that executes this notebook, if one does, of a table or figure."""
    if notes := os.environ.get(WRITTEN):
        with Path(notes).open("a", encoding="utf-8") as file:
            file.write(f"{kind} {name}\n")


class _Lines(io.TextIOBase):
    """Standard error, where each redrawing of a bar is a line of its own."""

    def write(self, text: str) -> int:
        """Write what is visible of a redrawing, if anything is."""
        if visible := text.strip("\r\n "):
            sys.stderr.write(f"{visible}\n")
        return len(text)
