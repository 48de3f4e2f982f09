"""One example of a store: its maps and its record.

What examples are read from: the parts that a store and a stream have in common.

Attention maps on disk: written shard by shard, read lazily, never pickled.

A store is a folder:

- ``key.json``: what determines the content; ``examples.jsonl``: one record a line, the list of
  work; ``report.json``: what was dropped or cut.  They are written first.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.  A shard is written under a
  temporary name and renamed when whole; its header names the store, its first example and the
  checksum of its tensors, so that it can be trusted, or not, without the manifest.
- ``manifest.json``: written last.  A folder without it is unfinished, and extraction goes on
  where it stopped.

No other file is looked at.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open

from helpers.errors import StoreError
from helpers.model.parallel import trim
from helpers.store.format import (
    EXAMPLES,
    Level,
    Shard,
    StoreKey,
    check_key,
    check_size,
    line_offsets,
    manifest_key,
    read_key,
    read_lines,
    read_manifest,
    repair_hint,
    shard_examples,
    shard_name,
)
from helpers.store.shards import HEADER, Tensors, tensor_name


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


@dataclass(frozen=True)
class Records:
    """The records of ``examples.jsonl``, in shards: the list of work of an extraction."""

    folder: Path
    spec: StoreKey = field(repr=False)
    offsets: Int[np.ndarray, " line"] = field(repr=False, compare=False)

    @staticmethod
    def read(folder: Path, wanted: StoreKey | None = None) -> Records:
        """Find the lines of the ``examples.jsonl`` in a folder.

        Raises:
            StoreError: it is missing, shorter or longer than written, or not for ``wanted``.
        """
        spec, examples = read_key(folder)
        if wanted is not None:
            check_key(folder, spec, wanted)
        check_size(folder / EXAMPLES, examples["bytes"])
        return Records(folder, spec, line_offsets(folder / EXAMPLES))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-len(self) // self.spec.examples_per_shard)

    def shard_examples(self, number: int) -> range:
        """Return the indices of a shard's examples."""
        if not 0 <= number < self.n_shards:
            raise IndexError(f"shard {number} of {self.n_shards}")
        return shard_examples(number, self.spec.examples_per_shard, len(self))

    def record(self, index: int) -> dict[str, Any]:
        """Return one example's line of ``examples.jsonl``."""
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return next(self.records(range(index, index + 1)))

    def records(self, indices: range | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of consecutive examples (all of them: None), in order."""
        every = range(len(self))
        yield from read_lines(
            self.folder / EXAMPLES, self.offsets, every if indices is None else indices
        )


@dataclass(frozen=True)
class Source(Records, ABC):
    """Examples with their maps, in shards.

    ``len(source)`` is the number of examples, ``source[i]`` one of them; iterating gives all,
    one at a time, with the memory of one shard.
    """

    @abstractmethod
    def shard(self, number: int) -> Iterator[Example]:
        """Yield the examples of one shard."""

    @abstractmethod
    def __getitem__(self, index: int) -> Example:
        """Return one example."""

    def by_shard(self, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
        """Yield the examples of each shard (all shards: None) together."""
        for number in range(self.n_shards) if numbers is None else numbers:
            yield list(self.shard(number))

    def __iter__(self) -> Iterator[Example]:
        for examples in self.by_shard():
            yield from examples

    @property
    def key(self) -> str:
        """The hash of everything that determines the maps."""
        return self.spec.hash

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


def tokens_of(source: Source, example: Example) -> list[str]:
    """Return the token or word at each position of an example's maps, special tokens included."""
    record = example.record
    if "words" not in record:
        return list(record["tokens"])
    after = len(example) - example.word_positions.stop
    cls, sep = (source.special_tokens.get(role) or "" for role in ("cls", "sep"))
    return [cls] * example.offset + list(record["words"]) + [sep] * after


def read_ahead(source: Source, numbers: Iterable[int] | None = None) -> Generator[list[Example]]:
    """Yield the examples of each shard, while the next shard is read (or computed) beside."""
    shards = source.by_shard(numbers)
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

    manifest: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path, key: StoreKey | None = None) -> Store:
        """Open a store after the cheap checks: everything named is there, of the right size.

        Raises:
            StoreError: the store is unfinished or damaged, or was made for another ``key``.
        """
        manifest = read_manifest(folder)
        found = manifest_key(manifest)
        if key is not None:
            check_key(folder, found, key)
        for entry in manifest["shards"]:
            check_shard(folder, Shard(**entry), found)
        check_size(folder / EXAMPLES, manifest["examples"]["bytes"])
        store = cls(folder, found, line_offsets(folder / EXAMPLES), manifest)
        if len(store) != manifest["n_examples"]:
            raise StoreError(
                f"{folder / EXAMPLES}: {len(store)} records, expected {manifest['n_examples']}; "
                "move the folder away and run extraction again"
            )
        return store

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number = index // self.spec.examples_per_shard
        return next(self._read(number, range(index, index + 1)))

    @property
    def shards(self) -> list[Shard]:
        """The shards in corpus order."""
        return [Shard(**entry) for entry in self.manifest["shards"]]

    def shard(self, number: int) -> Iterator[Example]:
        """Yield the examples of one shard."""
        yield from self._read(number, self.shard_examples(number))

    def _read(self, number: int, indices: range) -> Iterator[Example]:
        path = self.folder / shard_name(number)
        try:
            with safe_open(path, framework="numpy") as file:
                names = set(file.keys())
                for index, record in zip(indices, self.records(indices), strict=True):
                    tensors = {
                        name: file.get_tensor(tensor_name(name, index))
                        for name in ("attention", "token_ids", "hidden")
                        if tensor_name(name, index) in names
                    }
                    yield self._example(index, tensors, record)
        except (SafetensorError, OSError) as error:
            raise StoreError(f"{path}: {error}; {repair_hint(self.folder)}") from error

    def _example(self, index: int, tensors: Tensors, record: dict[str, Any]) -> Example:
        attention = tensors.get("attention")
        shape = (self.layers, self.heads)
        if attention is None or attention.ndim != 4 or attention.shape[:2] != shape:
            raise StoreError(
                f"{self.folder}: example {index} has no maps of {self.layers} x {self.heads} "
                f"heads; {repair_hint(self.folder)}"
            )
        return make_example(index, tensors, record)


def make_example(index: int, tensors: Tensors, record: dict[str, Any]) -> Example:
    """Return an example from its tensors, by short name, and its record."""
    return Example(
        index,
        tensors["attention"],
        record,
        token_ids=tensors.get("token_ids"),
        offset=record.get("offset", 0),
        hidden=tensors.get("hidden"),
    )


def check_shard(folder: Path, shard: Shard, key: StoreKey) -> None:
    """Check size and header: a truncated, renamed, swapped or foreign shard does not pass.

    Raises:
        StoreError: it is one of these.
    """
    path = folder / shard.file
    check_size(path, shard.bytes)
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[HEADER])
        first, own = header["first"], header["key"]
    except (SafetensorError, OSError) as error:
        raise StoreError(f"{path}: {error}; {repair_hint(folder)}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path}: not a shard of a store; {repair_hint(folder)}") from error
    if first != shard.first:
        raise StoreError(
            f"{path}: holds examples from {first}, expected {shard.first}; {repair_hint(folder)}"
        )
    if own != key.hash:
        raise StoreError(f"{path}: belongs to another store; {repair_hint(folder)}")
