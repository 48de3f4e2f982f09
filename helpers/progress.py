"""Long work: its progress bar, and its threads.

Two threads that compute a batch each run a small model about a quarter faster than two threads
that share every matrix product.  Besides, the result of a batch then does not depend on the number
of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tqdm import auto, tqdm

if TYPE_CHECKING:  # it takes seconds to import
    import torch

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


def batch_threads(device: torch.device) -> int:
    """Count the threads that compute a batch each: as many as torch has on a CPU, else one."""
    import torch

    return torch.get_num_threads() if device.type == "cpu" else 1


@contextmanager
def pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; torch computes what one of them asks for on that thread alone.

    After an error, or Ctrl-C, no further call begins.
    """
    import torch

    threads_before = torch.get_num_threads()
    workers = ThreadPoolExecutor(threads, "job", initializer=set_torch_threads)
    try:
        yield workers
    finally:
        workers.shutdown(cancel_futures=True)
        set_torch_threads(threads_before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread.

    That is faster for small products, and makes results independent of that number.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def set_torch_threads(threads: int = 1) -> None:
    """Set the number of threads on which torch computes what the calling thread asks for."""
    import torch

    # The first call in a thread sets its default.  Only after it does another number hold.
    torch.get_num_threads()
    torch.set_num_threads(threads)
