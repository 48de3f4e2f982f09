"""The same work on many processes or machines, with Dask.

A shard is the unit.  Workers read its records from the store's folder, which all of them share,
load the model once a process, and write the shard under a temporary name before renaming it; the
client alone writes the manifest.  A shard whose worker is lost is computed again by another.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from helpers.errors import InputError
from helpers.model.checkpoint import Device
from helpers.model.parallel import compute_alone, reuse
from helpers.progress import progress
from helpers.store.examples import shard_tensors
from helpers.store.extract import Fill, write_shard
from helpers.store.format import Listed, Shard
from helpers.store.inventory import load_encoder
from helpers.store.store import Store

if TYPE_CHECKING:
    from distributed import Client, Scheduler

CONNECT = 10  # seconds to wait for a scheduler
LOST = 300  # seconds without any worker, once there was one: the cluster has lost them for good

_OPENING = threading.Lock()

Result = TypeVar("Result")


class ClusterError(InputError):
    """A Dask cluster cannot be had, keeps losing the workers of a shard, or has none left."""


@contextmanager
def dask_client(*, scheduler: str = "", workers: int = 0) -> Iterator[Client]:
    """Yield a client of the ``scheduler`` (``tcp://...``), or of ``workers`` local processes.

    Local processes share the threads that torch would use here among them.

    Raises:
        ClusterError: Dask is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ClusterError(
            "distribution needs Dask: pip install 'dask[distributed]', or leave out --workers "
            "and --scheduler"
        ) from error
    with ExitStack() as entered:
        if scheduler:
            try:
                client = Client(scheduler, timeout=CONNECT)
            except (OSError, ValueError, TimeoutError) as error:
                raise ClusterError(
                    f"--scheduler {scheduler}: does not answer; start it with 'dask scheduler' "
                    "and give its address, tcp://HOST:8786"
                ) from error
        elif workers < 1:
            raise ClusterError(f"--workers {workers}: give at least 1")
        else:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=max(1, torch.get_num_threads() // workers),
                processes=True,
                dashboard_address="127.0.0.1:0",  # any free port, seen from this machine alone
                # Errors of tasks reach the client; a worker that misses its scheduler at the end
                # of a run would print a page for it.
                silence_logs=logging.CRITICAL,
            )
            client = Client(entered.enter_context(cluster))
        entered.enter_context(client)
        entered.enter_context(_scheduler_errors(client))
        yield client


@contextmanager
def _scheduler_errors(client: Client) -> Iterator[None]:
    """Turn the loss of the scheduler into one line; Dask would log its own errors, too."""
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    address = client.scheduler.address
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except (CommClosedError, FutureCancelledError) as error:
        raise ClusterError(
            f"the scheduler at {address} does not answer any more; start it and its workers again "
            "and run the same command: finished shards are kept"
        ) from error
    finally:
        log.setLevel(level)


def fill_on(client: Client) -> Fill:
    """Return what lets ``extract`` have its shards computed by a cluster: the same bits.

    Client and workers share the folder of the stores, and a local model is at the same place for
    all of them.
    """

    def fill(store: Store, missing: Sequence[int], listed: Listed) -> None:
        """Raise a ClusterError where a shard's workers died again and again, or none is left."""
        label = f"{store.folder.name} on {len(client.nthreads())} workers"
        with closing(_in_order(client, _make_shard, store, missing)) as shards:
            for shard in progress(shards, label, unit="shard", total=len(missing)):
                listed(shard)

    return fill


def map_shards(
    function: Callable[[Store, int], Result], store: Store, client: Client
) -> Iterator[Result]:
    """Yield ``function(store, number)`` for each shard, in order, computed by a cluster.

    A worker opens a store's folder itself; where maps are computed it loads the model, too.

    Raises:
        ClusterError: a shard's workers died again and again, or none is left.
    """
    yield from _in_order(client, function, store, range(store.n_shards))


class _Place(NamedTuple):
    """Where a worker finds a store; with a model, which computes its maps, this and its device."""

    folder: Path
    key: str
    model: str | None = None
    device: Device = "auto"


def _place(store: Store) -> _Place:
    encoder, folder = store.encoder, store.folder.resolve()
    if encoder is None:
        return _Place(folder, store.key)
    local = Path(encoder.name).expanduser()
    model = str(local.resolve()) if local.is_dir() else encoder.name
    return _Place(folder, store.key, model, encoder.device.type)


def _in_order(
    client: Client, function: Callable[[Store, int], Result], store: Store, numbers: Sequence[int]
) -> Iterator[Result]:
    """Yield what workers return for shards, in order; each result is let go once it is here."""
    from distributed import KilledWorker
    from distributed.scheduler import NoWorkerError

    def give_up_without_workers(dask_scheduler: Scheduler) -> None:
        dask_scheduler.no_workers_timeout = dask_scheduler.no_workers_timeout or LOST

    # Dask would count the time before the first worker, too: some stand in a cluster's queue.
    client.wait_for_workers(1)
    client.run_on_scheduler(give_up_without_workers)
    task = partial(_on_shard, function, _place(store))
    pending = deque(zip(numbers, client.map(task, numbers, pure=False), strict=True))
    try:
        while pending:
            number, future = pending[0]
            yield future.result()
            pending.popleft()
    except KilledWorker as error:
        raise ClusterError(
            f"shard {number}: its workers died again and again; give them more memory, or fewer "
            "threads each; finished shards are kept"
        ) from error
    except NoWorkerError as error:
        raise ClusterError(
            f"no worker for {error.timeout:.0f} s: all of them have ended, and their output says "
            "why (a module that they cannot import, too little memory); finished shards are kept"
        ) from error
    finally:
        client.cancel([future for _, future in pending])


def _on_shard(function: Callable[[Store, int], Result], place: _Place, number: int) -> Result:
    """Apply a function to one shard in a worker, whose threads compute a shard each."""
    compute_alone()
    reuse()
    if not place.folder.is_dir():
        raise ClusterError(f"{place.folder}: not there on a worker; the cluster has to share it")
    with _OPENING:
        store = _opened(place)
    return function(store, number)


def _make_shard(store: Store, number: int) -> Shard:
    ((indices, records),) = store.work([number])
    tensors = shard_tensors(store.encoder, records, indices.start, **store.spec.maps)
    return write_shard(store.folder, number, tensors, indices, listed=lambda _: None)


@lru_cache(maxsize=2)
def _opened(place: _Place) -> Store:
    """Return a store; a process opens each of them once."""
    folder, encoder = place.folder, None
    if place.model is not None:
        encoder = load_encoder(folder, model=place.model, device=place.device)
    store = Store.open(folder, encoder)
    if store.key != place.key:
        raise ClusterError(f"{folder}: on a worker, another store than here; share one folder")
    return store
