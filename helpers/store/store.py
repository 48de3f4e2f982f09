"""Examples with their maps, read shard by shard: from a finished store, lazily, or as computed."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open

from helpers.errors import StoreError
from helpers.model.parallel import trim
from helpers.paths import sha256
from helpers.store.format import (
    EXAMPLES,
    Level,
    Manifest,
    StoreKey,
    check_digest,
    check_key,
    check_size,
    read_manifest,
    read_record,
    tensor_name,
    way_out,
)


@dataclass(frozen=True)
class Example:
    """The attention maps of one segment, sentence or document.

    ``attention[layer, head, query, key]`` is float16 and usually memory-mapped: compute on it
    in float32 or wider.  ``record`` is the example's line of ``examples.jsonl``.  At word level
    the words stand at positions ``offset`` to ``offset + len(record["words"])``; the positions
    before and after them are special tokens ([CLS] before, [SEP] after, in BERT).
    """

    index: int
    attention: Float[np.ndarray, "layer head query key"]
    record: dict[str, Any]
    token_ids: Int[np.ndarray, " token"] | None = None
    offset: int = 1
    hidden: Float[np.ndarray, "layer position width"] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of positions of the maps."""
        return self.attention.shape[-1]

    @property
    def word_positions(self) -> slice:
        """The positions of the words (word level only)."""
        return slice(self.offset, self.offset + len(self.record["words"]))


class _OfKey:
    """What a store's key says of its maps, within reach."""

    spec: StoreKey

    @property
    def level(self) -> Level:
        """``token`` or ``word``."""
        return self.spec.level

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
        """The tokens in the parts of [CLS] and [SEP]; None where the model has none."""
        return dict(self.spec.special_tokens)


@dataclass(frozen=True)
class Records(_OfKey):
    """The records of ``examples.jsonl``, in shards: the list of work of an extraction."""

    folder: Path
    manifest: Manifest = field(repr=False)
    offsets: Int[np.ndarray, " line"] = field(repr=False, compare=False)

    @classmethod
    def read(
        cls, folder: Path, wanted: StoreKey | None = None, manifest: Manifest | None = None
    ) -> Self:
        """Find and check the records in the folder of a store, finished or not.

        Raises:
            StoreError: they are missing or changed, or not for ``wanted``.
        """
        manifest = manifest or read_record(folder)
        if wanted is not None:
            check_key(folder, manifest.spec, wanted)
        path, digest, lengths = folder / EXAMPLES, hashlib.sha256(), []
        check_size(path, manifest.examples["bytes"])
        with path.open("rb") as file:
            for line in file:
                digest.update(line)
                lengths.append(len(line))
        check_digest(path, digest.hexdigest(), manifest.examples["sha256"])
        if len(lengths) != manifest.n_examples:
            raise StoreError(
                f"{path}: {len(lengths)} records, expected {manifest.n_examples}; {way_out(path)}"
            )
        return cls(folder, manifest, np.cumsum([0, *lengths]))

    def __len__(self) -> int:
        return self.manifest.n_examples

    @property
    def spec(self) -> StoreKey:
        """What determines the maps."""
        return self.manifest.spec

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return self.manifest.n_shards

    def shard_examples(self, number: int) -> range:
        """Return the indices of a shard's examples."""
        return self.manifest.shard_examples(number)

    def work(self, numbers: Iterable[int]) -> Iterator[tuple[range, list[dict[str, Any]]]]:
        """Yield the indices and records of shards."""
        for number in numbers:
            indices = self.shard_examples(number)
            yield indices, list(self.records(indices))

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order.

        Raises:
            StoreError: a line is not a JSON object.
        """
        lines = range(len(self)) if indices is None else indices
        path = self.folder / EXAMPLES
        with path.open("rb") as file:
            file.seek(int(self.offsets[lines.start]))
            for number in lines:
                try:
                    record = json.loads(file.readline())
                except (ValueError, RecursionError):
                    record = None
                if not isinstance(record, dict):
                    raise StoreError(f"{path}:{number + 1}: not a record; {way_out(path)}")
                yield record


@dataclass(frozen=True)
class Source(Records, ABC):
    """Examples with their maps, in shards.

    ``len(source)`` is the number of examples, ``source[i]`` one of them, ``source[100:120]`` a
    part; iterating gives all, one at a time, with the memory of one shard.
    """

    @abstractmethod
    def read_shard(self, number: int, indices: range) -> Iterator[Example]:
        """Yield those examples of one shard."""

    def __getitem__(self, index: int | slice) -> Example | Part:
        if isinstance(index, slice):
            return Part(self, range(len(self))[index])
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number = index // self.spec.examples_per_shard
        (example,) = self.read_shard(number, range(index, index + 1))
        return example

    def shard(self, number: int) -> Iterator[Example]:
        """Yield the examples of one shard."""
        yield from self.read_shard(number, self.shard_examples(number))

    def by_shard(self) -> Generator[list[Example]]:
        """Yield the examples of each shard together."""
        for number in range(self.n_shards):
            yield list(self.shard(number))

    def __iter__(self) -> Iterator[Example]:
        for examples in self.by_shard():
            yield from examples

    @property
    def key(self) -> str:
        """What tables computed from these maps are kept under: the manifest's digest.

        A store's covers the digests of its shards.  A stream has no shards to vouch for, so its
        tables are its own, although a whole store of the same corpus gives the same bits.
        """
        return self.manifest.digest

    @property
    def report(self) -> dict[str, int]:
        """What of the corpus was dropped or cut, by reason."""
        return dict(self.manifest.report)


@dataclass(frozen=True)
class Part(_OfKey):
    """Some examples of a source, numbered from 0 here."""

    source: Source = field(repr=False)
    indices: range

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int | slice) -> Example | Part:
        if isinstance(index, slice):
            return Part(self.source, self.indices[index])
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return replace(self.source[self.indices[index]], index=index)

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        return self.source.record(self.indices[index])

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of examples (all of them: None), in order."""
        return map(self.record, range(len(self)) if indices is None else indices)

    @property
    def spec(self) -> StoreKey:
        """What determines the maps."""
        return self.source.spec


def tokens_of(source: Source, example: Example) -> list[str]:
    """Return the token or word at each position of an example's maps, special tokens included."""
    record = example.record
    if "words" not in record:
        return list(record["tokens"])
    after = len(example) - example.word_positions.stop
    cls, sep = (source.special_tokens.get(role) or "" for role in ("cls", "sep"))
    return [cls] * example.offset + list(record["words"]) + [sep] * after


def read_ahead(source: Source) -> Generator[list[Example]]:
    """Yield the examples of each shard, while the next shard is read (or computed) beside."""
    shards = source.by_shard()
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        upcoming = reader.submit(next, shards, None)
        try:
            while (examples := upcoming.result()) is not None:
                upcoming = reader.submit(next, shards, None)
                yield examples
                trim()
        finally:
            reader.submit(shards.close)


@dataclass(frozen=True)
class Store(Source):
    """A finished store, checked when opened and read lazily."""

    @classmethod
    def open(cls, folder: Path, key: StoreKey | None = None) -> Store:
        """Open a store after the cheap checks: the records, and the sizes of the shards.

        A shard's digest is checked the first time that a process reads it.

        Raises:
            StoreError: the store is unfinished or damaged, or was made for another ``key``.
        """
        manifest = read_manifest(folder)
        for shard in manifest.shards:
            check_size(folder / shard.file, shard.bytes)
        return cls.read(folder, key, manifest)

    def read_shard(self, number: int, indices: range) -> Iterator[Example]:
        """Yield examples of a shard, which has the digest that it was written with.

        Raises:
            StoreError: the file is damaged.
        """
        shard = self.manifest.shards[number]
        path = self.folder / shard.file
        try:
            found = path.stat()
            state = path, found.st_ino, found.st_size, found.st_mtime_ns
            check_digest(path, _digest_of(*state), shard.sha256)
            names, tensor = _opened(*state)
            for index, record in zip(indices, self.records(indices), strict=True):
                yield make_example(index, record, names, tensor)
        except (SafetensorError, OSError) as error:
            raise StoreError(f"{path}: {error}; {way_out(path)}") from error


@cache
def _digest_of(path: Path, *_state: int) -> str:
    """Return the SHA-256 of a file that this process has not read as it is now."""
    return sha256(path)


@lru_cache(maxsize=1)
def _opened(path: Path, *_state: int) -> tuple[frozenset[str], Callable[[str], np.ndarray]]:
    """Return the names in a shard and what reads one; examples that are read are often close."""
    file = safe_open(path, framework="numpy")
    return frozenset(file.keys()), file.get_tensor


def make_example(
    index: int,
    record: dict[str, Any],
    names: Container[str],
    tensor: Callable[[str], np.ndarray],
) -> Example:
    """Return an example from its record and those of its tensors that are there."""
    own = {name: tensor_name(name, index) for name in ("attention", "token_ids", "hidden")}
    tensors = {short: tensor(name) for short, name in own.items() if name in names}
    return Example(index=index, record=record, offset=record.get("offset", 0), **tensors)
