"""Folders of the project, locks, and files and folders that are written whole or not at all.

Only this module writes to the cache, and only it turns names into folders.  If a disk refuses, a
function raises a StoreError of one line, and everything that was finished before stays usable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from helpers.errors import StoreError

PROJECT_ROOT = Path(__file__).resolve().parent.parent  # the folder that holds both packages
IN_CHECKOUT = (PROJECT_ROOT / "notebooks").is_dir()  # an installed copy has no notebooks
FREE_SPACE_ADVICE = (
    "make room, or set ATTENTION_CACHE (for results ATTENTION_BUILD) to a folder that can be "
    "written to, then run again: everything that was finished is kept"
)


def cache_root() -> Path:
    """Locate the folder of the stores: ``ATTENTION_CACHE``, or ``.cache`` in the project.

    An installed copy has it among the user's caches, and writes nothing next to its code.
    """
    if IN_CHECKOUT:
        default = PROJECT_ROOT / ".cache"
    else:
        import pooch  # late: it takes as long to import as all others together

        default = pooch.os_cache("attention-notebooks")
    return Path(os.environ.get("ATTENTION_CACHE") or default).expanduser()


def _results_dir(name: str, slug: str) -> Path:
    """Locate a folder of a run's results; ``ATTENTION_FIGURES`` and ``ATTENTION_BUILD`` move it."""
    default = (PROJECT_ROOT if IN_CHECKOUT else Path.cwd()) / name
    return Path(os.environ.get(f"ATTENTION_{name.upper()}") or default).expanduser() / slug


figures_dir = partial(_results_dir, "figures")  # of a committed run
build_dir = partial(_results_dir, "build")  # of a run's tables, figures and executed notebooks


def slugify(text: str) -> str:
    """Replace all but letters, digits and ``. _ + -`` by hyphens, for a part of a file's name."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.")


def resolve_user_path(name: str | Path) -> Path:
    """Resolve a path that a user gave: from the working folder, else from the project.

    Parameters
    ----------
    name : str or Path
        The path as the user wrote it; ``~`` is the home folder.

    Returns
    -------
    Path
        The path in the working folder if it exists there, else the one in the project.
    """
    path = Path(name).expanduser()
    in_project = PROJECT_ROOT / path  # an absolute path stays as it is
    return in_project if in_project.exists() and not path.exists() else path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old file or all of the new one."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which is renamed to ``path`` when it is whole.

    The system writes the file to the disk in the background.  If the power fails, the file can be
    damaged; if the process is killed, it cannot.
    """
    # A process number would not do: workers on two machines can share both it and the folder.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            inherit_permissions(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def inherit_permissions(path: Path) -> None:
    """Give a file the permissions of its folder, because safetensors makes files private."""
    with suppress(PermissionError):  # some file systems have no permissions
        path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing (disk full, read-only, broken) into a StoreError of one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error  # safetensors has only a message
        existing_parent = next(parent for parent in path.parents if parent.is_dir())
        free = shutil.disk_usage(existing_parent).free
        problem = f"cannot be written ({reason}; {free:,} bytes are free)"
        raise StoreError(f"{path}: {problem}; {FREE_SPACE_ADVICE}") from error


def check_free(folder: Path, needed: int) -> None:
    """Check that a disk has room for maps.

    Parameters
    ----------
    folder : Path
        A folder on the disk.
    needed : int
        Number of bytes.

    Raises
    ------
    StoreError
        If fewer bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        problem = f"{folder}: the maps need {needed:,} more bytes and {free:,} are free"
        raise StoreError(f"{problem}; {FREE_SPACE_ADVICE}; or use --stream, which stores no maps")


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process at a time changes it; locks of dead processes are free."""
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


def build_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder atomically, unless it exists.

    Parameters
    ----------
    folder : Path
        The folder.
    write : callable
        Writes the files to a temporary folder, which is then renamed.

    Raises
    ------
    StoreError
        If the disk refuses.
    """
    with folder_lock(folder):
        if not folder.is_dir():  # else another process was faster
            write_folder(folder, write)


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder as `build_folder` does; the caller has its lock."""
    temporary = folder.with_name(f"{folder.name}.tmp")
    with write_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that failed or was killed
        temporary.mkdir()
        write(temporary)
        for file in temporary.glob("*.safetensors"):
            inherit_permissions(file)
        temporary.rename(folder)


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; it is empty if the file is missing or damaged."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def file_digests(*paths: Path, without: Collection[str] = ()) -> dict[str, str]:
    """Compute the SHA-256 of the files of folders, and of single files, that decide a result.

    A layer calls this when it is imported, because a file that is edited later is not the code that
    this process runs.

    Parameters
    ----------
    *paths : Path
        Folders of a package, or files.
    without : collection of str
        Names of files that decide no cached result.

    Returns
    -------
    dict of str to str
        The digests by the paths of the files, from the folder that has the package.
    """
    digests = {}
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            is_code = file.is_file() and file.suffix not in (".md", ".pyc")
            if is_code and file.name not in without:
                name = file.resolve().relative_to(PROJECT_ROOT).as_posix()
                digests[name] = sha256(file)
    return digests


def json_digest(value: object) -> str:
    """Compute the SHA-256 of a value's JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
