"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


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
