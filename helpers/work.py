"""Long work: its device, its threads and its memory.

A small model computes about a quarter faster on two threads that work alone than on two that
share every product; and what a job gives does not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from helpers.errors import ModelError

# Other modules import these names from here.
from helpers.progress import BAR, HEADLESS, WRITTEN, note_written, progress  # noqa: F401

if TYPE_CHECKING:  # it takes seconds to import
    import torch

Result = TypeVar("Result")

# Of mallopt(3): from which size on memory is asked of the system each time, and when it goes back.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 32 << 20  # as far as glibc goes by itself, where no setting forbids it


def torch_device(device: str) -> torch.device:
    """Return the device of a name, ModelError if it is not here; ``auto`` is the fastest kind."""
    import torch

    fastest = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if device == "auto":
        return fastest
    if device.partition(":")[0] not in (fastest.type, "cpu"):
        raise ModelError(f"device {device!r} is not available here; use --device cpu or auto")
    return torch.device(device)


def in_order(
    jobs: Iterable[Callable[[], Result]], *, threads: int, ahead: int
) -> Generator[Result]:
    """Yield what the jobs return, in order; ``ahead`` are begun beside the one that is awaited."""
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
            for future in pending:
                future.cancel()


@contextmanager
def pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; of several, each computes alone."""
    alone = compute_alone if threads > 1 else None  # who reads one shard ahead needs no torch
    try:
        with ThreadPoolExecutor(threads, "job", initializer=alone) as pool:
            yield pool
    finally:
        if alone and not sys.is_finalizing():  # an error that ends a script is the last thing said
            compute_alone(threads)


def compute_alone(threads: int = 1) -> None:
    """Let torch compute on the calling thread alone (on ``threads``) from now on."""
    import torch

    torch.get_num_threads()  # a thread's first use of torch sets its default, after which ...
    torch.set_num_threads(threads)  # ... its own number holds


class CompilationLock:
    """Lets forward passes run side by side, and none of them while torch compiles something.

    transformers collects the attention maps of a pass in a variable of its thread.  While torch
    compiles, in whichever thread, it collects them in one global variable: passes that run in
    that time mix their maps.  Whoever starts to compile waits for the passes that are running.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running_passes = 0
        self._compiling = False

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Wait until nothing compiles, and keep others from compiling during a forward pass."""
        with self._changed:
            self._changed.wait_for(lambda: not self._compiling)
            self._running_passes += 1
        try:
            yield
        finally:
            with self._changed:
                self._running_passes -= 1
                self._changed.notify_all()

    @contextmanager
    def compilation(self) -> Iterator[None]:
        """Wait until no forward pass runs, and keep new ones waiting while torch compiles."""
        with self._changed:
            self._changed.wait_for(lambda: not self._compiling)
            self._compiling = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._running_passes)
            yield
        finally:
            with self._changed:
                self._compiling = False
                self._changed.notify_all()


COMPILATION_LOCK = CompilationLock()  # one in a process, because that global variable is one, too


def reuse(kept: int = KEPT) -> None:
    """Let glibc keep freed arrays of up to ``kept`` bytes for the next batch: a third faster."""
    if library := _glibc():
        library.mallopt(M_MMAP_THRESHOLD, kept)
        library.mallopt(M_TRIM_THRESHOLD, 2 * kept)


def trim() -> None:
    """Give back what was freed: over many shards, glibc keeps ever more of it in small holes."""
    if library := _glibc():
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return library if hasattr(library, "malloc_trim") else None
