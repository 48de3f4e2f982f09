"""Shards computed and written in this process, until all are there or a signal ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from helpers.model.encoder import Encoder
from helpers.progress import progress
from helpers.store.format import Listed
from helpers.store.shards import Tensors, shards_tensors, write_shard
from helpers.store.store import Records


def fill_here(encoder: Encoder, records: Records, missing: Sequence[int], listed: Listed) -> None:
    """Compute shards in this process; writing one overlaps with computing the next.

    On Ctrl-C or SIGTERM it ends early, once the shard in work is finished.
    """
    spec = records.spec
    label = f"{spec.model['name']} over {spec.corpus['name']}"
    maps = shards_tensors(encoder, records.work(missing), **spec.maps)
    writing: Future[None] | None = None
    with stop_signals() as stop, ThreadPoolExecutor(1) as writer, closing(maps):
        bar = progress(zip(missing, maps, strict=True), label, unit="shard", total=len(missing))
        for number, (indices, tensors) in bar:
            if writing is not None:
                writing.result()  # at most one shard waits to be written
            writing = writer.submit(_write, records.folder, number, tensors, indices, listed)
            if stop.is_set():
                break
        if writing is not None:
            writing.result()


def _write(folder: Path, number: int, tensors: Tensors, indices: range, listed: Listed) -> None:
    """Write a shard and let go of its tensors, which the loop and its bar still hold."""
    write_shard(folder, number, tensors, indices, listed)
    tensors.clear()


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn a first Ctrl-C or SIGTERM into a flag to look at between shards.

    A second one does what it did before.  Only a main thread gets signals; elsewhere the flag
    stays down.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        before.clear()

    def on_signal(_number: int, _frame: object) -> None:
        stop.set()
        restore()

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.signal(number, on_signal)
        before[number] = signal.SIG_DFL if handler is None else handler
    try:
        yield stop
    finally:
        restore()
