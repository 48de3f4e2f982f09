"""What the C library does with freed memory: kept for the next batch, given back by the shard."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# Of mallopt(3): from which size on memory is asked of the system each time, and when it goes back.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 32 << 20  # as far as glibc goes by itself, where no setting forbids it


def reuse() -> None:
    """Let glibc keep freed memory for the next batch.

    Dask's workers start with ``MALLOC_TRIM_THRESHOLD_=65536``, under which every batch asks the
    system for its memory anew: a third of a shard's time.
    """
    library = _library()
    if library is not None:
        library.mallopt(M_MMAP_THRESHOLD, KEPT)
        library.mallopt(M_TRIM_THRESHOLD, 2 * KEPT)


def trim() -> None:
    """Give back what was freed: over many shards, glibc keeps ever more of it in small holes.

    Does nothing where the C library is another one.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)


@cache
def _library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None
