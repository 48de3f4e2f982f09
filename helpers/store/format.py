"""What a store holds: its key, its shards, and the manifest that records both.

Files that are there whole or not at all, and the errors of disks that are full or damaged.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from safetensors import SafetensorError

from helpers.errors import StoreError
from helpers.paths import cache_root

FORMAT = 1
MANIFEST, EXAMPLES, REPORT, KEY = "manifest.json", "examples.jsonl", "report.json", "key.json"

Level = Literal["token", "word"]


@dataclass(frozen=True)
class StoreKey:
    """Everything that determines what a store holds, and so names its folder."""

    model: Mapping[str, Any]
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
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def folder(self, root: Path | None = None) -> Path:
        """Return the store's folder: a readable slug and a short hash."""
        seed = self.model.get("random_init")
        control = "" if seed is None else f"-random-{seed}"
        readable = f"{self.model['name']}{control}--{self.corpus['name']}--{self.level}"
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", readable)
        return (root or cache_root()) / f"{readable}-{self.hash[:10]}"


@dataclass(frozen=True)
class Shard:
    """A finished shard: examples ``first`` to ``first + count`` in one file."""

    file: str
    first: int
    count: int
    bytes: int
    sha256: str


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"shard-{number:05d}.safetensors"


def shard_examples(number: int, size: int, total: int) -> range:
    """Return the indices of the examples in a shard of ``size``, of ``total`` in the store."""
    return range(number * size, min((number + 1) * size, total))


def write_key(folder: Path, key: StoreKey) -> None:
    """Write the key and what identifies ``examples.jsonl``, which is there by now.

    With it a store can be finished, repaired or streamed from its folder alone.
    """
    path = folder / EXAMPLES
    examples = {"file": EXAMPLES, "bytes": path.stat().st_size, "sha256": sha256(path)}
    write_whole(folder / KEY, _json({**asdict(key), "examples": examples}))


def read_key(folder: Path) -> tuple[StoreKey, dict[str, Any]]:
    """Return the key of a store, finished or not, and what identifies its ``examples.jsonl``.

    Raises:
        StoreError: it is missing or damaged.
    """
    try:
        facts = json.loads((folder / KEY).read_bytes())
        examples = facts.pop("examples")
        _check_counts(examples["bytes"])
        return StoreKey(**facts), examples
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{folder / KEY}: missing or not whole; move the folder away and run extraction again"
        ) from error


def write_manifest(
    folder: Path, key: StoreKey, shards: Sequence[Shard], extra: Mapping[str, Any]
) -> None:
    """Write the manifest, last of all, and so declare the store finished."""
    manifest = {
        **asdict(key),
        "key": key.hash,
        "n_examples": sum(shard.count for shard in shards),
        **extra,
        "examples": read_key(folder)[1],
        "shards": [asdict(shard) for shard in shards],
    }
    write_whole(folder / MANIFEST, _json(manifest))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check a manifest; names in it cannot point outside the store's folder.

    Raises:
        StoreError: it is missing, cut short or inconsistent.
        FormatError: it is of another format.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise StoreError(f"{folder}: no {MANIFEST}; the store is unfinished, run extraction again")
    try:
        manifest = json.loads(path.read_bytes())
        found = manifest["format"]
        if found == FORMAT:
            _check_manifest(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = str(error) if isinstance(error, _Inconsistent) else "not a whole manifest"
        raise StoreError(f"{path}: {problem}; {repair_hint(folder)}") from error
    if found != FORMAT:
        raise FormatError(
            f"{path}: store format {found!r}, this version reads format {FORMAT}; "
            "use the version that wrote it, or move the folder away and extract again"
        )
    return manifest


def manifest_key(manifest: Mapping[str, Any]) -> StoreKey:
    """Return the key that a manifest records."""
    return StoreKey(**{field.name: manifest[field.name] for field in fields(StoreKey)})


def check_key(folder: Path, found: StoreKey, wanted: StoreKey) -> None:
    """Check that a folder was made for ``wanted``.

    Raises:
        StoreError: it was not; the message names the first difference.
    """
    for name, value in _flat(asdict(wanted)).items():
        other = _flat(asdict(found)).get(name)
        if other != value:
            raise StoreError(
                f"{folder}: made for {name} = {other!r}, wanted {value!r}; "
                "move the folder away and run extraction again"
            )


class FormatError(StoreError):
    """A store was written in a format that this version does not read."""


class _Inconsistent(ValueError):
    """A manifest contradicts itself."""


def _check_manifest(manifest: dict[str, Any]) -> None:
    key, total = manifest_key(manifest), 0
    if manifest["key"] != key.hash:
        raise _Inconsistent("its facts do not fit its key")
    _check_counts(
        key.examples_per_shard, manifest["n_examples"], key.model["layers"], key.model["heads"]
    )
    for number, shard in enumerate(Shard(**entry) for entry in manifest["shards"]):
        # The one name that a shard can have is also the one that stays inside the folder.
        if shard.file != shard_name(number):
            raise _Inconsistent(f"shard {number} is called {shard.file!r}")
        _check_counts(shard.count, shard.bytes)
        own = shard_examples(number, key.examples_per_shard, manifest["n_examples"])
        if range(shard.first, shard.first + shard.count) != own:
            raise _Inconsistent(f"{shard.file} does not hold examples {own.start} to {own.stop}")
        total += shard.count
    if total != manifest["n_examples"]:
        raise _Inconsistent(f"its shards hold {total} of {manifest['n_examples']} examples")
    if manifest["examples"]["file"] != EXAMPLES:
        raise _Inconsistent(f"its examples are called {manifest['examples']['file']!r}")
    _check_counts(manifest["examples"]["bytes"])


def _check_counts(*values: object) -> None:
    for value in values:
        if not isinstance(value, int) or value < 1:
            raise _Inconsistent(f"{value!r} where a count belongs")


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


ROOM = "make room or set ATTENTION_CACHE to another disk, then run again: what was finished is kept"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        StoreError: the disk is full (what was finished before stays usable).
    """
    with whole_file(path, len(data)) as temporary:
        temporary.write_bytes(data)


@contextmanager
def whole_file(path: Path, needed: int) -> Iterator[Path]:
    """Yield a path to write ``needed`` bytes to; the file takes its place once it is on the disk.

    Raises:
        StoreError: the disk is full (what was finished before stays usable).
    """
    # Not the process number alone: workers on two machines may share one, and the folder.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with write_errors(path, needed):
            yield temporary
            share(temporary)
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def share(path: Path) -> None:
    """Let those read and write a file who may do so in its folder: safetensors lets its owner."""
    with suppress(PermissionError):  # some file systems have no such modes
        path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def write_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn the operating system's refusal to write into one line; other errors pass.

    Raises:
        StoreError: no room (with the bytes needed and free), no permission, or a broken disk.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _error_number(error)
        if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise
        needs = "" if needed is None else f"it needs {needed:,} bytes and "
        free = shutil.disk_usage(path.parent).free
        raise StoreError(
            f"{path}: cannot be written ({os.strerror(number)}); {needs}{free:,} are free; {ROOM}"
        ) from error


def _error_number(error: OSError | SafetensorError) -> int | None:
    """Return the system's number of an error; safetensors has it in its message alone."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


def check_free(folder: Path, needed: int) -> None:
    """Refuse to start what the disk cannot hold.

    Raises:
        StoreError: fewer than ``needed`` bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"{folder}: the maps need {needed:,} more bytes and {free:,} are free; {ROOM}, "
            "or use --stream, which stores no maps"
        )


def check_size(path: Path, expected: int) -> None:
    """Check that a file is there and has the expected size in bytes.

    Raises:
        StoreError: it is missing, or shorter or longer.
    """
    if not path.is_file():
        raise StoreError(f"{path}: missing; {repair_hint(path.parent)}")
    if path.stat().st_size != expected:
        raise StoreError(
            f"{path}: {path.stat().st_size:,} bytes, expected {expected:,}; "
            f"{repair_hint(path.parent)}"
        )


def repair_hint(folder: Path) -> str:
    """Return what a message about a damaged store ends with."""
    return f"repair it with 'python -m helpers verify --repair {folder.name}'"


def remove_temporary(folder: Path) -> None:
    """Remove what a killed process left half-written (safetensors writes ``.tmp...`` first)."""
    for pattern in ("*.tmp", ".tmp*"):
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def line_offsets(path: Path) -> Int[np.ndarray, " line"]:
    """Return the byte at which each line starts, and at the end the file's size."""
    with path.open("rb") as file:
        lengths = np.fromiter((len(line) for line in file), dtype=np.int64)
    return np.concatenate([[0], lengths.cumsum()]).astype(np.int64)


def read_lines(
    path: Path, offsets: Int[np.ndarray, " line"], lines: range
) -> Iterator[dict[str, Any]]:
    """Yield the records on consecutive ``lines`` (counted from 0) of an ``examples.jsonl``.

    Raises:
        StoreError: a line is not a JSON object.
    """
    with path.open("rb") as file:
        file.seek(int(offsets[lines.start]))
        for number in lines:
            try:
                record = json.loads(file.readline())
            except (ValueError, RecursionError) as error:
                raise StoreError(not_a_record(path, number)) from error
            if not isinstance(record, dict):
                raise StoreError(not_a_record(path, number))
            yield record


def not_a_record(path: Path, number: int) -> str:
    """Return the message about a line (counted from 0) that is damaged."""
    return (
        f"{path}:{number + 1}: not a record; the list of examples is damaged: move the folder "
        "away and run extraction again"
    )
