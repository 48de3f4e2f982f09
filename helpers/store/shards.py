"""Shards: consecutive examples with their maps, computed in one pass and written whole.

A shard is a pure function of the model and of its records: it can be computed again, in any
order, in any process and on any number of threads, with the same bits.  For this, batches run
side by side and each of them on one thread; a batch on several threads would round differently
with their number (and, at this size, be slower).
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.numpy import save_file
from torch import Tensor

from helpers.data.records import Record
from helpers.errors import ModelError
from helpers.model.checkpoint import Lens
from helpers.model.encoder import Encoder
from helpers.model.forward import Inputs, Pass, lens_pass, model_inputs
from helpers.model.parallel import compute_alone, length_batches, trim
from helpers.model.tokens import to_words, vectors_to_words
from helpers.paths import sha256, whole_file
from helpers.progress import progress
from helpers.store.format import STORED, Level, Listed, Shard, Tensors, shard_name, tensor_name
from helpers.store.store import Records

LARGEST = float(np.finfo(STORED).max)
ROW_SUM_TOLERANCE = 0.02  # what bfloat16 rounding can add up to over a row
# Padded tokens in a forward pass: what stays in the caches of one core; on a GPU, what fills it.
BATCH_TOKENS = {"cpu": 512}
BATCH_TOKENS_ACCELERATED = 4096

Work = tuple[range, list[Record]]


def fill_here(encoder: Encoder, records: Records, missing: Sequence[int], listed: Listed) -> None:
    """Compute shards in this process; writing one overlaps with computing the next.

    On Ctrl-C or SIGTERM it ends early, once the shard in work is finished.
    """
    spec, folder = records.spec, records.folder
    label = f"{spec.model['name']} over {spec.corpus['name']}"
    maps = shards_tensors(encoder, records.work(missing), **spec.maps)

    def write(number: int, indices: range, tensors: Tensors) -> None:
        write_shard(folder, number, tensors, indices, listed)
        tensors.clear()  # the loop and its bar still hold them

    writing: Future[None] | None = None
    with stop_signals() as stop, ThreadPoolExecutor(1) as writer, closing(maps):
        bar = progress(zip(missing, maps, strict=True), label, unit="shard", total=len(missing))
        for number, (indices, tensors) in bar:
            if writing is not None:
                writing.result()  # at most one shard waits to be written
            writing = writer.submit(write, number, indices, tensors)
            if stop.is_set():
                break
        if writing is not None:
            writing.result()


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
        while before:
            signal.signal(*before.popitem())

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


def shard_tensors(encoder: Encoder, records: list[Record], first: int, **options: Any) -> Tensors:
    """Compute one shard: the tensors of examples ``first`` to ``first + len(records)``."""
    work = [(range(first, first + len(records)), records)]
    ((_, tensors),) = shards_tensors(encoder, work, **options)
    return tensors


def shards_tensors(
    encoder: Encoder,
    work: Iterable[Work],
    *,
    level: Level,
    lens: Lens = "attention",
    hidden: bool = False,
) -> Iterator[tuple[range, Tensors]]:
    """Compute shards, in order, on all threads; the next shard is begun before one is done.

    Yields each shard's indices and tensors: ``attention/000123`` ``[layer, head, query, key]``,
    ``token_ids/...`` ``[token]`` (token level) and, if asked for,
    ``hidden/...`` ``[layer, position, width]``.

    Raises:
        ModelError: rows of a map do not sum to 1.
    """
    with lens_pass(encoder, lens) as run, _one_thread_each(encoder) as (pool, threads):
        pending: deque[tuple[range, list[Future[Tensors]]]] = deque()
        try:
            for indices, records in work:
                batches = _batches(encoder, records, indices.start)
                jobs = [pool.submit(_batch, encoder, b, run, level, hidden) for b in batches]
                pending.append((indices, jobs))
                while len(pending) > 1 and _unfinished(pending) >= 2 * threads:
                    yield _collected(pending)
                    trim()
            while pending:
                yield _collected(pending)
                trim()
        finally:
            for _, jobs in pending:
                for job in jobs:
                    job.cancel()


def _batches(
    encoder: Encoder, records: list[Record], first: int
) -> Iterator[list[tuple[int, Inputs]]]:
    """Yield a shard's batches; which one an example is in depends on its shard alone."""
    inputs = [model_inputs(encoder, record) for record in records]
    budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS_ACCELERATED)
    lengths = [len(item["input_ids"]) for item in inputs]
    for batch in length_batches(lengths, budget=budget, longest_first=True):
        yield [(first + i, inputs[i]) for i in batch]


@torch.inference_mode()
def _batch(
    encoder: Encoder,
    batch: list[tuple[int, Inputs]],
    run: Pass,
    level: Level,
    hidden: bool,
) -> Tensors:
    """Return the tensors of one batch's examples, as they are stored."""
    attentions, states = run([item for _, item in batch], hidden=hidden)
    tensors: Tensors = {}
    for row, (index, item) in enumerate(batch):
        length = len(item["input_ids"])
        layers = [layer[row, :, :length, :length] for layer in attentions]
        if level == "word":
            layers = list(to_words(torch.stack(layers).float(), item["groups"]))
        else:
            tensors[tensor_name("token_ids", index)] = np.array(item["input_ids"], dtype=np.int32)
        tensors[tensor_name("attention", index)] = _stored(encoder, layers, index)
        if hidden:
            vectors = torch.stack([layer[row, :length] for layer in states]).float()
            if level == "word":
                vectors = vectors_to_words(vectors, item["groups"])
            _check_vectors(encoder, vectors, index)
            tensors[tensor_name("hidden", index)] = vectors.cpu().numpy().astype(STORED)
    return tensors


def _stored(
    encoder: Encoder, layers: list[Float[Tensor, "head query key"]], index: int
) -> Float[np.ndarray, "layer head query key"]:
    """Return maps as they are stored, after checking that each row is a distribution."""
    # Layer by layer into their place, in half precision: stacking would copy all maps once more.
    maps = torch.empty((len(layers), *layers[0].shape), dtype=torch.half, device=layers[0].device)
    sums = torch.empty(maps.shape[:-1], device=maps.device)
    for number, layer in enumerate(layers):
        maps[number].copy_(layer)
        torch.sum(layer, dim=-1, dtype=torch.float32, out=sums[number])
    error = (sums - 1).abs().max()
    if not error < ROW_SUM_TOLERANCE:  # NaN is not smaller either
        raise ModelError(
            f"model {encoder.name!r}: an attention row of example {index} is off from summing to "
            f"1 by {error:.3g}; try --dtype float32"
        )
    return maps.cpu().numpy()


def _check_vectors(
    encoder: Encoder, vectors: Float[Tensor, "layer position width"], index: int
) -> None:
    """Check that vectors can be stored: large models have some that half precision cannot hold.

    Raises:
        ModelError: one is not finite, or beyond it.
    """
    largest = vectors.abs().amax(dim=(1, 2))  # of each layer; NaN where there is one
    if not (largest <= LARGEST).all():
        layer = int((largest <= LARGEST).logical_not().nonzero()[0])
        finite = "try --dtype float32" if not largest[layer].isfinite() else "it cannot be stored"
        raise ModelError(
            f"model {encoder.name!r}: in example {index}, layer {layer} (0: the embeddings), a "
            f"hidden state reaches {largest[layer]:,.0f}, and {np.dtype(STORED)} holds "
            f"{LARGEST:,.0f}; {finite}"
        )


@contextmanager
def _one_thread_each(encoder: Encoder) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """Yield a pool as wide as torch's own, whose threads compute alone, and its width."""
    width = torch.get_num_threads()
    threads = width if encoder.device.type == "cpu" else 1
    try:
        with ThreadPoolExecutor(threads, "batch", initializer=compute_alone) as pool:
            yield pool, threads
    finally:
        torch.set_num_threads(width)


def _unfinished(pending: Iterable[tuple[range, list[Future[Tensors]]]]) -> int:
    return sum(not job.done() for _, jobs in pending for job in jobs)


def _collected(pending: deque[tuple[range, list[Future[Tensors]]]]) -> tuple[range, Tensors]:
    """Return the oldest shard, waiting for its batches."""
    indices, jobs = pending[0]
    tensors = {name: tensor for job in jobs for name, tensor in job.result().items()}
    pending.popleft()
    return indices, dict(sorted(tensors.items()))


def write_shard(
    folder: Path, number: int, tensors: Tensors, indices: range, listed: Listed
) -> Shard:
    """Write the shard of the examples ``indices``; ``listed`` is called before it has its name.

    Raises:
        StoreError: the disk is full.
    """
    dense = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    path = folder / shard_name(number)
    # Straight from the tensors' memory: bytes in between would hold every map two times more.
    with whole_file(path, sum(tensor.nbytes for tensor in dense.values())) as temporary:
        save_file(dense, temporary)
        size, digest = temporary.stat().st_size, sha256(temporary)
        shard = Shard(path.name, indices.start, len(indices), size, digest)
        listed(shard)
    return shard
