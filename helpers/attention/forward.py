"""The maps of a shard: one pass of the model, in batches of similar length.

A shard is a pure function of the model and of its records: it can be computed again, in any
order, in any process and on any number of threads, with the same bits.  For this, batches run
side by side and each of them on one thread; a batch on several threads would round differently
with their number (and, at this size, be slower).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from helpers.attention.manifest import Level
from helpers.attention.memory import trim
from helpers.attention.models import Encoder
from helpers.attention.prepare import Record
from helpers.attention.store import tensor_name
from helpers.attention.words import to_words, vectors_to_words, word_groups
from helpers.errors import ModelError

STORED = np.float16
ROW_SUM_TOLERANCE = 0.02  # what bfloat16 rounding can add up to over a row
# Padded tokens in a forward pass: what stays in the caches of one core; on a GPU, what fills it.
BATCH_TOKENS = {"cpu": 512}
BATCH_TOKENS_ACCELERATED = 4096

Inputs = dict[str, Any]
Tensors = dict[str, np.ndarray]
Work = tuple[range, list[Record]]


def shard_tensors(
    encoder: Encoder, records: list[Record], first: int, *, level: Level, hidden: bool = False
) -> Tensors:
    """Compute one shard: the tensors of examples ``first`` to ``first + len(records)``."""
    work = [(range(first, first + len(records)), records)]
    ((_, tensors),) = shards_tensors(encoder, work, level=level, hidden=hidden)
    return tensors


def shards_tensors(
    encoder: Encoder, work: Iterable[Work], *, level: Level, hidden: bool = False
) -> Iterator[tuple[range, Tensors]]:
    """Compute shards, in order, on all threads; the next shard is begun before one is done.

    Yields each shard's indices and tensors: ``attention/000123`` ``[layer, head, query, key]``,
    ``token_ids/...`` ``[token]`` (token level) and, if asked for,
    ``hidden/...`` ``[layer, position, width]``.

    Raises:
        ModelError: rows of a map do not sum to 1.
    """
    with _one_thread_each(encoder) as (pool, threads):
        pending: deque[tuple[range, list[Future[Tensors]]]] = deque()
        try:
            for indices, records in work:
                batches = _batches(encoder, records, indices.start)
                jobs = [pool.submit(_batch, encoder, b, level, hidden) for b in batches]
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


def model_inputs(encoder: Encoder, record: Record) -> Inputs:
    """Return the token ids of a record (and types, or word groups) as lists."""
    if "tokens" in record:
        ids = encoder.tokenizer.convert_tokens_to_ids(record["tokens"])
        types = [int(position >= record["second"]) for position in range(len(ids))]
        return {"input_ids": ids, "token_type_ids": types}
    encoding = encoder.encode_words(record["words"])
    return {
        "input_ids": encoding.ids,
        "token_type_ids": encoding.type_ids,
        "groups": word_groups(encoding.word_ids),
    }


def length_batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices, longest first, of at most ``budget`` padded tokens each."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


@torch.inference_mode()
def forward(
    encoder: Encoder, inputs: list[Inputs], *, hidden: bool = False
) -> tuple[list[Float[Tensor, "batch head token token"]], list[Float[Tensor, "batch token width"]]]:
    """Run one padded batch; return each layer's maps (and vectors), padding not yet cropped."""
    output = encoder.model.base_model(
        **padded(encoder, inputs), output_attentions=True, output_hidden_states=hidden
    )
    if len(output.attentions) != encoder.layers:
        raise ModelError(
            f"model {encoder.name!r}: returned {len(output.attentions)} layers of maps, expected "
            f"{encoder.layers}; load it with helpers.attention.models.load"
        )
    return list(output.attentions), list(output.hidden_states or ())


def padded(encoder: Encoder, inputs: list[Inputs]) -> dict[str, Tensor]:
    """Return a batch of inputs as padded tensors on the model's device."""
    longest = max(len(item["input_ids"]) for item in inputs)
    padding = {"input_ids": encoder.tokenizer.pad_token_id or 0, "token_type_ids": 0}
    if not encoder.takes_token_types:
        del padding["token_type_ids"]
    batch = {
        name: [item[name] + [value] * (longest - len(item[name])) for item in inputs]
        for name, value in padding.items()
    }
    batch["attention_mask"] = [
        [1] * len(item["input_ids"]) + [0] * (longest - len(item["input_ids"])) for item in inputs
    ]
    return {name: torch.tensor(rows, device=encoder.device) for name, rows in batch.items()}


def _batches(
    encoder: Encoder, records: list[Record], first: int
) -> Iterator[list[tuple[int, Inputs]]]:
    """Yield a shard's batches; which one an example is in depends on its shard alone."""
    inputs = [model_inputs(encoder, record) for record in records]
    budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS_ACCELERATED)
    for batch in length_batches([len(item["input_ids"]) for item in inputs], budget):
        yield [(first + i, inputs[i]) for i in batch]


@torch.inference_mode()
def _batch(
    encoder: Encoder, batch: list[tuple[int, Inputs]], level: Level, hidden: bool
) -> Tensors:
    """Return the tensors of one batch's examples, as they are stored."""
    attentions, states = forward(encoder, [item for _, item in batch], hidden=hidden)
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


def compute_alone() -> None:
    """Let torch compute on the calling thread alone from now on."""
    torch.get_num_threads()  # a thread's first use of torch sets its default, after which ...
    torch.set_num_threads(1)  # ... its own number holds


def _unfinished(pending: Iterable[tuple[range, list[Future[Tensors]]]]) -> int:
    return sum(not job.done() for _, jobs in pending for job in jobs)


def _collected(pending: deque[tuple[range, list[Future[Tensors]]]]) -> tuple[range, Tensors]:
    """Return the oldest shard, waiting for its batches."""
    indices, jobs = pending[0]
    tensors = {name: tensor for job in jobs for name, tensor in job.result().items()}
    pending.popleft()
    return indices, dict(sorted(tensors.items()))
