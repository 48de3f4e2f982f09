"""Which stores there are, what each holds, and which run used it last."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from helpers.errors import StoreError
from helpers.paths import cache_root
from helpers.store.format import MANIFEST, UNFINISHED, read_record

BEGUN_WITH = (UNFINISHED, MANIFEST, "key.json")  # the last one: of a store of format 1
USED = "used"  # a folder beside the stores, with a file for each


def stores(root: Path | None = None) -> list[Path]:
    """Return the folders of the stores under ``root`` (the cache), finished or not."""
    root = root or cache_root()
    return sorted({path.parent for name in BEGUN_WITH for path in root.glob(f"*/{name}")})


def describe(folder: Path) -> dict[str, Any]:
    """Return what tells a store from others: corpus, examples, whether it is finished, dates."""
    facts = {"corpus": "", "examples": "", "finished": "no"}
    try:
        manifest = read_record(folder)
        facts |= {"corpus": manifest.spec.corpus["name"], "examples": f"{manifest.n_examples:,}"}
        if (folder / MANIFEST).is_file():
            facts["finished"] = "yes"
        elif not manifest.shards:
            facts["finished"] = "records alone"
    except StoreError:
        facts["finished"] = "damaged, or of another format: see verify"
    return facts | {"written": date(folder), "last run": last_run(folder)}


def remove(folder: Path) -> None:
    """Remove a store's folder and what was noted about it."""
    shutil.rmtree(folder)
    for noted in (folder.with_name(f"{folder.name}.lock"), folder.parent / USED / folder.name):
        noted.unlink(missing_ok=True)


def note_use(folder: Path, run: str) -> None:
    """Remember which run has used a store last; a cache that cannot be written to forgets it."""
    with suppress(OSError):
        path = folder.parent / USED / folder.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(run, encoding="utf-8")


def last_run(folder: Path) -> str:
    """Return the run that has used a store last, and when; empty if none has."""
    path = folder.parent / USED / folder.name
    try:
        return f"{path.read_text(encoding='utf-8')} ({date(path)})"
    except (OSError, ValueError):
        return ""


def date(path: Path) -> str:
    """Return the day when a file or folder was last changed."""
    return datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d")
