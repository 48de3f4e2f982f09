"""Compute shards here, or on the processes and machines of a Dask cluster.

A shard is the unit of work.  Workers read records and shards from the store's folder, which all of
them share, and load the model, if maps are to be computed, once per process.  If a worker is lost,
another one computes its shard.  Workers should have one thread each.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from helpers.errors import InputError
from helpers.model.loading import Model, load_model
from helpers.store.store import CODE_DIGEST, Store

CONNECT_TIMEOUT = 10  # seconds to wait for the scheduler's answer
NO_WORKER_TIMEOUT = "300s"  # without any local worker, after which the cluster counts as lost

Result = TypeVar("Result")


def start_cluster(workers: int, scheduler: str) -> Any:
    """Start local ``workers``, or connect to a ``scheduler`` (``tcp://...``), for `map_shards`.

    A client that is active already is taken.  InputError if Dask is not installed, or the scheduler
    does not answer.
    """
    client = _active_client()
    if client is not None:
        return client
    try:
        import dask.config
        from distributed import Client
    except ImportError as error:
        raise InputError("Dask is not installed; run pip install -e '.[cluster]'") from error
    # The errors that a user sees say the same as these logs.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler:
        try:
            return Client(scheduler, timeout=CONNECT_TIMEOUT)
        except (OSError, ValueError, MemoryError) as error:  # MemoryError: a server of HTTP
            raise _lost_cluster(scheduler, error) from error
    settings = {
        "distributed.scheduler.no-workers-timeout": NO_WORKER_TIMEOUT,
        # Not Dask's other variable, which makes every batch ask the system for its memory anew.
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
    }
    with dask.config.set(settings):
        return Client(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # any free port, visible on this machine only
            silence_logs=logging.CRITICAL,
        )


def map_shards(
    function: Callable[[Store, int], Result], store: Store, numbers: Sequence[int]
) -> Iterator[Result]:
    """Yield ``function(store, number)`` for shards, in order.

    They are computed by Dask's active client, or here if there is none.  InputError if a shard's
    workers died again and again, or none is left.
    """
    client = _active_client()
    if client is None:
        yield from map(partial(function, store), numbers)
        return
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoWorkerError

    opening = (type(store), store.folder, _source(store.encoder))
    task = partial(_on_worker, function, opening)
    try:
        for future in client.map(task, numbers, pure=False):
            yield future.result()
            future.release()
    except (KilledWorker, NoWorkerError, CommClosedError, CancelledError) as error:
        raise _lost_cluster(client.scheduler.address, error) from error


def _active_client() -> Any:
    """Return Dask's default client; None if no cluster has been started."""
    try:
        return sys.modules["distributed"].default_client()
    except (KeyError, ValueError):
        return None


def _lost_cluster(address: str, error: Exception) -> InputError:
    """Return the error of a cluster whose scheduler or workers do not answer."""
    problem = (
        f"the cluster at {address} does not answer, or its workers died ({type(error).__name__})"
    )
    remedy = "see their output (too little memory, a missing module), start it again, and run again"
    return InputError(f"{problem}; {remedy}: finished shards are kept")


def _source(encoder: Model | None) -> str:
    """Write as JSON how a worker loads a model; the model's key has no path of its folder."""
    if encoder is None:
        return ""
    folder = Path(encoder.name).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else encoder.name
    return json.dumps([name, encoder.model.device.type, encoder.temperatures, dict(encoder.key)])


@lru_cache(maxsize=1)
def _loaded(source: str) -> Model:
    """Load a model once per process."""
    name, device, temperatures, key = json.loads(source)
    options = {"revision": key.get("revision"), "random_init": key["random_init"]}
    encoder = load_model(name, device=device, dtype=key["dtype"], **options)
    if "layer order" in key:
        encoder = encoder.with_reordered_layers(key["layer order"]["seed"])
    return encoder.with_temperatures(temperatures, key["matched to"]) if temperatures else encoder


@lru_cache(maxsize=2)
def _opened(store_class: Callable[..., Store], folder: Path, source: str) -> Store:
    """Open a store in a worker, with its model if it has one.

    InputError if the worker does not find the store, or has other code or another model.
    """
    store = store_class(folder, _loaded(source) if source else None)
    is_same_model = not source or store.encoder.key == store.manifest["model"]
    if not is_same_model or store.manifest["code"] != CODE_DIGEST:
        raise InputError(f"{folder}: a worker has other code or another model than this store")
    return store


def _on_worker(function: Callable[[Store, int], Result], opening: tuple, number: int) -> Result:
    """Apply a function to one shard in a worker; ``opening`` says how to open the store."""
    return function(_opened(*opening), number)
