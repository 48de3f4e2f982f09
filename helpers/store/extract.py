"""Run a model over a corpus and put its attention maps into a store."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from helpers.data.records import Corpus
from helpers.errors import Interrupted, ModelError
from helpers.model.encoder import Encoder
from helpers.progress import progress
from helpers.store.examples import write_examples
from helpers.store.format import (
    EXAMPLES,
    KEY,
    MANIFEST,
    REPORT,
    Level,
    Shard,
    StoreKey,
    check_free,
    check_key,
    remove_temporary,
    shard_name,
    write_errors,
    write_key,
    write_manifest,
)
from helpers.store.shards import STORED, Tensors, Work, finished_shard, shards_tensors, write_shard
from helpers.store.store import Records, Store

EXAMPLES_PER_SHARD: dict[Level, int] = {"token": 32, "word": 256}
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors")

Fill = Callable[[Encoder, Records], list[Shard]]


def store_key(
    encoder: Encoder, corpus: Corpus, *, level: Level, max_tokens: int, hidden: bool = False
) -> StoreKey:
    """Return the key of the store that ``extract`` fills with the same arguments.

    Raises:
        ModelError: ``max_tokens`` is more than the model takes.
    """
    if not 8 <= max_tokens <= encoder.max_length:
        raise ModelError(
            f"model {encoder.name!r}: --max-tokens {max_tokens} is not between 8 and "
            f"{encoder.max_length}, the longest input it takes"
        )
    return StoreKey(
        model=model_facts(encoder),
        corpus={"name": corpus.name, "fingerprint": corpus.fingerprint},
        level=level,
        dtype=np.dtype(STORED).name,
        max_tokens=max_tokens,
        examples_per_shard=EXAMPLES_PER_SHARD[level],
        tokenizer_sha256=encoder.tokenizer_sha256,
        special_tokens=encoder.special_tokens,
        hidden=hidden,
    )


def model_facts(encoder: Encoder) -> dict[str, Any]:
    """Return what a store's key says of its model."""
    return {**encoder.identity, "compute_dtype": encoder.dtype}


def extract(
    encoder: Encoder,
    corpus: Corpus,
    *,
    level: Level = "token",
    max_tokens: int = 128,
    hidden: bool = False,
    root: Path | None = None,
    fill: Fill | None = None,
) -> Store:
    """Return the store of a model's maps over a corpus, computing what is not there yet.

    ``level`` is ``token`` for segments and ``word`` for treebanks and coreference (section 4.1).
    ``hidden`` also stores each layer's vectors, for the structural probe.  ``fill`` computes the
    shards: in this process (None), or where :mod:`helpers.store.cluster` says.  Interrupted work
    goes on at the first unfinished shard.  One process fills a store; a second one waits for it.

    Raises:
        ModelError: ``max_tokens`` is more than the model takes, or its maps are no distributions.
        StoreError: the folder holds something else, is damaged, or the disk is full.
        Interrupted: on Ctrl-C or SIGTERM, once the shard in work is finished.
    """
    key = store_key(encoder, corpus, level=level, max_tokens=max_tokens, hidden=hidden)
    folder = key.folder(root)
    if not (folder / MANIFEST).is_file():
        records = prepare(encoder, corpus, key, folder)
        with only_one(folder):
            if not (folder / MANIFEST).is_file():
                remove_temporary(folder)
                check_free(folder, missing_bytes(encoder, records))
                shards = (fill or fill_here)(encoder, records)
                remove_temporary(folder)
                finish(records, shards)
    return Store.open(folder, key)


def prepare(encoder: Encoder, corpus: Corpus, key: StoreKey, folder: Path) -> Records:
    """Write the list of work, unless it is there, and return it.

    Raises:
        InputError: the corpus yields no example.
        StoreError: the list is damaged, or the disk is full.
    """
    if not (folder / KEY).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder):
            if not (folder / KEY).is_file():
                with write_errors(folder / EXAMPLES):
                    write_examples(encoder, corpus, folder, key.max_tokens)
                    write_key(folder, key)
    return Records.read(folder, key)


def fill_here(encoder: Encoder, records: Records) -> list[Shard]:
    """Compute the shards that are not there; writing one overlaps with computing the next.

    Raises:
        Interrupted: on Ctrl-C or SIGTERM, once the shard in work is finished.
    """
    spec = records.spec
    shards = _finished(records)
    done = {shard.file for shard in shards}
    missing = [n for n in range(records.n_shards) if shard_name(n) not in done]
    label = f"{spec.model['name']} over {spec.corpus['name']}"
    maps = shards_tensors(encoder, work(records, missing), level=spec.level, hidden=spec.hidden)
    written: Future[Shard] | None = None
    with stop_signals() as stop, ThreadPoolExecutor(1) as writer, closing(maps):
        bar = progress(zip(missing, maps, strict=True), label, unit="shard", total=len(missing))
        for number, (_, tensors) in bar:
            if written is not None:
                shards.append(written.result())  # at most one shard waits to be written
            written = writer.submit(_write, records, number, tensors)
            if stop.is_set() and number != missing[-1]:
                shards.append(written.result())
                raise interrupted(len(shards), records)
    if written is not None:
        shards.append(written.result())
    return sorted(shards, key=lambda shard: shard.first)


def work(records: Records, numbers: list[int]) -> Iterator[Work]:
    """Yield the indices and records of shards."""
    for number in numbers:
        indices = records.shard_examples(number)
        yield indices, list(records.records(indices))


def interrupted(done: int, records: Records) -> Interrupted:
    """Return the error that says how far an interrupted extraction got, and how to go on."""
    return Interrupted(
        f"stopped after {done} of {records.n_shards} shards of {records.folder.name}; "
        "run the same command again to go on from there"
    )


def finish(records: Records, shards: list[Shard]) -> None:
    """Write the manifest of a store whose shards are all there."""
    report = json.loads((records.folder / REPORT).read_text(encoding="utf-8"))
    versions = {package: version(package) for package in PACKAGES}
    extra = {"report": report, "versions": versions}
    write_manifest(records.folder, records.spec, shards, extra)


def missing_bytes(encoder: Encoder, records: Records) -> int:
    """Return how many bytes the shards that are not there will take (headers left out)."""
    spec, width = records.spec, getattr(encoder.model.config, "hidden_size", 0)
    maps = spec.model["layers"] * spec.model["heads"]
    vectors = (spec.model["layers"] + 1) * width if spec.hidden else 0
    needed = 0
    for record in records.records():
        special = record.get("offset", 0) + (spec.special_tokens["sep"] is not None)
        n = len(record["tokens"]) if "tokens" in record else len(record["words"]) + special
        needed += (maps * n**2 + vectors * n) * np.dtype(STORED).itemsize
    names = [shard_name(number) for number in range(records.n_shards)]
    present = [path for name in names if (path := records.folder / name).is_file()]
    return needed - sum(path.stat().st_size for path in present)


def check_model(encoder: Encoder, folder: Path, spec: StoreKey) -> None:
    """Check that an encoder is the one that a store was made with.

    Raises:
        StoreError: it is not; the message names the first difference.
    """
    wanted = replace(
        spec,
        model=model_facts(encoder),
        tokenizer_sha256=encoder.tokenizer_sha256,
        special_tokens=encoder.special_tokens,
    )
    check_key(folder, spec, wanted)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time change a store; the lock of a dead process is free."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{folder.name}: another process is filling it; waiting", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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


def _write(records: Records, number: int, tensors: Tensors) -> Shard:
    """Write a shard and let go of its tensors, which the loop and its bar still hold."""
    indices = records.shard_examples(number)
    shard = write_shard(records.folder, number, tensors, indices, records.spec.hash)
    tensors.clear()
    return shard


def _finished(records: Records) -> list[Shard]:
    """Return the shards that an earlier run has finished."""
    numbers = progress(range(records.n_shards), "looking for finished shards", unit="shard")
    found = (
        finished_shard(records.folder, number, records.shard_examples(number), records.spec.hash)
        for number in numbers
    )
    return [shard for shard in found if shard is not None]
