"""The same work on many processes or machines, with Dask.

A shard is the unit.  Workers read its records from the store's folder, which all of them share,
load the model once a process, and write the shard under a temporary name before renaming it; the
client alone writes the manifest.  A shard whose worker is lost is computed again by another.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from helpers.errors import InputError
from helpers.model.encoder import Device
from helpers.store.extract import load_encoder, write_shard
from helpers.store.format import Listed, Shard
from helpers.store.store import Store
from helpers.work import compute_alone, progress, reuse

if TYPE_CHECKING:
    from distributed import Client, Scheduler

    from helpers.model.encoder import Encoder

KNOCK, CONNECT = 2, 10  # seconds to wait for a scheduler's machine, and for the scheduler itself
LOST = 300  # seconds without any worker, once there was one: the cluster has lost them for good

_OPENING = threading.Lock()

Result = TypeVar("Result")


def check_scheduler(address: str) -> None:
    """Knock where a scheduler should be: InputError long before Dask gives up."""
    try:
        place = urlsplit(address if "://" in address else f"tcp://{address}")
        if not place.port:
            raise ValueError("no port")
        socket.create_connection((place.hostname, place.port), timeout=KNOCK).close()
    except (OSError, ValueError) as error:
        raise _no_answer(address) from error


def _no_answer(scheduler: str) -> InputError:
    return InputError(
        f"--scheduler {scheduler}: does not answer; start it ('dask scheduler') and its workers "
        "and run again with its address, tcp://HOST:8786: finished shards are kept"
    )


@contextmanager
def dask_client(*, scheduler: str = "", workers: int = 0) -> Iterator[Client]:
    """Yield a client of the ``scheduler`` (``tcp://...``), or of ``workers`` local processes.

    Those share the threads that torch would use.  InputError where the scheduler does not answer.
    """
    from distributed import Client, LocalCluster

    for name in ("distributed", "distributed.client", "tornado.application"):  # an error says it
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as entered:
        if scheduler:
            check_scheduler(scheduler)
            try:
                client = Client(scheduler, timeout=CONNECT)
            except (OSError, ValueError, MemoryError) as error:  # the last: it speaks HTTP
                raise _no_answer(scheduler) from error
        else:
            import torch

            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=max(1, torch.get_num_threads() // workers),
                processes=True,
                dashboard_address="127.0.0.1:0",  # any free port, seen from this machine alone
                silence_logs=logging.CRITICAL,  # errors of tasks reach the client
            )
            client = Client(entered.enter_context(cluster))
        yield entered.enter_context(client)


def fill_on(client: Client, store: Store, missing: Sequence[int], listed: Listed) -> None:
    """Compute shards on a cluster, whose workers share the folders of stores and of a local model.

    InputError where a shard's workers died again and again, or none is left.
    """
    label = f"{store.folder.name} on {len(client.nthreads())} workers"
    with closing(map_shards(_make_shard, store, client, missing)) as shards:
        for shard in progress(shards, label, unit="shard", total=len(missing)):
            listed(shard)


def map_shards(
    function: Callable[[Store, int], Result],
    store: Store,
    client: Client,
    numbers: Sequence[int] | None = None,
) -> Iterator[Result]:
    """Yield ``function(store, number)`` for shards (None: all), in order, computed by a cluster.

    A worker opens the store, and loads the model where maps are computed.  Errors as in `fill_on`.
    """
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoWorkerError

    def give_up_without_workers(dask_scheduler: Scheduler) -> None:
        dask_scheduler.no_workers_timeout = dask_scheduler.no_workers_timeout or LOST

    try:
        # Dask would count the time before the first worker, too: some stand in a cluster's queue.
        client.wait_for_workers(1)
        client.run_on_scheduler(give_up_without_workers)
    except OSError as error:
        raise _no_answer(client.scheduler.address) from error
    task = partial(_on_shard, function, store.folder.resolve(), store.key, _place(store.encoder))
    numbers = range(store.n_shards) if numbers is None else numbers
    pending = deque(zip(numbers, client.map(task, numbers, pure=False), strict=True))
    try:
        while pending:
            number, future = pending[0]
            yield future.result()
            pending.popleft()
    except KilledWorker as error:
        raise InputError(
            f"shard {number}: its workers died again and again; give them more memory, or fewer "
            "threads each; finished shards are kept"
        ) from error
    except NoWorkerError as error:
        raise InputError(
            f"no worker for {error.timeout:.0f} s: all of them have ended, and their output says "
            "why (a module that they cannot import, too little memory); finished shards are kept"
        ) from error
    except (CommClosedError, FutureCancelledError) as error:
        raise _no_answer(client.scheduler.address) from error
    finally:
        client.cancel([future for _, future in pending])


def _place(encoder: Encoder | None) -> tuple[str, Device] | None:
    """Return where a worker finds the model that maps are computed by, and its kind of device."""
    if encoder is None:
        return None
    local = Path(encoder.name).expanduser()
    return str(local.resolve()) if local.is_dir() else encoder.name, encoder.device.type


def _on_shard(
    function: Callable[[Store, int], Result],
    folder: Path,
    key: str,
    model: tuple[str, Device] | None,
    number: int,
) -> Result:
    """Apply a function to one shard in a worker, whose threads compute a shard each."""
    compute_alone()
    reuse()
    if not folder.is_dir():
        raise InputError(f"{folder}: not there on a worker; the cluster has to share it")
    with _OPENING:
        store = _opened(folder, model)
    if store.key != key:
        raise InputError(f"{folder}: on a worker, another store than here; share one folder")
    return function(store, number)


def _make_shard(store: Store, number: int) -> Shard:
    from helpers.store.examples import shards_tensors

    ((indices, tensors),) = shards_tensors(store.encoder, store.work([number]), **store.spec.maps)
    return write_shard(store.folder, number, tensors, indices, listed=lambda _: None)


@lru_cache(maxsize=2)
def _opened(folder: Path, model: tuple[str, Device] | None) -> Store:
    """Return a store; a process opens each of them once."""
    encoder = load_encoder(folder, model=model[0], device=model[1]) if model else None
    return Store.open(folder, encoder)
