"""Device, threads and memory of long work.

Two threads that compute a batch each run a small model about a quarter faster than two threads
that share every matrix product.  Besides, the result of a batch then does not depend on the number
of threads.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from helpers.errors import ModelError
from helpers.progress import progress

if TYPE_CHECKING:  # it takes seconds to import
    import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# Parameters of mallopt(3): above the first, free memory at the end of the heap goes back to the
# system; above the second, an array gets memory of its own, which goes back when it is freed.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# Larger arrays, if they were kept, would leave holes too small for the arrays of a longer batch.
REUSABLE_BYTES = 16 << 20


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

    The first error, or Ctrl-C, ends the map: calls that have not begun are left out, and others end
    when they next call `raise_if_stopped`.

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
        futures = [workers.submit(function, item) for item in items]
        try:
            for future in progress(as_completed(futures), label, unit=unit, total=len(items)):
                future.result()
        except BaseException:
            _stopping.set()
            workers.shutdown(cancel_futures=True)
            _stopping.clear()
            raise
    return [future.result() for future in futures]


_stopping = threading.Event()  # set while a `thread_map` ends early


def raise_if_stopped() -> None:
    """Raise CancelledError if a `thread_map` is ending early."""
    if _stopping.is_set():
        raise CancelledError


def map_ordered(
    jobs: Iterable[Callable[[], Result]], *, threads: int, ahead: int
) -> Generator[Result]:
    """Run a stream of jobs on threads, and yield their results in the order of the jobs.

    At most ``ahead`` jobs are begun before their turn, which limits the memory of their results.

    Parameters
    ----------
    jobs : iterable of callables
        Functions without arguments.
    threads : int
        Number of threads.
    ahead : int
        Number of jobs that are started before the result of the current one is taken.

    Yields
    ------
    Result
        Result of each job.
    """
    pending: deque[Future[Result]] = deque()
    with pool(threads) as workers:
        try:
            for job in jobs:
                pending.append(workers.submit(job))
                if len(pending) > ahead:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            workers.shutdown(cancel_futures=True)


@contextmanager
def pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; if there are several, torch computes on one thread for each."""
    # A single thread reads a shard ahead, for which torch need not be imported.
    initializer = set_torch_threads if threads > 1 else None
    try:
        with ThreadPoolExecutor(threads, "job", initializer=initializer) as executor:
            yield executor
    finally:
        # While a script ends with an error, torch would print another one.
        if initializer and not sys.is_finalizing():
            set_torch_threads(threads)


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


@dataclass
class CompilationLock:
    """Lets forward passes run side by side, and none of them while torch compiles something.

    transformers collects the attention maps of a pass in a variable of its thread.  While torch
    compiles, in whichever thread, it collects them in one global variable: passes that run in
    that time mix their maps.  Whoever starts to compile waits for the passes that are running.
    """

    changed: threading.Condition = field(default_factory=threading.Condition)
    running_passes: int = 0

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Wait until nothing compiles, and keep others from compiling during a forward pass."""
        with self.changed:
            self.running_passes += 1
        try:
            yield
        finally:
            with self.changed:
                self.running_passes -= 1
                self.changed.notify_all()

    @contextmanager
    def compilation(self) -> Iterator[None]:
        """Wait until no forward pass runs, and keep new ones waiting while torch compiles."""
        with self.changed:
            self.changed.wait_for(lambda: not self.running_passes)
            yield


COMPILATION_LOCK = CompilationLock()  # one in a process, because that global variable is one, too


def keep_freed_memory() -> None:
    """Let glibc keep freed arrays for the next batch, which makes training a third faster."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, REUSABLE_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, 2 * REUSABLE_BYTES)


def release_freed_memory() -> None:
    """Give freed memory back to the system, because glibc keeps more and more of it in holes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
