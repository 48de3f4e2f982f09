"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever it is, and drops it in a finalizer or a weakref's callback:
for example while the garbage collector frees a model.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_RECEIVED = threading.Event()


@contextmanager
def remembered_interrupts() -> Iterator[None]:
    """Remember each Ctrl-C, and raise KeyboardInterrupt as before."""

    def remember(number: int, frame: FrameType | None) -> None:
        _RECEIVED.set()
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or a user's
        yield
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        _RECEIVED.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_lost_interrupt(**_: Any) -> None:
    """Raise KeyboardInterrupt if there was one; nbclient calls this function with a cell."""
    if _RECEIVED.is_set():
        raise KeyboardInterrupt
