"""Progress bars of long work, and the variable by which a batch run tells its notebooks so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from tqdm import auto, tqdm

Item = TypeVar("Item")

# The environment variable in which a batch run gives a kernel the name of its notebook.
NOTEBOOK_VARIABLE = "ATTENTION_NOTEBOOK"


def progress(
    items: Iterable[Item], label: str, *, unit: str = "it", total: int | None = None
) -> tqdm[Item]:
    """Show the progress of long work.

    In a notebook the bar is a widget, and on a terminal a line.  In a batch run it is a line of the
    terminal of the command, which is written every ten seconds.

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
    if NOTEBOOK_VARIABLE in os.environ:
        return tqdm(items, delay=10, mininterval=10, **options)
    return auto.tqdm(items, delay=0.5, **options)
