"""What a store records, once: what determines it, and the digest of each of its files.

A store is a folder with three kinds of files:

- ``examples.jsonl``: one record a line, the list of work; written first.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.
- ``manifest.json``: the record.  Until the last shard is there it is called ``unfinished.json``
  and lists the shards so far; renaming it declares the store finished.  A shard is listed before
  it takes its name, so one that is there without being listed, or with another digest, is not
  finished.

No other file is looked at, and nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from helpers.errors import StoreError
from helpers.model.checkpoint import Lens
from helpers.paths import cache_root, readable, sha256, write_whole

FORMAT = 2
MANIFEST, UNFINISHED, EXAMPLES = "manifest.json", "unfinished.json", "examples.jsonl"
AGAIN = "move the folder away and run extraction again"

STORED = np.float16  # of maps and vectors; computed on in float32 or wider
Tensors = dict[str, np.ndarray]

Level = Literal["token", "word"]


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines what a store holds, and so names its folder."""

    model: Mapping[str, Any]
    lens: Lens
    corpus: Mapping[str, str]
    level: Level
    dtype: str
    max_tokens: int
    examples_per_shard: int
    tokenizer_sha256: str
    special_tokens: Mapping[str, str | None]
    hidden: bool = False
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return _digest(asdict(self))

    @property
    def slug(self) -> str:
        """The readable part of the folder's name."""
        seed = self.model.get("random_init")
        control = "" if seed is None else f"-random-{seed}"
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        name = f"{self.model['name']}{control}--{self.corpus['name']}--{self.level}{lens}"
        return readable(name)

    def folder(self) -> Path:
        """Return the store's folder in the cache: a readable slug and a short hash."""
        return cache_root() / f"{self.slug}-{self.hash[:10]}"

    @property
    def maps(self) -> dict[str, Any]:
        """What is computed of each example."""
        return {"level": self.level, "lens": self.lens, "hidden": self.hidden}


@dataclass(frozen=True)
class Shard:
    """A finished shard: examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


Listed = Callable[[Shard], None]  # enters a shard in the manifest


@dataclass(frozen=True)
class Manifest:
    """The record of a store, finished or not.

    ``examples`` has the bytes and SHA-256 of ``examples.jsonl``, ``report`` counts what of the
    corpus was dropped or cut, by reason, and ``versions`` are those of the packages.
    """

    spec: StoreKey
    n_examples: int
    examples: Mapping[str, Any]
    report: Mapping[str, int]
    versions: Mapping[str, str]
    shards: tuple[Shard, ...] = ()

    @property
    def n_shards(self) -> int:
        """How many shards there are in the end."""
        return -(-self.n_examples // self.spec.examples_per_shard)

    def shard_examples(self, number: int) -> range:
        """Return the indices of a shard's examples."""
        if not 0 <= number < self.n_shards:
            raise IndexError(f"shard {number} of {self.n_shards}")
        size = self.spec.examples_per_shard
        return range(number * size, min((number + 1) * size, self.n_examples))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the examples are made of: key, records and the shards' own digests."""
        shards = [shard.sha256 for shard in self.shards]
        return _digest([self.spec.hash, self.examples["sha256"], shards])

    def facts(self) -> dict[str, Any]:
        """Return what is written to the file, with a checksum of it."""
        own = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        facts = asdict(self.spec) | own | {"shards": [asdict(shard) for shard in self.shards]}
        return facts | {"checksum": _digest(facts)}


def tensor_name(name: str, index: int) -> str:
    """Return what an example's tensor is called in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest, there whole or not at all."""
    write_whole(path, (json.dumps(manifest.facts(), indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a finished store.

    Raises:
        StoreError: it is missing, or see `read_record`.
    """
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder}: no {MANIFEST}; the store is unfinished, run extraction again")
    return _read(folder / MANIFEST)


def read_record(folder: Path) -> Manifest:
    """Read the manifest of a store, finished or not; names in it cannot leave the folder.

    Raises:
        StoreError: it is missing, cut short, changed, inconsistent, or of another format.
    """
    try:
        return _read(folder / UNFINISHED)
    except FileNotFoundError:  # finished, perhaps just now
        return read_manifest(folder)


def _read(path: Path) -> Manifest:
    problem, advice = "not a whole manifest", AGAIN
    try:
        facts = json.loads(path.read_bytes())
        if facts["format"] == FORMAT:
            return _checked(facts, finished=path.name == MANIFEST)
        problem = f"store format {facts['format']!r}, this version reads format {FORMAT}"
        remove = f"python -m helpers cache --remove {path.parent.name}"
        advice = f"remove it with '{remove}': a run extracts it again"
    except _Inconsistent as error:
        problem = str(error)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise StoreError(f"{path}: {problem}; {advice}")


class _Inconsistent(ValueError):
    """A manifest contradicts itself."""


def _checked(facts: dict[str, Any], *, finished: bool) -> Manifest:
    """Return the manifest that a file holds."""
    if facts.pop("checksum") != _digest(facts):
        raise _Inconsistent("its facts do not fit its checksum")
    spec = StoreKey(**{field.name: facts.pop(field.name) for field in fields(StoreKey)})
    shards = tuple(Shard(**entry) for entry in facts.pop("shards"))
    manifest = Manifest(spec, **facts, shards=shards)
    for count in (
        spec.examples_per_shard, spec.model["layers"], spec.model["heads"],
        manifest.n_examples, manifest.examples["bytes"], *(shard.bytes for shard in shards),
    ):  # fmt: skip
        if not isinstance(count, int) or count < 1:
            raise _Inconsistent(f"{count!r} where a count belongs")
    for shard in shards:
        number = shard.first // spec.examples_per_shard
        # The one name that a shard can have is also the one that stays inside the folder.
        if shard.file != shard_name(number):
            raise _Inconsistent(f"shard {number} is called {shard.file!r}")
        own = manifest.shard_examples(number) if number < manifest.n_shards else range(0)
        if range(shard.first, shard.first + shard.count) != own:
            raise _Inconsistent(f"{shard.file} does not hold examples {own.start} to {own.stop}")
    if len({shard.first for shard in shards}) < len(shards):
        raise _Inconsistent("a shard is listed twice")
    if finished and len(shards) < manifest.n_shards:
        raise _Inconsistent(f"lists {len(shards)} of {manifest.n_shards} shards")
    return manifest


def check_key(folder: Path, found: StoreKey, wanted: StoreKey) -> None:
    """Check that a folder was made for ``wanted``.

    Raises:
        StoreError: it was not; the message names the first difference.
    """
    own = _flat(asdict(found))
    for name, value in _flat(asdict(wanted)).items():
        if own.get(name) != value:
            raise StoreError(
                f"{folder}: made for {name} = {own.get(name)!r}, wanted {value!r}; {AGAIN}"
            )


def damage(path: Path, size: int, digest: str) -> str | None:
    """Return what is wrong with a file, every byte of it read, or None."""
    try:
        check_size(path, size)
        check_digest(path, sha256(path), digest)
    except StoreError as error:
        return str(error)
    return None


def check_size(path: Path, expected: int) -> None:
    """Check that a file is there and has the expected size in bytes.

    Raises:
        StoreError: it is missing, or shorter or longer.
    """
    if not path.is_file():
        raise StoreError(f"{path}: missing; {way_out(path)}")
    size = path.stat().st_size
    if size != expected:
        raise StoreError(f"{path}: {size:,} bytes, expected {expected:,}; {way_out(path)}")


def check_digest(path: Path, found: str, expected: str) -> None:
    """Raise StoreError where the SHA-256 of a file is another one than it was written with."""
    if found != expected:
        raise StoreError(
            f"{path}: SHA-256 is {found[:16]}..., expected {expected[:16]}...; {way_out(path)}"
        )


def way_out(path: Path) -> str:
    """Return what a message about a damaged file of a store ends with."""
    if path.name == EXAMPLES:
        return f"the list of examples is damaged: {AGAIN}"
    return f"repair it with 'python -m helpers verify --repair {path.parent.name}'"


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
