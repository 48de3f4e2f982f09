"""Check the files of the stores in the cache, and remove damaged ones."""

from __future__ import annotations

from pathlib import Path

from helpers.errors import StoreError
from helpers.files import cache_root, folder_lock
from helpers.progress import progress
from helpers.store.store import EXAMPLES, MANIFEST, check, read_manifest, shard_path


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    return sorted(path.parent for path in cache_root().glob(f"*/{MANIFEST}"))


def verify(folder: Path) -> dict[Path, str]:
    """Check every byte of a store against its manifest; return a line for each damaged file."""
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return {folder / MANIFEST: str(error)}
    digests = {folder / EXAMPLES: manifest["examples_sha256"]}
    for number, shard in enumerate(manifest["shards"]):
        digests[shard_path(folder, number)] = shard["sha256"]
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
