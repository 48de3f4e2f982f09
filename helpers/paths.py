"""Where things are, and files that are there whole or not at all.

The one place that turns names into folders, and the one that writes: where a disk refuses, each
function raises a StoreError of one line, and what was finished before stays usable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from helpers.errors import StoreError

CHECKSUMS = "checksums.json"
ROOM = (
    "make room or set ATTENTION_CACHE (of results ATTENTION_FIGURES, ATTENTION_BUILD) to a folder "
    "that can be written to, then run again: what was finished is kept"
)


def project_root() -> Path:
    """Return the folder that holds ``helpers/``: the project's, where it is a checkout."""
    return Path(__file__).resolve().parent.parent


def in_checkout() -> bool:
    """Return whether the package is in a checkout: an installed copy has no notebooks."""
    return (project_root() / "notebooks").is_dir()


def cache_root() -> Path:
    """Return the folder of the stores: ``ATTENTION_CACHE``, or ``.cache`` in the project.

    An installed copy has it among the user's caches, and writes nothing beside its code.
    """
    if given := os.environ.get("ATTENTION_CACHE"):
        return Path(given)
    if in_checkout():
        return project_root() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-notebooks"


def figures_dir(slug: str) -> Path:
    """Return the folder of a run's figures; ``ATTENTION_FIGURES`` moves their parent."""
    return _results("figures") / slug


def build_dir(slug: str) -> Path:
    """Return the folder of a run's executed notebooks; ``ATTENTION_BUILD`` moves their parent."""
    return _results("build") / slug


def _results(kind: str) -> Path:
    given = os.environ.get(f"ATTENTION_{kind.upper()}")
    return Path(given) if given else (project_root() if in_checkout() else Path.cwd()) / kind


def check_writable(slug: str) -> None:
    """Refuse to start a run that could not write what it computes: StoreError says what to set."""
    places = {"CACHE": cache_root() / slug, "FIGURES": figures_dir(slug), "BUILD": build_dir(slug)}
    for kind, inside in places.items():
        folder = inside if inside.is_dir() else inside.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
        except OSError as error:
            problem = f"{folder}: cannot be written to ({error.strerror})"
            raise StoreError(f"{problem}; set ATTENTION_{kind} to a folder that can be") from error


def readable(text: str) -> str:
    """Return a text as a part of a file's name: letters, digits and ``. _ + -`` stay, in it."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")


def given_path(given: str | Path) -> Path:
    """Return a path of the user's; a relative one counts from where they are, then the project."""
    path = Path(given).expanduser()
    own = project_root() / path  # an absolute path stays as it is
    return own if own.exists() and not path.exists() else path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; the file takes its place once it is on the disk."""
    # Not the process number alone: workers on two machines may share one, and the folder.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            share(temporary)
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()


def remove_temporary(folder: Path) -> None:
    """Remove what a killed process left half-written (safetensors writes ``.tmp...`` first)."""
    for leftover in {*folder.glob("*.tmp"), *folder.glob(".tmp*")}:
        leftover.unlink(missing_ok=True)


def share(path: Path) -> None:
    """Let those read and write a file who may do so in its folder: safetensors lets its owner."""
    with suppress(PermissionError):  # some file systems have no such modes
        path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn a refusal to write a file or folder (no room, no leave, a broken disk) into one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error  # safetensors has a message alone
        free = shutil.disk_usage(next(p for p in path.parents if p.is_dir())).free
        raise StoreError(
            f"{path}: cannot be written ({reason}; {free:,} bytes are free); {ROOM}"
        ) from error


def check_free(folder: Path, needed: int) -> None:
    """Refuse to start what the disk cannot hold: ``needed`` bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"{folder}: the maps need {needed:,} more bytes and {free:,} are free; {ROOM}; "
            "or use --stream, which stores no maps"
        )


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time change a folder; the lock of a dead process is free."""
    path = folder.with_name(f"{folder.name}.lock")
    lock = FileLock(path)
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"{folder.name}: another process is filling it; waiting", file=sys.stderr)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a folder that is there whole or not at all, unless it is there whole.

    It fills another folder, which is sealed and then renamed.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    with only_one(folder), write_errors(folder):
        problems = broken_seals(folder)
        if not problems:  # another process was quicker
            return
        if folder.is_dir():
            print(f"{problems[0]}; made again", file=sys.stderr)
        for left in (temporary, folder):  # by a run that was killed; damaged
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        try:
            write(temporary)
            seal(temporary)
            for file in temporary.iterdir():
                share(file)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path) -> None:
    """Write the SHA-256 of each file of a folder beside them, which makes the folder whole."""
    files = [file for file in sorted(folder.iterdir()) if file.name != CHECKSUMS]
    digests = {file.name: sha256(file) for file in files}
    (folder / CHECKSUMS).write_text(json.dumps(digests, indent=1), encoding="utf-8")


def broken_seals(folder: Path) -> list[str]:
    """Return what is wrong with the files of a sealed folder, a line each."""
    try:
        sealed = json.loads((folder / CHECKSUMS).read_bytes())
        there = {file.name: file for file in folder.iterdir() if file.name != CHECKSUMS}
        names = sorted(sealed.keys() | there.keys())
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        return [f"{folder / CHECKSUMS}: missing or not whole ({type(error).__name__})"]
    return [
        f"{folder / name}: " + ("changed" if name in there else "missing")
        for name in names
        if name not in there or sealed.get(name) != sha256(there[name])
    ]
