"""Attention maps on disk: written shard by shard, read lazily, never pickled.

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

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from helpers.attention.example import Example
from helpers.attention.files import (
    check_size,
    line_offsets,
    repair_hint,
    sha256,
    whole_file,
    write_whole,
)
from helpers.attention.manifest import (
    EXAMPLES,
    MANIFEST,
    REPORT,
    Level,
    Shard,
    StoreKey,
    check_key,
    manifest_key,
    read_manifest,
    shard_name,
)
from helpers.attention.source import Source
from helpers.errors import StoreError

__all__ = ["EXAMPLES", "MANIFEST", "REPORT", "Level", "Shard", "Store", "StoreKey", "write_whole"]

HEADER = "shard"

Tensors = Mapping[str, np.ndarray]


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


def tensor_name(name: str, index: int) -> str:
    """Return what an example's tensor is called in its shard."""
    return f"{name}/{index:06d}"


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


def write_shard(folder: Path, number: int, tensors: Tensors, indices: range, key: str) -> Shard:
    """Write the shard of the examples ``indices``; ``key`` is the hash of its store's key.

    Raises:
        StoreError: the disk is full.
    """
    dense = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    header = _header(indices, key, _digest(dense.items()))
    path = folder / shard_name(number)
    # Straight from the tensors' memory: bytes in between would hold every map two times more.
    with whole_file(path, sum(tensor.nbytes for tensor in dense.values())) as temporary:
        save_file(dense, temporary, metadata=header)
        size, digest = temporary.stat().st_size, sha256(temporary)
    return Shard(path.name, indices.start, len(indices), size, digest)


def finished_shard(folder: Path, number: int, indices: range, key: str) -> Shard | None:
    """Return the shard if its file is there, belongs to the store and is undamaged, else None."""
    path = folder / shard_name(number)
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            digest = _digest((name, file.get_tensor(name)) for name in names)
            if file.metadata() != _header(indices, key, digest):
                return None
    except (SafetensorError, OSError):
        return None
    return Shard(path.name, indices.start, len(indices), path.stat().st_size, sha256(path))


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


def _header(indices: range, key: str, digest: str) -> dict[str, str]:
    # One entry, not four: safetensors writes several in an order that changes from run to run.
    facts = {"key": key, "first": indices.start, "count": len(indices), "tensors_sha256": digest}
    return {HEADER: json.dumps(facts)}


def _digest(tensors: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return a checksum of tensors that does not depend on how a file arranges them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor))
    return digest.hexdigest()
