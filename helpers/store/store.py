"""Examples with their maps, shard by shard: read from a folder, or computed when they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import safe_open

from helpers.cache import code_digest
from helpers.data.records import Roles, roles
from helpers.errors import MapError
from helpers.store.format import (
    EXAMPLES,
    ROW_SUM_TOLERANCE,
    Manifest,
    StoreKey,
    check,
    digest_of,
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

        Each row ``[layer, head, query, :]`` sums to 1 up to rounding. MapError if there are no
        tokens, the map is smaller than the words, a weight is negative or NaN, or a row does not
        sum to 1.
        """
        attention = self.stored_attention.astype(np.float32)
        name = f"example {self.index}"
        if not attention.size:
            raise MapError(f"{name}: it has no tokens")
        if "words" in self.record and len(self) < self.word_positions.stop:
            words = len(self.record["words"])
            raise MapError(f"{name}: expected a map over {words} words; extract the store again")
        if not attention.min() >= 0:
            raise MapError(f"{name}: its attention has a negative or undefined (NaN) weight")
        largest_error = np.abs(attention.sum(axis=-1) - 1).max()
        if not largest_error < ROW_SUM_TOLERANCE:
            raise MapError(
                f"{name}: the sum of an attention row differs from 1 by {largest_error:.3g}"
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
        n_after = len(self) - self.word_positions.stop
        first_token = self.special_tokens.get("cls") or ""
        last_token = self.special_tokens.get("sep") or ""
        return [first_token] * self.offset + list(self.record["words"]) + [last_token] * n_after

    @property
    def roles(self) -> Roles:
        """The role of each position: [CLS], [SEP], punctuation or other (section 3.2)."""
        return roles(self.tokens, self.special_tokens)


@dataclass(frozen=True)
class Store:
    """Examples with their maps, in shards.

    ``len(store)`` is the number of examples, ``store[i]`` is one of them, and iterating yields all
    with the memory of one shard.  Shards are read from the store's folder.  A store with an
    ``encoder`` computes them instead, and only its records are in the folder: the maps have the
    same bits without the disk space.
    """

    folder: Path
    manifest: Manifest = field(repr=False)
    offsets: Int[np.ndarray, " line"] = field(repr=False, compare=False)
    encoder: Encoder | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path, encoder: Encoder | None = None) -> Store:
        """Open a finished store or, with an ``encoder``, the records of a store.

        StoreError if it is unfinished or damaged.  A shard is checked when it is read.
        """
        manifest = read_manifest(folder)
        if encoder is None and not manifest.shards:
            raise unfinished(folder)
        path = folder / EXAMPLES
        check(path, manifest.examples_sha256)
        with path.open("rb") as file:
            lengths = np.fromiter(map(len, file), dtype=np.int64)
        offsets = np.cumsum(lengths) - lengths  # where each line begins
        return cls(folder, manifest, offsets, encoder)

    def __len__(self) -> int:
        return self.manifest.n_examples

    @property
    def spec(self) -> StoreKey:
        """The key of the store: everything that determines its maps."""
        return self.manifest.spec

    @cached_property
    def key(self) -> str:
        """The digest of the maps and of the code that reads them, as a key of cached tables."""
        shards = self.manifest.shards if self.encoder is None else ()  # a stream reads none
        digests = [self.manifest.examples_sha256, *(shard.sha256 for shard in shards)]
        return digest_of([self.spec.hash, digests, code_digest("helpers.store.extract")])

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return self.spec.model["layers"]

    @property
    def heads(self) -> int:
        """Number of heads in each layer of the model."""
        return self.spec.model["heads"]

    @property
    def special_tokens(self) -> dict[str, str | None]:
        """The model's tokens in the roles of [CLS] and [SEP]; None for one that it lacks."""
        return dict(self.spec.special_tokens)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-len(self) // self.spec.examples_per_shard)

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
            file.seek(int(self.offsets[lines.start]))
            for _ in lines:
                yield json.loads(file.readline())

    def work(self, numbers: Iterable[int]) -> Iterator[tuple[range, list[dict[str, Any]]]]:
        """Yield the indices and the records of each shard, from which its maps are computed."""
        for number in numbers:
            indices = self.indices(number)
            yield indices, list(self.records(indices))

    def __getitem__(self, index: int) -> Example:
        index = range(len(self))[index]
        with closing(self._tensors([index // self.spec.examples_per_shard])) as shards:
            return self._example(index, self.record(index), next(shards))

    def shard(self, number: int) -> list[Example]:
        """Return the examples of one shard."""
        (examples,) = self.by_shard([number])
        return examples

    def __iter__(self) -> Iterator[Example]:
        with closing(self.by_shard()) as shards:
            for examples in shards:
                yield from examples

    def by_shard(self, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
        """Yield the examples of each shard (of all: None) together."""
        numbers = list(range(self.n_shards) if numbers is None else numbers)
        with closing(self._tensors(numbers)) as shards:
            for get_tensor, (indices, records) in zip(shards, self.work(numbers), strict=True):
                yield [
                    self._example(index, record, get_tensor)
                    for index, record in zip(indices, records, strict=True)
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

    def _tensors(self, numbers: Iterable[int]) -> Generator[GetTensor]:
        """Yield for each shard a function that returns its tensors by name."""
        if self.encoder is None:
            for number in numbers:
                path = self.folder / shard_name(number)
                yield _open_shard(path, self.manifest.shards[number].sha256)
            return
        from helpers.store.examples import shards_tensors  # imports torch

        with closing(shards_tensors(self.encoder, self.work(numbers), **self.spec.maps)) as shards:
            for _, tensors in shards:
                yield tensors.__getitem__


def read_ahead(store: Store) -> Iterator[list[Example]]:
    """Yield the examples of each shard, while another thread reads or computes the next shard."""
    with closing(store.by_shard()) as shards:
        # Each job advances the one generator; with one thread, one job at a time does so.
        next_shards = (partial(next, shards) for _ in range(store.n_shards))
        with closing(map_ordered(next_shards, threads=1, ahead=1)) as examples:
            for shard in examples:
                yield shard
                release_freed_memory()


_check_once = cache(check)  # a process checks a shard when it first reads it


@lru_cache(maxsize=1)  # examples that are read one after another are often of one shard
def _open_shard(path: Path, digest: str) -> GetTensor:
    """Open a shard for reading its tensors by name."""
    _check_once(path, digest)
    return safe_open(path, framework="numpy").get_tensor
