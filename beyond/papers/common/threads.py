"""Work on several threads, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from helpers.progress import pool, progress

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    label: str,
    threads: int,
    unit: str = "it",
) -> list[Result]:
    """Call a function for each item on several threads, and list the results in order.

    After an error, or Ctrl-C, no further call begins.

    Parameters
    ----------
    function : callable
        Function of an item.
    items : sequence
        The items, which are begun in their order.
    label, unit : str
        Name of the progress bar, and of an item.
    threads : int
        Number of threads.

    Returns
    -------
    list
        Result for each item.
    """
    with pool(threads) as workers:
        results = workers.map(function, items)
        return list(progress(results, label, unit=unit, total=len(items)))
