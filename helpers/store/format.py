"""The files of a store: their names, the manifest, damage and repair, and the list of stores.

A store is a folder with these files:

- ``examples.jsonl``: the list of examples, one record per line; written first.
- ``manifest.json``: the key of the store and the digest of the list; written next.  When all shards
  exist it is written once more, with the size and SHA-256 of each.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.  A shard is complete if it
  exists, because it is written under a temporary name and renamed.
- ``shard-00000.sha256`` ...: the digest of a shard, until the manifest has it.  A run that goes on
  after an interruption therefore does not read all shards again.

A shard that is missing is extracted again by the next run, so removing it repairs it.  No other
file is read, and nothing is pickled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
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

FORMAT = 4
MANIFEST = "manifest.json"
EXAMPLES = "examples.jsonl"

STORED = np.float16  # type of stored maps and vectors; measures compute in float32 or wider
ROW_SUM_TOLERANCE = 0.02  # bfloat16 rounding can add up to this over a row of a map
Tensors = dict[str, np.ndarray]

Level = Literal["token", "word"]


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
    tokenizer_sha256: str
    special_tokens: Mapping[str, str | None]
    code: str  # digest of the code that reads the corpus and computes the maps
    hidden: bool = False
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
            entropy_matched="temperatures" in self.model,
        )
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        name = slugify(f"{model}--{self.corpus['name']}--{self.level}{lens}")
        return cache_root() / f"{name}-{self.hash[:10]}"


@dataclass(frozen=True)
class Shard:
    """A finished shard: the examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The key of a store and its files; without ``shards`` it is not finished.

    ``examples_sha256`` is the digest of ``examples.jsonl``.  ``report`` counts, by reason, the
    examples that were dropped or cut.
    """

    spec: StoreKey
    n_examples: int
    examples_sha256: str
    report: Mapping[str, int]
    shards: tuple[Shard, ...] = ()

    def files(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield the path and SHA-256 of the list of examples and of each shard."""
        yield folder / EXAMPLES, self.examples_sha256
        for number, shard in enumerate(self.shards):
            yield folder / shard_name(number), shard.sha256

    def write(self, folder: Path) -> None:
        """Write the manifest with its checksum, atomically."""
        contents = asdict(self)
        contents.update(contents.pop("spec"))
        contents["checksum"] = json_digest(contents)
        write_atomic(folder / MANIFEST, (json.dumps(contents, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; StoreError if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    remedy = f"'python -m helpers cache --remove {folder.name}' makes room for a new extraction"
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
    shards = tuple(Shard(**entry) for entry in contents.pop("shards"))
    return Manifest(StoreKey(**key), shards=shards, **contents)


def unfinished(folder: Path) -> StoreError:
    """Return the error of a store that an extraction has not finished."""
    return StoreError(f"{folder}: the store is unfinished; run extraction again")


def is_listed(folder: Path) -> bool:
    """Whether a store has its list of examples, from which its maps can be computed."""
    return (folder / MANIFEST).is_file() and (folder / EXAMPLES).is_file()


def tensor_name(name: str, index: int) -> str:
    """Return the name of an example's tensor in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def digest_path(shard: Path) -> Path:
    """Return the file that keeps the SHA-256 of a shard until the manifest has it."""
    return shard.with_suffix(".sha256")


def shard_entry(path: Path, examples: range, known_digest: str | None) -> Shard:
    """Describe a shard for the manifest.

    The digest beside a shard is newer than the one that the manifest has.  The shard is read if a
    killed process left neither.
    """
    digest = digest_path(path)
    checksum = digest.read_text(encoding="ascii") if digest.is_file() else known_digest
    size = path.stat().st_size
    return Shard(path.name, examples.start, len(examples), size, checksum or sha256(path))


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


def describe(folder: Path) -> dict[str, Any]:
    """Describe a store for a table: corpus, examples and state."""
    try:
        manifest = read_manifest(folder)
    except StoreError:
        return {"finished": "damaged, or of another format: see verify"}
    return {
        "finished": "yes" if manifest.shards else "no",
        "corpus": manifest.spec.corpus["name"],
        "examples": f"{manifest.n_examples:,}",
    }


def remove(folder: Path) -> None:
    """Remove a store's folder and its lock."""
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return a line for each problem."""
    try:
        files = list(read_manifest(folder).files(folder))
    except StoreError as error:
        return [str(error)]
    problems = []
    for path, digest in progress(files, f"checking {folder.name}", unit="file"):
        try:
            check(path, digest)
        except StoreError as error:
            problems.append(str(error))
    return problems


def repair(folder: Path) -> list[str]:
    """Remove the damaged files of a store, and return a line for each.

    The next run that needs the store makes them again: only a run knows where the corpus is.
    StoreError if the manifest is damaged or of another format: nothing says what belongs to it.
    """
    lines = []
    with folder_lock(folder):
        for path, digest in read_manifest(folder).files(folder):
            if path.is_file() and sha256(path) != digest:
                path.unlink()
                lines.append(f"{path}: removed; the next run that needs the store makes it again")
    return lines
