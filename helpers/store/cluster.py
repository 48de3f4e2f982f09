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
from typing import TYPE_CHECKING, Any, TypeVar

from helpers.errors import InputError
from helpers.model.loading import Model, load_model, model_key
from helpers.store.store import CODE_DIGEST, Store

if TYPE_CHECKING:
    from distributed import Client

CONNECT_TIMEOUT = 10  # seconds to wait for the scheduler's answer
NO_WORKER_TIMEOUT = "300s"  # without any local worker, after which the cluster counts as lost
KEPT = "finished shards are kept"

Result = TypeVar("Result")


def start_cluster(workers: int, scheduler: str) -> Client:
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
        raise InputError(
            "--workers and --scheduler need Dask, which is not installed; run 'pip install -e "
            ".[cluster]', or leave them out"
        ) from error
    # The errors that a user sees say the same as these logs.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler:
        try:
            return Client(scheduler, timeout=CONNECT_TIMEOUT)
        except (OSError, ValueError, MemoryError) as error:  # MemoryError: a server of HTTP
            raise _no_answer(scheduler) from error
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

    They are computed by Dask's active client if there is one, and here if not, or if the model was
    changed after it was loaded.  InputError if a shard's workers died again and again, or none is
    left.
    """
    client = _active_client()
    model = _how_to_load(store.encoder) if client and store.encoder else None
    if client is None or (store.encoder and model is None):
        yield from (function(store, number) for number in numbers)
        return
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoWorkerError

    task = partial(_on_worker, function, store.folder, store.manifest["code"], model)
    try:
        futures = client.map(task, numbers, pure=False)
        for future in futures:
            yield future.result()
            future.release()
    except (KilledWorker, NoWorkerError) as error:
        raise InputError(
            "every worker that computed a shard died, or none is left; read the reason in their "
            f"output (too little memory, a module that they cannot import); {KEPT}"
        ) from error
    except (CommClosedError, CancelledError) as error:
        raise _no_answer(client.scheduler.address) from error


def _active_client() -> Any:
    """Return Dask's default client; None if no cluster has been started."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed and distributed.default_client()
    except ValueError:
        return None


def _no_answer(address: str) -> InputError:
    """Return the error of a scheduler that does not answer."""
    return InputError(
        f"--scheduler {address}: does not answer; start it ('dask scheduler') and its workers "
        f"and run again with its address, tcp://HOST:8786; {KEPT}"
    )


def _how_to_load(encoder: Model) -> str | None:
    """Write as JSON how a worker loads a model; None if the model was changed after loading.

    The key of a model has the name of its folder, but not the path, which workers need.
    """
    folder = Path(encoder.name).expanduser()
    name = str(folder.resolve()) if folder.is_dir() else encoder.name
    options: dict[str, Any] = {
        option: encoder.key.get(option) for option in ("revision", "dtype", "random_init")
    }
    key = dict(encoder.key)
    matched_to = key.pop("matched to", None)
    if key != model_key(name, **options):
        return None
    options |= {"name": name, "device": encoder.model.device.type}
    return json.dumps([options, encoder.temperatures, matched_to])


def _on_worker(
    function: Callable[[Store, int], Result],
    folder: Path,
    code: str,
    model: str | None,
    number: int,
) -> Result:
    """Apply a function to one shard in a worker."""
    return function(_opened(folder, code, model), number)


@lru_cache(maxsize=2)
def _opened(folder: Path, code: str, model: str | None) -> Store:
    """Open a store and load its model; InputError if a worker lacks one, or has other code."""
    from helpers.store.examples import ComputedStore  # imports torch

    encoder = None
    if model:
        options, temperatures, matched_to = json.loads(model)
        encoder = _load_encoder(**options)
        if temperatures:
            encoder = encoder.with_temperatures(temperatures, matched_to)
    if folder.is_dir() and code == CODE_DIGEST:
        store = ComputedStore(folder, encoder) if encoder else Store(folder)
        if encoder is None or encoder.key == store.manifest["model"]:
            return store
    raise InputError(
        f"{folder}: a worker does not find this store, or has other code or another model; set "
        "ATTENTION_CACHE to a folder that all machines of the cluster share, and put the same code "
        "and model on them"
    )


_load_encoder = lru_cache(maxsize=1)(load_model)  # once per process
