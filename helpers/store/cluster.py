"""Extract maps, and compute over them, on several processes or machines with Dask.

A shard is the unit of work.  Workers read its records from the store's folder, which all of them
share, load the model once per process, and write the shard under a temporary name before renaming
it.  Only the client writes the manifest.  If a worker is lost, another one computes its shard.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from helpers.errors import InputError
from helpers.model.encoder import Device, Encoder, load_encoder
from helpers.progress import progress
from helpers.store.extract import model_key, write_shard
from helpers.store.format import read_manifest
from helpers.store.store import Store
from helpers.torch_utils import set_torch_threads

if TYPE_CHECKING:
    from distributed import Client

CONNECT_TIMEOUT = 10  # seconds to wait for the scheduler's answer
NO_WORKER_TIMEOUT = "300s"  # without any local worker, after which the cluster counts as lost

# A worker computes one shard at a time, whatever its number of threads: passes that run while torch
# compiles the distances would mix their maps.
_ONE_SHARD = threading.Lock()

Result = TypeVar("Result")


def dask_client(*, scheduler: str = "", workers: int = 0) -> Client:
    """Connect to a ``scheduler`` (``tcp://...``), or start local ``workers``; use it with ``with``.

    InputError if Dask is not installed, or the scheduler does not answer.
    """
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
    if not scheduler:
        with dask.config.set({"distributed.scheduler.no-workers-timeout": NO_WORKER_TIMEOUT}):
            return Client(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any free port, visible on this machine only
                silence_logs=logging.CRITICAL,  # errors of tasks reach the client
            )
    try:
        return Client(scheduler, timeout=CONNECT_TIMEOUT)
    except (OSError, ValueError, MemoryError) as error:  # MemoryError: a server that speaks HTTP
        raise _no_answer(scheduler) from error


def _no_answer(address: str) -> InputError:
    """Return the error of a scheduler that does not answer."""
    return InputError(
        f"--scheduler {address}: does not answer; start it ('dask scheduler') and its workers "
        "and run again with its address, tcp://HOST:8786; finished shards are kept"
    )


def extract_on_cluster(client: Client, store: Store, missing: Sequence[int]) -> None:
    """Compute and write missing shards on a cluster.

    The workers share the folders of the stores and of a local model.  InputError if a shard's
    workers died again and again, or none is left.
    """
    threads = cast("dict[str, int]", client.nthreads())  # by worker
    label = f"{store.folder.name} on {len(threads)} workers"
    for _ in progress(
        map_shards(_make_shard, store, client, missing), label, unit="shard", total=len(missing)
    ):
        pass


def map_shards(
    function: Callable[[Store, int], Result],
    store: Store,
    client: Client,
    numbers: Sequence[int],
) -> Iterator[Result]:
    """Yield ``function(store, number)`` for shards, in order, computed by a cluster.

    A worker opens the store, and loads the model if the store computes its maps.  Errors as in
    `extract_on_cluster`.
    """
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoWorkerError

    model = None
    if not all(map(store.is_stored, numbers)):
        encoder = cast("Encoder", store.encoder)
        folder = Path(encoder.name).expanduser()
        name = str(folder.resolve()) if folder.is_dir() else encoder.name
        model = (name, cast("Device", encoder.model.device.type))
    task = partial(_on_shard, function, store.folder.resolve(), store.key, model)
    # Dask forgets a result when its future is dropped, and what nobody waits for any more.
    futures = deque(zip(numbers, client.map(task, numbers, pure=False), strict=True))
    try:
        while futures:
            number, future = futures.popleft()
            yield future.result()
    except KilledWorker as error:
        raise InputError(
            f"shard {number}: every worker that computed it died; give workers more memory; "
            "finished shards are kept"
        ) from error
    except NoWorkerError as error:
        raise InputError(
            f"no worker for {error.timeout:.0f} s, so all have ended; read the reason in their "
            "output (a module that they cannot import, too little memory); finished shards are kept"
        ) from error
    except (CommClosedError, FutureCancelledError) as error:
        raise _no_answer(cast("Any", client.scheduler).address) from error


def _on_shard(
    function: Callable[[Store, int], Result],
    folder: Path,
    key: str,
    model: tuple[str, Device] | None,
    number: int,
) -> Result:
    """Apply a function to one shard in a worker, which computes on one thread."""
    with _ONE_SHARD:
        set_torch_threads()
        return function(_opened(folder, key, model), number)


def _make_shard(store: Store, number: int) -> None:
    """Compute and write one shard in a worker."""
    write_shard(store.folder, number, store.compute(number))


@lru_cache(maxsize=2)
def _opened(folder: Path, key: str, model: tuple[str, Device] | None) -> Store:
    """Open a store, once per process, with its encoder if it computes its maps.

    A store has the name of a local model folder, but not its path, which ``model`` has.  InputError
    if the folder, the code or the model is not that of the client.
    """
    if folder.is_dir():
        encoder = None
        manifest = read_manifest(folder)
        spec = manifest.spec
        if model is not None:
            name, device = model
            encoder = load_encoder(
                name,
                revision=spec.model.get("revision"),
                device=device,
                dtype=spec.model["compute_dtype"],
                random_init=spec.model["random_init"],
                temperatures=spec.model.get("temperatures"),
            )
        store = Store(folder, encoder, manifest=manifest)
        is_same_model = encoder is None or replace(spec, **model_key(encoder)) == spec
        if store.key == key and is_same_model:
            return store
    raise InputError(
        f"{folder}: a worker does not find this store, or has other code or another model; set "
        "ATTENTION_CACHE to a folder that all machines of the cluster share, and put the same code "
        "and model on them"
    )
