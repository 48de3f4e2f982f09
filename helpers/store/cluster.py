"""The same work on many processes or machines, with Dask.

A shard is the unit.  Workers read its records from the store's folder, which all of them share,
load the model once a process, and write the shard under a temporary name before renaming it; the
client alone writes the manifest.  A shard whose worker is lost is computed again by another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from helpers.errors import InputError
from helpers.model.checkpoint import Device
from helpers.model.encoder import Encoder
from helpers.model.parallel import compute_alone, reuse
from helpers.progress import progress
from helpers.store.extract import Fill, Stream
from helpers.store.format import Listed, Shard
from helpers.store.inventory import load_encoder
from helpers.store.shards import shard_tensors, stop_signals, write_shard
from helpers.store.store import Records, Source, Store

if TYPE_CHECKING:
    from distributed import Client, Future

POLL = 0.02  # seconds between looks at a shard that is being computed elsewhere
CONNECT = 10  # seconds to wait for a scheduler
LOOK = 1.0  # seconds between looks at whether a worker is left
LOST = 300  # seconds without any worker, once there was one: the cluster has lost them for good
AHEAD = 4  # shards submitted for each thread of the cluster

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

    def fill(encoder: Encoder, records: Records, missing: Sequence[int], listed: Listed) -> None:
        """Raise a ClusterError where a shard's workers died again and again, or none is left."""
        task = partial(_on_shard, _make_shard, _Place.of(Stream.over(encoder, records)))
        label = f"{records.folder.name} on {len(client.nthreads())} workers"
        with stop_signals() as stop, closing(_in_order(client, task, missing, stop)) as shards:
            for shard in progress(shards, label, unit="shard", total=len(missing)):
                listed(shard)

    return fill


def map_shards(
    function: Callable[[Source, int], Result], source: Source, client: Client
) -> Iterator[Result]:
    """Yield ``function(source, number)`` for each shard, in order, computed by a cluster.

    A worker opens a store's folder itself; for a stream it loads the model, too.

    Raises:
        ClusterError: a shard's workers died again and again, or none is left.
    """
    task = partial(_on_shard, function, _Place.of(source))
    yield from _in_order(client, task, range(source.n_shards))


@dataclass(frozen=True)
class _Place:
    """Where a worker finds a source: its folder and key; for a stream, model and device too."""

    folder: Path
    key: str
    model: str | None = None
    device: Device = "auto"

    @classmethod
    def of(cls, source: Source) -> _Place:
        folder = source.folder.resolve()
        if not isinstance(source, Stream):
            return cls(folder, source.key)
        encoder, local = source.encoder, Path(source.encoder.name).expanduser()
        model = str(local.resolve()) if local.is_dir() else encoder.name
        return cls(folder, source.key, model, encoder.device.type)


def _in_order(
    client: Client,
    task: Callable[[int], Result],
    numbers: Iterable[int],
    stop: threading.Event | None = None,
) -> Iterator[Result]:
    """Yield the results in order; only so many are under way that they need not be kept."""
    from distributed import KilledWorker

    waiting, check_workers = iter(numbers), _worker_check(client)
    pending: deque[tuple[int, Future]] = deque()
    try:
        while True:
            for number in waiting:
                pending.append((number, client.submit(task, number, pure=False)))
                if len(pending) >= AHEAD * max(1, sum(client.nthreads().values())):
                    break
            if not pending:
                return
            number, future = pending[0]
            while not future.done():
                if stop is not None and stop.is_set():
                    return
                check_workers()
                time.sleep(POLL)
            yield future.result()
            pending.popleft()
    except KilledWorker as error:
        raise ClusterError(
            f"shard {number}: its workers died again and again; give them more memory, or fewer "
            "threads each; finished shards are kept"
        ) from error
    finally:
        client.cancel([future for _, future in pending])


def _worker_check(client: Client) -> Callable[[], None]:
    """Return what raises a ClusterError where all workers are gone, and Dask would wait forever.

    It does not before the first one was there: workers may stand in a cluster's queue.
    """
    looked = time.monotonic()
    seen = looked if client.nthreads() else None

    def check() -> None:
        nonlocal looked, seen
        now = time.monotonic()
        if now < looked + LOOK:
            return
        looked = now
        try:
            workers = client.nthreads()
        except OSError:  # the scheduler is gone, which ends the futures, too
            return
        if workers:
            seen = now
        elif seen is not None and now > seen + LOST:
            raise ClusterError(
                f"no worker for {LOST} s: all of them have ended, and their output says why (a "
                "module that they cannot import, too little memory); finished shards are kept"
            )

    return check


def _on_shard(function: Callable[[Source, int], Result], place: _Place, number: int) -> Result:
    """Apply a function to one shard in a worker, whose threads compute a shard each."""
    compute_alone()
    reuse()
    if not place.folder.is_dir():
        raise ClusterError(f"{place.folder}: not there on a worker; the cluster has to share it")
    with _OPENING:
        source = _opened(place)
    return function(source, number)


def _make_shard(stream: Stream, number: int) -> Shard:
    indices = stream.shard_examples(number)
    records = list(stream.records(indices))
    tensors = shard_tensors(stream.encoder, records, indices.start, **stream.spec.maps)
    return write_shard(stream.folder, number, tensors, indices, listed=lambda _: None)


@lru_cache(maxsize=2)
def _opened(place: _Place) -> Source:
    """Return a store, or with a model a stream; a process opens each of them once."""
    folder = place.folder
    if place.model is None:
        source = Store.open(folder)
    else:
        encoder = load_encoder(folder, model=place.model, device=place.device)
        source = Stream.over(encoder, Records.read(folder))
    if source.key != place.key:
        raise ClusterError(f"{folder}: on a worker, another store than here; share one folder")
    return source
