"""Examples with their maps, shard by shard: read from a folder, or computed when they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from safetensors import safe_open

from helpers.cache import code_digest
from helpers.data.records import Roles, roles
from helpers.errors import MapError
from helpers.files import json_digest
from helpers.store.format import (
    EXAMPLES,
    ROW_SUM_TOLERANCE,
    Tensors,
    check,
    read_manifest,
    shard_name,
    tensor_name,
    unfinished,
)
from helpers.torch_utils import map_ordered, release_freed_memory

if TYPE_CHECKING:
    from helpers.model.encoder import Encoder

GetTensor = Callable[[str], np.ndarray]  # of a shard, by name


@dataclass(frozen=True)
class Example:
    """The attention maps of one segment, sentence or document.

    Attributes
    ----------
    index
        Number of the example in its store, from 0.
    stored_attention
        Attention weights as they are stored: float16, usually memory-mapped, of shape
        (layer, head, query, key). `attention` has them checked, in float32.
    record
        The example's line of ``examples.jsonl``.
    offset
        Position of the first word (word level). The words are at positions ``offset`` to
        ``offset + len(record["words"])``; the positions before and after them are special tokens
        ([CLS] before, [SEP] after, in BERT).
    special_tokens
        The model's tokens in the roles "cls" and "sep"; None for one that it lacks.
    hidden
        Vectors of shape (layer, position, width), if the store has them; layer 0 are the
        embeddings.
    """

    index: int
    stored_attention: Float[np.ndarray, "layer head query key"]
    record: dict[str, Any]
    offset: int = 1
    special_tokens: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    hidden: Float[np.ndarray, "layer position width"] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of positions of the maps."""
        return self.stored_attention.shape[-1]

    @property
    def word_positions(self) -> slice:
        """The positions of the words (word level only)."""
        return slice(self.offset, self.offset + len(self.record["words"]))

    @property
    def attention(self) -> Float[np.ndarray, "layer head query key"]:
        """The attention weights in float32, checked to be probabilities each time.

        Each row ``[layer, head, query, :]`` sums to 1 up to rounding. MapError if a weight is
        negative or NaN, or a row does not sum to 1.
        """
        attention = self.stored_attention.astype(np.float32)
        smallest = attention.min()
        largest_error = np.abs(attention.sum(axis=-1) - 1).max()
        if not (smallest >= 0 and largest_error < ROW_SUM_TOLERANCE):  # NaN is neither
            raise MapError(
                f"example {self.index}: a row of attention is not a distribution: the smallest "
                f"weight is {smallest:.3g}, and a sum differs from 1 by {largest_error:.3g}"
            )
        return attention

    @property
    def tokens(self) -> list[str]:
        """The token or word at each position of the maps, special tokens included.

        At word level all special tokens before the words have the name of [CLS], and all after
        them that of [SEP], in the model's vocabulary.
        """
        if "words" not in self.record:
            return list(self.record["tokens"])
        n_after = self.stored_attention.shape[-1] - self.word_positions.stop
        first_token = self.special_tokens.get("cls") or ""
        last_token = self.special_tokens.get("sep") or ""
        return [first_token] * self.offset + list(self.record["words"]) + [last_token] * n_after

    @property
    def roles(self) -> Roles:
        """The role of each position: [CLS], [SEP], punctuation or other (section 3.2)."""
        return roles(self.tokens, self.special_tokens)


class Store:
    """Examples with their maps, in shards.

    ``len(store)`` is the number of examples, ``store[i]`` is one of them, and iterating yields all
    with the memory of one shard.  Shards are read from the store's folder.  A store with an
    ``encoder`` computes them instead, and only its records are in the folder: the maps have the
    same bits without the disk space.

    Parameters
    ----------
    folder : Path
        The folder of a finished store or, with an ``encoder``, of the records of a store.
    encoder : Encoder, optional
        Model that computes the maps when they are read.

    Attributes
    ----------
    manifest : Manifest
        The files of the store.
    spec : StoreKey
        The key of the store: everything that determines its maps.
    layers, heads : int
        Number of layers of the model, and of heads in each.
    special_tokens : mapping
        The model's tokens in the roles "cls" and "sep"; None for one that it lacks.
    n_shards : int
        Number of shards.

    Raises
    ------
    StoreError
        If the store is unfinished or damaged.  A shard is checked when it is read.
    """

    def __init__(self, folder: Path, encoder: Encoder | None = None) -> None:
        manifest = read_manifest(folder)
        if encoder is None and not manifest.shards:
            raise unfinished(folder)
        path = folder / EXAMPLES
        check(path, manifest.examples_sha256)
        with path.open("rb") as file:
            lengths = np.fromiter(map(len, file), dtype=np.int64)
        self._offsets = np.cumsum(lengths) - lengths  # where each line begins
        self.folder = folder
        self.encoder = encoder
        self.manifest = manifest
        self.spec = manifest.spec
        self.layers = manifest.spec.model["layers"]
        self.heads = manifest.spec.model["heads"]
        self.special_tokens = manifest.spec.special_tokens
        self.n_shards = -(-manifest.n_examples // manifest.spec.examples_per_shard)

    def __len__(self) -> int:
        return self.manifest.n_examples

    @cached_property
    def key(self) -> str:
        """The digest of the maps and of the code that reads them, as a key of cached tables."""
        shards = self.manifest.shards if self.encoder is None else ()  # a stream reads none
        digests = [self.manifest.examples_sha256, *(shard["sha256"] for shard in shards)]
        return json_digest([self.spec.hash, digests, code_digest("store")])

    def missing_shards(self) -> list[int]:
        """List the numbers of the shards that do not exist in the folder."""
        numbers = range(self.n_shards)
        return [number for number in numbers if not (self.folder / shard_name(number)).is_file()]

    def indices(self, number: int) -> range:
        """Return the indices of the examples of one shard."""
        size = self.spec.examples_per_shard
        return range(len(self))[number * size : (number + 1) * size]

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        index = range(len(self))[index]
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        lines = range(len(self)) if indices is None else indices
        with (self.folder / EXAMPLES).open("rb") as file:
            file.seek(int(self._offsets[lines.start]))
            for _ in lines:
                yield json.loads(file.readline())

    def __getitem__(self, index: int) -> Example:
        index = range(len(self))[index]
        (get_tensor,) = self._tensors([index // self.spec.examples_per_shard])
        return self._example(index, self.record(index), get_tensor)

    def shard(self, number: int) -> list[Example]:
        """Return the examples of one shard."""
        (examples,) = self.by_shard([number])
        return examples

    def __iter__(self) -> Iterator[Example]:
        for examples in self.by_shard(range(self.n_shards)):
            yield from examples

    def by_shard(self, numbers: Sequence[int]) -> Iterator[list[Example]]:
        """Yield the examples of each of some shards together."""
        for number, get_tensor in zip(numbers, self._tensors(numbers), strict=True):
            indices = self.indices(number)
            yield [
                self._example(index, record, get_tensor)
                for index, record in zip(indices, self.records(indices), strict=True)
            ]

    def _example(self, index: int, record: dict[str, Any], get_tensor: GetTensor) -> Example:
        """Make an example of its record and its tensors."""
        return Example(
            index=index,
            stored_attention=get_tensor(tensor_name("attention", index)),
            record=record,
            offset=record.get("offset", 0),
            special_tokens=self.special_tokens,
            hidden=get_tensor(tensor_name("hidden", index)) if self.spec.hidden else None,
        )

    def _tensors(self, numbers: Sequence[int]) -> Iterator[GetTensor]:
        """Yield for each shard a function that returns its tensors by name."""
        if self.encoder is None:
            for number in numbers:
                path = self.folder / shard_name(number)
                yield _open_shard(path, self.manifest.shards[number]["sha256"])
            return
        for tensors in self.compute(numbers):
            yield tensors.__getitem__

    def compute(self, numbers: Sequence[int]) -> Iterator[Tensors]:
        """Compute the tensors of each shard with the encoder; see `examples.shards_tensors`."""
        from helpers.store.examples import shards_tensors  # imports torch

        work = ((indices, self.records(indices)) for indices in map(self.indices, numbers))
        return shards_tensors(self.encoder, self.spec, work)


open_store = Store  # its public name: `helpers.open_store`


def read_ahead(store: Store) -> Iterator[list[Example]]:
    """Yield the examples of each shard, while another thread reads or computes the next shard."""
    shards = store.by_shard(range(store.n_shards))
    # Each job advances the one iterator; with one thread, one job at a time does so.
    jobs = [partial(next, shards)] * store.n_shards
    for examples in map_ordered(jobs, threads=1, ahead=1):
        yield examples
        release_freed_memory()


_check_once = cache(check)  # a process checks a shard when it first reads it


@lru_cache(maxsize=1)  # examples that are read one after another are often of one shard
def _open_shard(path: Path, digest: str) -> GetTensor:
    """Open a shard for reading its tensors by name."""
    _check_once(path, digest)
    return safe_open(path, framework="numpy").get_tensor
