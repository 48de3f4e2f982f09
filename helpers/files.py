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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from helpers.errors import StoreError

CHECKSUMS = "checksums.json"
FREE_SPACE_ADVICE = (
    "make room or set ATTENTION_CACHE (for results ATTENTION_FIGURES, ATTENTION_BUILD) to a folder "
    "that can be written to, then run again: everything that was finished is kept"
)


def project_root() -> Path:
    """Locate the folder that holds ``helpers/``: in a checkout, the project's."""
    return Path(__file__).resolve().parent.parent


def in_checkout() -> bool:
    """Whether the package is in a checkout; an installed copy has no notebooks."""
    return (project_root() / "notebooks").is_dir()


def cache_root() -> Path:
    """Locate the folder of the stores: ``ATTENTION_CACHE``, or ``.cache`` in the project.

    An installed copy has it among the user's caches, and writes nothing next to its code.
    """
    from_environment = os.environ.get("ATTENTION_CACHE")
    if from_environment:
        return Path(from_environment)
    if in_checkout():
        return project_root() / ".cache"
    user_caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_caches) / "attention-notebooks"


def figures_dir(slug: str) -> Path:
    """Locate the folder of a run's figures; ``ATTENTION_FIGURES`` moves its parent."""
    return _results_root("figures") / slug


def build_dir(slug: str) -> Path:
    """Locate the folder of a run's executed notebooks; ``ATTENTION_BUILD`` moves its parent."""
    return _results_root("build") / slug


def _results_root(name: str) -> Path:
    """Locate the folder of all runs' figures or builds."""
    from_environment = os.environ.get(f"ATTENTION_{name.upper()}")
    if from_environment:
        return Path(from_environment)
    parent = project_root() if in_checkout() else Path.cwd()
    return parent / name


def check_writable(slug: str) -> None:
    """Check that a run could write its results.

    Parameters
    ----------
    slug : str
        Name of the run's folders.

    Raises
    ------
    StoreError
        If the cache, the figures or the build cannot be written to.
    """
    folders = {
        "ATTENTION_CACHE": cache_root() / slug,
        "ATTENTION_FIGURES": figures_dir(slug),
        "ATTENTION_BUILD": build_dir(slug),
    }
    for variable, folder in folders.items():
        existing = folder if folder.is_dir() else folder.parent
        try:
            existing.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=existing).close()
        except OSError as error:
            raise StoreError(
                f"{existing}: cannot be written to ({error.strerror}); set {variable} to a folder "
                "that can be written to"
            ) from error


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
    in_project = project_root() / path  # an absolute path stays as it is
    return in_project if in_project.exists() and not path.exists() else path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file atomically: readers see the old file or all of the new one."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which is renamed to ``path`` once it is on the disk."""
    # A process number would not do: workers on two machines can share both it and the folder.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            inherit_permissions(temporary)
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()


def remove_temporary(folder: Path) -> None:
    """Remove the unfinished files of a killed process; those of safetensors begin with ``.tmp``."""
    for leftover in {*folder.glob("*.tmp"), *folder.glob(".tmp*")}:
        leftover.unlink(missing_ok=True)


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
        raise StoreError(
            f"{path}: cannot be written ({reason}; {free:,} bytes are free); {FREE_SPACE_ADVICE}"
        ) from error


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
        raise StoreError(
            f"{folder}: the maps need {needed:,} more bytes and {free:,} are free; "
            f"{FREE_SPACE_ADVICE}; or use --stream, which stores no maps"
        )


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
    """Create a folder atomically, unless an undamaged one exists.

    Parameters
    ----------
    folder : Path
        The folder.  If it exists but is damaged, it is replaced.
    write : callable
        Writes the files to a temporary folder, which then gets checksums and is renamed.

    Raises
    ------
    StoreError
        If the disk refuses.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    with folder_lock(folder), write_errors(folder):
        problems = checksum_problems(folder)
        if not problems:  # another process was faster
            return
        if folder.is_dir():
            print(f"{problems[0]}; made again", file=sys.stderr)
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed process
        shutil.rmtree(folder, ignore_errors=True)
        temporary.mkdir()
        try:
            write(temporary)
            write_checksums(temporary)
            for file in temporary.iterdir():
                inherit_permissions(file)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json``: the SHA-256 of each file of a folder."""
    digests = {name: sha256(file) for name, file in _files_by_name(folder).items()}
    (folder / CHECKSUMS).write_text(json.dumps(digests, indent=1), encoding="utf-8")


def checksum_problems(folder: Path) -> list[str]:
    """Compare the files of a folder with their checksums; list the problems, one line each."""
    try:
        digests = dict(json.loads((folder / CHECKSUMS).read_bytes()))
        files = _files_by_name(folder)
        names = sorted({*digests, *files})
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return [f"{folder / CHECKSUMS}: missing or damaged ({type(error).__name__})"]
    problems = []
    for name in names:
        if name not in files:
            problems.append(f"{folder / name}: missing")
        elif digests.get(name) != sha256(files[name]):
            problems.append(f"{folder / name}: changed")
    return problems


def _files_by_name(folder: Path) -> dict[str, Path]:
    """List the files of a folder, except the checksums."""
    return {file.name: file for file in sorted(folder.iterdir()) if file.name != CHECKSUMS}
