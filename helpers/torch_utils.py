"""Device and threads of long work.

Two threads that compute a batch each run a small model about a quarter faster than two threads
that share every matrix product.  Besides, the result of a batch then does not depend on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from helpers.errors import ModelError
from helpers.progress import progress

if TYPE_CHECKING:  # it takes seconds to import
    import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def torch_device(device: str) -> torch.device:
    """Find the device to compute on.

    Parameters
    ----------
    device : str
        "cpu", "cuda", "mps", or "auto" for the fastest that the machine has.

    Returns
    -------
    torch.device

    Raises
    ------
    ModelError
        If the machine has no such device.
    """
    import torch

    fastest = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if device == "auto":
        return fastest
    device_type, _, _ = device.partition(":")  # "cuda:1" is the second GPU
    if device_type not in (fastest.type, "cpu"):
        raise ModelError(f"device {device!r} is not available; use --device cpu or auto")
    return torch.device(device)


def batch_threads(device: torch.device) -> int:
    """Count the threads that compute a batch each: as many as torch has on a CPU, else one."""
    import torch

    return torch.get_num_threads() if device.type == "cpu" else 1


def thread_map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    label: str,
    unit: str = "it",
    threads: int | None = None,
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
    threads : int, optional
        Number of threads; by default as many as torch has.

    Returns
    -------
    list
        Result for each item.
    """
    import torch

    with pool(threads or torch.get_num_threads()) as workers:
        results = workers.map(function, items)
        return list(progress(results, label, unit=unit, total=len(items)))


@contextmanager
def pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; torch computes what one of them asks for on that thread alone."""
    import torch

    threads_before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "job", initializer=set_torch_threads) as workers:
            try:
                yield workers
            finally:
                workers.shutdown(cancel_futures=True)
    finally:
        set_torch_threads(threads_before)


@contextmanager
def one_thread() -> Iterator[int]:
    """Run torch on one thread, and yield the number of threads that it had.

    One thread is faster for small products, and makes results independent of that number.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def set_torch_threads(threads: int = 1) -> None:
    """Set the number of threads on which torch computes what the calling thread asks for."""
    import torch

    # The first call in a thread sets its default.  Only after it does another number hold.
    torch.get_num_threads()
    torch.set_num_threads(threads)
