"""The files of a store: their names, the manifest, damage and repair, and the list of stores.

A store is a folder with these files:

- ``examples.jsonl``: the list of examples, one record per line; written first.
- ``manifest.json``: the key of the store and the digest of the list; written next.  When all shards
  exist it is written once more, with the size and SHA-256 of each.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.  A shard is complete if it
  exists, because it is written under a temporary name and renamed.
- ``shard-00000.safetensors.sha256`` ...: the digest of a shard, written before the shard gets its
  name, until the manifest has it.  A run that goes on after an interruption therefore does not read
  all shards again.

A shard that is missing is extracted again by the next run, so removing it repairs it.  No other
file is read, and nothing is pickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from helpers.errors import StoreError
from helpers.files import (
    cache_root,
    folder_lock,
    json_digest,
    read_json,
    sha256,
    slugify,
    write_atomic,
)
from helpers.model.encoder import Lens, slug
from helpers.progress import progress

FORMAT = 5
MANIFEST = "manifest.json"
EXAMPLES = "examples.jsonl"

STORED = np.float16  # type of stored maps and vectors; measures compute in float32 or wider
ROW_SUM_TOLERANCE = 0.02  # bfloat16 rounding can add up to this over a row of a map
# The maps of an example take no more than this; longer texts are cut.
MAX_MAP_BYTES = 256 << 20
Tensors = dict[str, np.ndarray]

Level = Literal["token", "word"]


def longest_whole_maps(layers: int, heads: int) -> int:
    """Compute the number of tokens of the longest example whose whole maps may be kept."""
    weights = MAX_MAP_BYTES // (layers * heads * np.dtype(STORED).itemsize)
    return math.isqrt(weights)


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines the content of a store; its hash names the store's folder."""

    model: Mapping[str, Any]
    lens: Lens
    corpus: Mapping[str, str]
    level: Level
    dtype: str
    max_tokens: int
    examples_per_shard: int
    special_tokens: Mapping[str, str | None]
    visible: Sequence[Mapping[str, Any]]  # of each layer: causal or not, window
    code: str  # digest of the code that reads the corpus and computes the maps
    hidden: bool
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return json_digest(asdict(self))

    def folder(self) -> Path:
        """Return the store's folder in the cache: a readable slug and a short hash."""
        model = slug(
            self.model["name"],
            random_seed=self.model["random_init"],
            entropy_matched="matched to" in self.model,
        )
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        name = slugify(f"{model}--{self.corpus['name']}--{self.level}{lens}")
        return cache_root() / f"{name}-{self.hash[:10]}"


@dataclass(frozen=True)
class Manifest:
    """The key of a store and its files; without ``shards`` it is not finished.

    ``examples_sha256`` is the digest of ``examples.jsonl``.  ``report`` counts, by reason, the
    examples that were dropped or cut.  A shard has the keys ``file``, ``bytes`` and ``sha256``, and
    ``first`` and ``count`` for the examples ``first`` to ``first + count``.
    """

    spec: StoreKey
    n_examples: int
    examples_sha256: str
    report: Mapping[str, int]
    shards: Sequence[Mapping[str, Any]] = ()

    @property
    def n_shards(self) -> int:
        """Number of shards of the finished store."""
        return -(-self.n_examples // self.spec.examples_per_shard)

    def indices(self, number: int) -> range:
        """Return the indices of the examples of one shard."""
        size = self.spec.examples_per_shard
        return range(self.n_examples)[number * size : (number + 1) * size]

    def write(self, folder: Path) -> None:
        """Write the manifest with its checksum, atomically."""
        contents = asdict(self)
        contents.update(contents.pop("spec"))
        contents["checksum"] = json_digest(contents)
        write_atomic(folder / MANIFEST, (json.dumps(contents, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; StoreError if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    remedy = "remove its folder, to make room for a new extraction"
    if not path.is_file():
        raise unfinished(folder)
    contents = read_json(path)
    if contents.get("format", FORMAT) != FORMAT:
        raise StoreError(
            f"{path}: another version of this project wrote it (its format is not {FORMAT}); "
            f"{remedy}"
        )
    if contents.pop("checksum", "") != json_digest(contents):
        raise StoreError(f"{path}: the manifest is incomplete or was changed; {remedy}")
    key = {field.name: contents.pop(field.name) for field in fields(StoreKey)}
    return Manifest(StoreKey(**key), **contents)


def unfinished(folder: Path) -> StoreError:
    """Return the error of a store that an extraction has not finished."""
    return StoreError(f"{folder}: the store is unfinished; run extraction again")


def find_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a store, or return None if its examples have not been listed.

    StoreError if the manifest is damaged or of another format.
    """
    is_listed = (folder / MANIFEST).is_file() and (folder / EXAMPLES).is_file()
    return read_manifest(folder) if is_listed else None


def missing_shards(folder: Path, manifest: Manifest) -> list[int]:
    """List the numbers of the shards that do not exist."""
    return [
        number for number in range(manifest.n_shards) if not (folder / shard_name(number)).is_file()
    ]


def is_finished(folder: Path, manifest: Manifest) -> bool:
    """Whether all shards of a store exist, and its manifest knows their digests."""
    return bool(manifest.shards) and not missing_shards(folder, manifest)


def tensor_name(name: str, index: int) -> str:
    """Return the name of an example's tensor in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def check(path: Path, digest: str) -> None:
    """Raise StoreError if a file is missing, or has another SHA-256 than it was written with."""
    if not path.is_file():
        raise StoreError(f"{path}: the file is missing; run extraction again, which writes it")
    if sha256(path) != digest:
        raise StoreError(
            f"{path}: the file was changed after it was written (by its SHA-256); repair it with "
            f"'python -m helpers verify --repair {path.parent.name}'"
        )


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    return sorted(path.parent for path in cache_root().glob(f"*/{MANIFEST}"))


def verify(folder: Path) -> dict[Path, str]:
    """Check every byte of a store against its manifest; return a line for each damaged file."""
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return {folder / MANIFEST: str(error)}
    digests = {folder / EXAMPLES: manifest.examples_sha256}
    for number, shard in enumerate(manifest.shards):
        digests[folder / shard_name(number)] = shard["sha256"]
    problems = {}
    for path, digest in progress(digests.items(), f"checking {folder.name}", unit="file"):
        try:
            check(path, digest)
        except StoreError as error:
            problems[path] = str(error)
    return problems


def repair(folder: Path) -> None:
    """Remove the damaged files of a store.

    The next run that needs the store makes them again: only a run knows where the corpus is.
    StoreError if the manifest is damaged or of another format: nothing says what belongs to it.
    """
    with folder_lock(folder):
        read_manifest(folder)
        for path in verify(folder):
            path.unlink(missing_ok=True)
