"""The same work on many processes or machines, with Dask.

A shard is the unit.  Workers read its records from the store's folder, which all of them share,
load the model once a process, and write the shard under a temporary name before renaming it; the
client alone writes the manifest.  A shard whose worker is lost is computed again by another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from helpers.data.records import Corpus
from helpers.errors import InputError
from helpers.model.checkpoint import Device, DType
from helpers.model.encoder import Encoder, load
from helpers.model.parallel import compute_alone, reuse
from helpers.progress import progress
from helpers.store.extract import extract, interrupted, stop_signals
from helpers.store.format import Level, Shard
from helpers.store.shards import finished_shard, shard_tensors, write_shard
from helpers.store.store import Records, Source, Store
from helpers.store.stream import Stream

if TYPE_CHECKING:
    from distributed import Client, Future

POLL = 0.02  # seconds between looks at a shard that is being computed elsewhere
CONNECT = 10  # seconds to wait for a scheduler
AHEAD = 4  # shards submitted for each thread of the cluster

_OPENING = threading.Lock()

Result = TypeVar("Result")


class ClusterError(InputError):
    """A Dask cluster cannot be had, or keeps losing the workers of a shard."""


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
    if scheduler:
        with _connected(scheduler) as client:
            yield client
        return
    if workers < 1:
        raise ClusterError(f"--workers {workers}: give at least 1")
    threads = max(1, torch.get_num_threads() // workers)
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port, seen from this machine alone
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def extract_distributed(
    encoder: Encoder,
    corpus: Corpus,
    client: Client,
    *,
    level: Level = "token",
    max_tokens: int = 128,
    hidden: bool = False,
    root: Path | None = None,
) -> Store:
    """Return the same store as ``extract``, to the last bit, its shards computed by a cluster.

    ``root`` (or ``ATTENTION_CACHE``) is a folder that client and workers share, and a local
    model is at the same place for all of them.

    Raises:
        ClusterError: a shard's workers died again and again.
        InputError: what ``extract`` raises.
    """
    return extract(
        encoder,
        corpus,
        level=level,
        max_tokens=max_tokens,
        hidden=hidden,
        root=root,
        fill=partial(_fill_on, client),
    )


def map_shards(
    function: Callable[[Source, int], Result], source: Source, client: Client
) -> Iterator[Result]:
    """Yield ``function(source, number)`` for each shard, in order, computed by a cluster.

    A worker opens a store's folder itself; for a stream it loads the model, too.

    Raises:
        ClusterError: a shard's workers died again and again.
    """
    encoder = _EncoderSpec.of(source.encoder) if isinstance(source, Stream) else None
    task = partial(_on_shard, function, source.folder.resolve(), encoder)
    yield from _in_order(client, task, range(source.n_shards))


@dataclass(frozen=True)
class _EncoderSpec:
    """How a worker gets the client's encoder."""

    name: str
    revision: str | None
    device: Device
    dtype: DType
    random_init: int | None

    @classmethod
    def of(cls, encoder: Encoder) -> _EncoderSpec:
        folder, facts = Path(encoder.name).expanduser(), encoder.identity
        return cls(
            name=str(folder.resolve()) if folder.is_dir() else encoder.name,
            revision=facts.get("revision"),
            device=encoder.device.type,
            dtype=encoder.dtype,
            random_init=facts["random_init"],
        )


def _fill_on(client: Client, encoder: Encoder, records: Records) -> list[Shard]:
    folder = records.folder.resolve()
    task = partial(_make_shard, _EncoderSpec.of(encoder), folder, records.spec.hash)
    shards: list[Shard] = []
    with stop_signals() as stop:
        results = _in_order(client, task, range(records.n_shards), stop)
        label = f"{records.folder.name} on {len(client.nthreads())} workers"
        with closing(results):
            for shard in progress(results, label, unit="shard", total=records.n_shards):
                shards.append(shard)
    if len(shards) < records.n_shards:
        raise interrupted(len(shards), records)
    return shards


def _in_order(
    client: Client,
    task: Callable[[int], Result],
    numbers: Iterable[int],
    stop: threading.Event | None = None,
) -> Iterator[Result]:
    """Yield the results in order; only so many are under way that they need not be kept."""
    from distributed import KilledWorker

    waiting = iter(numbers)
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


def _make_shard(encoder: _EncoderSpec, folder: Path, key: str, number: int) -> Shard:
    """Make one shard in a worker, unless it is there."""
    stream = _opened(folder, encoder)
    if stream.key != key:
        raise ClusterError(f"{folder}: on a worker, another store than here; share one folder")
    indices = stream.shard_examples(number)
    shard = finished_shard(folder, number, indices, key)
    if shard is not None:
        return shard
    _begin()
    tensors = shard_tensors(
        stream.encoder,
        list(stream.records(indices)),
        indices.start,
        level=stream.level,
        hidden=stream.spec.hidden,
    )
    return write_shard(folder, number, tensors, indices, key)


def _on_shard(
    function: Callable[[Source, int], Result],
    folder: Path,
    encoder: _EncoderSpec | None,
    number: int,
) -> Result:
    """Apply a function to one shard in a worker."""
    _begin()
    return function(_opened(folder, encoder), number)


def _begin() -> None:
    """Prepare a worker's thread: each computes a shard alone."""
    compute_alone()
    reuse()


def _opened(folder: Path, encoder: _EncoderSpec | None) -> Source:
    """Return a store, or with an encoder a stream; a process opens each of them once."""
    if not folder.is_dir():
        raise ClusterError(f"{folder}: not there on a worker; the cluster has to share it")
    with _OPENING:
        return _open_once(folder, encoder)


@lru_cache(maxsize=2)
def _open_once(folder: Path, encoder: _EncoderSpec | None) -> Source:
    if encoder is None:
        return Store.open(folder)
    return Stream.reopen(_load_once(encoder), folder)


@lru_cache(maxsize=2)
def _load_once(encoder: _EncoderSpec) -> Encoder:
    return load(
        encoder.name,
        revision=encoder.revision,
        device=encoder.device,
        dtype=encoder.dtype,
        random_init=encoder.random_init,
    )


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    from distributed import Client

    try:
        client = Client(scheduler, timeout=CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"--scheduler {scheduler}: does not answer; start it with 'dask scheduler' and give "
            "its address, tcp://HOST:8786"
        ) from error
    with client:
        yield client
