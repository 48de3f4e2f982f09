"""Files that are there whole or not at all, and the errors of disks that are full or damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from safetensors import SafetensorError

from helpers.errors import StoreError

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
