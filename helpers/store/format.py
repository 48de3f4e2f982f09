"""The files of a store: their names, the manifest, damage and repair, and the list of stores.

A store is a folder with these files:

- ``examples.jsonl``: the list of examples, one record per line; written first.
- ``manifest.json``: the key of the store and the digest of the list; written next.  When all shards
  exist it is written once more, with the size and SHA-256 of each.
- ``shard-00000.safetensors`` ...: the maps of consecutive examples.  A shard is complete if it
  exists, because it is written under a temporary name and renamed.
- ``digests.jsonl``: sizes and digests of shards until the manifest has them, a line per shard, so
  that a resumed run does not read every shard again.

A file that is missing is made again by the next extraction, so removing it repairs it.  No other
file is read, and nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from helpers.cache import code_digest, is_computing
from helpers.errors import StoreError
from helpers.files import (
    cache_root,
    folder_lock,
    sha256,
    slugify,
    write_atomic,
    write_errors,
)
from helpers.model.encoder import Lens
from helpers.progress import progress

FORMAT = 3
MANIFEST = "manifest.json"
EXAMPLES = "examples.jsonl"
DIGESTS = "digests.jsonl"
FILLER = "helpers.store.extract"  # the module that fills stores

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
    hidden: bool = False
    code: str = ""  # digest of the code that computes and reads
    reader: str = ""  # name of the function that reads the corpus
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """SHA-256 of the key, in hexadecimal."""
        return _digest(asdict(self))

    def folder(self) -> Path:
        """Return the store's folder in the cache: a readable slug and a short hash."""
        seed = self.model.get("random_init")
        control = "" if seed is None else f"-random-{seed}"
        control += "-entropy-matched" if "temperatures" in self.model else ""
        lens = "" if self.lens == "attention" else f"-{self.lens}"
        slug = f"{self.model['name']}{control}--{self.corpus['name']}--{self.level}{lens}"
        return cache_root() / f"{slugify(slug)}-{self.hash[:10]}"

    def today(self) -> StoreKey:
        """Return the key of a store with the same settings, filled by the current code."""
        # A user's corpus is what its ``spec`` says.
        module = f"helpers.{self.reader}".rpartition(".")[0]
        readers = [module] if is_computing(module) else []
        return replace(self, code=code_digest(FILLER, *readers))

    @property
    def maps(self) -> dict[str, Any]:
        """Options of `store.examples.shards_tensors` that compute this store's tensors."""
        return {"level": self.level, "lens": self.lens, "hidden": self.hidden}


@dataclass(frozen=True)
class Shard:
    """A finished shard: the examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


class OtherFormatError(StoreError):
    """The store was written by a version of this project with another format."""


@dataclass(frozen=True)
class Manifest:
    """The key of a store and its files; without ``shards`` it is not finished.

    ``examples`` has the size in bytes and the SHA-256 of ``examples.jsonl``.  ``report`` counts, by
    reason, the examples that were dropped or cut.  ``versions`` are those of the packages.  If a
    user has accepted a store of other code, ``accepted`` is the digest of the code that filled it.
    """

    spec: StoreKey
    n_examples: int
    examples: Mapping[str, Any]
    report: Mapping[str, int]
    versions: Mapping[str, str]
    shards: tuple[Shard, ...] = ()
    accepted: str = ""

    @property
    def n_shards(self) -> int:
        """Number of shards of the finished store."""
        return -(-self.n_examples // self.spec.examples_per_shard)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the key and of the digests of records and shards."""
        shard_digests = [shard.sha256 for shard in self.shards]
        return _digest([self.spec.hash, self.examples["sha256"], shard_digests])

    def files(self, folder: Path) -> Iterator[tuple[Path, int, str]]:
        """Yield the path, size and SHA-256 of the list of examples and of each shard."""
        yield folder / EXAMPLES, self.examples["bytes"], self.examples["sha256"]
        for shard in self.shards:
            yield folder / shard.file, shard.bytes, shard.sha256

    def missing_shards(self, folder: Path) -> list[int]:
        """List the numbers of the shards that do not exist."""
        numbers = range(self.n_shards)
        return [number for number in numbers if not (folder / shard_name(number)).is_file()]

    def write(self, folder: Path) -> None:
        """Write the manifest with its checksum, atomically."""
        contents = asdict(self)
        contents.update(contents.pop("spec"))
        contents["checksum"] = _digest(contents)
        write_atomic(folder / MANIFEST, (json.dumps(contents, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store; StoreError if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    try:
        contents = json.loads(path.read_bytes())
        checksum = contents.pop("checksum")
        manifest = _parse(contents, checksum) if contents["format"] == FORMAT else None
    except FileNotFoundError as error:
        raise unfinished(folder) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: not a whole manifest; {_repair_command(folder)}") from error
    if manifest is None:
        raise OtherFormatError(
            f"{path}: written by a version of this project with another format than {FORMAT}; "
            f"'python -m helpers cache --remove {folder.name}' makes room for a new extraction"
        )
    return manifest


def unfinished(folder: Path) -> StoreError:
    """Return the error of a store that an extraction has not finished."""
    return StoreError(f"{folder}: the store is unfinished, run extraction again")


def _parse(contents: dict[str, Any], checksum: str) -> Manifest:
    """Parse a manifest; ValueError or another error of its type if it is damaged."""
    if checksum != _digest(contents):
        raise ValueError("not a whole manifest")
    key_names = {field.name for field in fields(StoreKey)} & contents.keys()
    spec = StoreKey(**{name: contents.pop(name) for name in key_names})
    shards = tuple(Shard(**entry) for entry in contents.pop("shards"))
    for shard in shards:
        # The only name that a shard can have is also one that stays inside the folder.
        if shard.file != shard_name(shard.first // spec.examples_per_shard):
            raise ValueError(f"no name of a shard: {shard.file}")
    return Manifest(spec, **contents, shards=shards)


def is_listed(folder: Path) -> bool:
    """Whether a store has its list of examples, from which its maps can be computed."""
    return (folder / MANIFEST).is_file() and (folder / EXAMPLES).is_file()


def is_finished(folder: Path) -> bool:
    """Whether a store has all its files; StoreError if its manifest is damaged."""
    if not is_listed(folder):
        return False
    manifest = read_manifest(folder)
    return bool(manifest.shards) and not manifest.missing_shards(folder)


def note_digest(folder: Path, shard: Shard) -> None:
    """Write down the size and digest of a shard until the manifest has them."""
    path = folder / DIGESTS
    with write_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(shard)) + "\n")


def noted_digests(folder: Path) -> Iterator[Shard]:
    """Yield the shards that `note_digest` wrote down, without a line that a kill has cut."""
    path = folder / DIGESTS
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, TypeError):
            yield Shard(**json.loads(line))


def discard_shards(folder: Path) -> None:
    """Remove the shards of a store, whose list of examples is another than theirs."""
    for path in (folder / MANIFEST, folder / DIGESTS, *folder.glob("shard-*")):
        path.unlink(missing_ok=True)


def tensor_name(name: str, index: int) -> str:
    """Return the name of an example's tensor in its shard."""
    return f"{name}/{index:06d}"


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def shard_entry(path: Path, examples: range) -> Shard:
    """Describe a shard for the manifest."""
    return Shard(path.name, examples.start, len(examples), path.stat().st_size, sha256(path))


def damage_message(path: Path, size: int, digest: str = "") -> str | None:
    """Describe the damage of a file, and the remedy; None if it has this size and SHA-256.

    The SHA-256 is not checked if it is empty.
    """
    if not path.is_file():
        return f"{path}: missing; run extraction again, which makes it again"
    actual_size = path.stat().st_size
    if actual_size != size:
        problem = f"{actual_size:,} bytes, expected {size:,}"
    elif digest and sha256(path) != digest:
        problem = "its SHA-256 is not that of what was written"
    else:
        return None
    return f"{path}: {problem}; {_repair_command(path.parent)}"


def _repair_command(folder: Path) -> str:
    """Return the advice to repair a store, for the end of an error message."""
    return f"repair it with 'python -m helpers verify --repair {folder.name}'"


def check(path: Path, size: int, digest: str = "") -> None:
    """Raise StoreError if a file is missing or damaged."""
    problem = damage_message(path, size, digest)
    if problem:
        raise StoreError(problem)


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    folders = set()
    for name in (MANIFEST, EXAMPLES):
        folders.update(path.parent for path in cache_root().glob(f"*/{name}"))
    return sorted(folders)


def older_stores(key: StoreKey) -> Iterator[str]:
    """Yield a line for each store of the same settings that other code or a format has left."""
    readable_name = key.folder().name.removesuffix(key.hash[:10])
    for folder in stores():
        try:
            manifest = read_manifest(folder)
        except OtherFormatError as error:
            if folder.name.startswith(readable_name):
                yield str(error)
            continue
        except StoreError:
            continue
        spec = manifest.spec
        is_same = replace(spec, code=key.code, reader=key.reader) == key
        if manifest.shards and spec != key and is_same:
            yield (
                f"{folder.name}: made by other code: extracted again; "
                f"'python -m helpers cache accept {folder.name}' keeps it"
            )


def accept(folder: Path) -> Path:
    """Mark a finished store as valid for the current code, and return its new folder.

    StoreError if the store is unfinished or damaged, or if the current code has extracted the same
    store.
    """
    if not is_finished(folder):
        raise unfinished(folder)
    manifest = read_manifest(folder)
    key = manifest.spec.today()
    target = key.folder()
    if target == folder:
        raise StoreError(f"{folder.name}: made by today's code, or accepted for it")
    with folder_lock(target):
        if is_finished(target):
            raise StoreError(f"{target.name}: extracted already; remove one of the two")
        if target.exists():
            shutil.rmtree(target)  # an extraction by the current code that has not ended
        filled_by = manifest.accepted or manifest.spec.code
        replace(manifest, spec=key, accepted=filled_by).write(folder)
        folder.rename(target)
    return target


def describe(folder: Path) -> dict[str, Any]:
    """Describe a store for a table: corpus, examples, state and date."""
    try:
        manifest = read_manifest(folder)
        corpus = manifest.spec.corpus["name"]
        examples = f"{manifest.n_examples:,}"
        state = _state(folder, manifest)
    except StoreError:
        corpus = ""
        examples = ""
        state = "damaged, or of another format: see verify"
    return {"corpus": corpus, "examples": examples, "finished": state, "written": date(folder)}


def _state(folder: Path, manifest: Manifest) -> str:
    """Return the word for a store's state in a table of stores."""
    if manifest.spec.today() != manifest.spec:
        return "made by other code"
    if is_finished(folder):
        return "accepted" if manifest.accepted else "yes"
    return "no" if _has_shards(folder) else "records alone"


def _has_shards(folder: Path) -> bool:
    """Whether a store has any shard; a stream leaves records alone."""
    return any(folder.glob("shard-*"))


def remove(folder: Path) -> None:
    """Remove a store's folder and its lock."""
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)


def date(path: Path) -> str:
    """Return the day when a file or folder was last changed."""
    return datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d")


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return a line for each problem."""
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return [str(error)]
    if not manifest.shards and _has_shards(folder):
        return [str(unfinished(folder))]
    files = progress(
        manifest.files(folder),
        f"checking {folder.name}",
        unit="file",
        total=1 + len(manifest.shards),
    )
    problems = (damage_message(*file) for file in files)
    return [problem for problem in problems if problem]


def repair(folder: Path) -> list[str]:
    """Remove the damaged files of a store, and return a line for each.

    The next run that needs the store makes them again: only a run knows where the corpus is.  If
    the manifest is damaged, nothing says what the maps belong to, and the whole store is removed.
    StoreError if other code or another version has made the store: no run would complete it.
    """
    with folder_lock(folder):
        try:
            manifest = read_manifest(folder)
        except OtherFormatError:
            raise
        except StoreError:
            remove(folder)
            return ["manifest unreadable: store removed; the next run that needs it extracts it"]
        lines = []
        for path, size, digest in manifest.files(folder):
            if path.is_file() and damage_message(path, size, digest):
                check_code(folder, manifest)
                path.unlink()
                lines.append(f"{path}: removed; the next run that needs the store makes it again")
        return lines


def check_code(folder: Path, manifest: Manifest) -> None:
    """Raise StoreError if other code has made a store, so that the current code cannot go on."""
    if manifest.accepted or manifest.spec.today() != manifest.spec:
        raise StoreError(
            f"{folder}: made by other code than is here; after 'python -m helpers cache --remove "
            f"{folder.name}' it is extracted again"
        )


def _digest(value: object) -> str:
    """Return the SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
