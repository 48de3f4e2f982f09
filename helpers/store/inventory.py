"""Which stores there are, which run used each last, and whether they are whole; their repair."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from helpers.errors import ModelError, StoreError
from helpers.model.encoder import Device, Encoder, load
from helpers.paths import cache_root, only_one
from helpers.progress import progress
from helpers.store.extract import complete, encoder_facts
from helpers.store.format import (
    EXAMPLES,
    MANIFEST,
    UNFINISHED,
    USED,
    StoreKey,
    damage,
    read_manifest,
    shard_name,
)
from helpers.store.store import Store


def stores() -> list[Path]:
    """Return the folders of the stores in the cache, finished or not."""
    found = (cache_root().glob(f"*/{name}") for name in (UNFINISHED, MANIFEST))
    return sorted({path.parent for paths in found for path in paths})


def describe(folder: Path) -> dict[str, Any]:
    """Return what tells a store from others: corpus, examples, whether it is finished, dates."""
    facts = {"corpus": "", "examples": "", "finished": "no"}
    try:
        manifest = read_manifest(folder)
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


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return what is wrong, a line each.

    Records alone are what a stream leaves: they are no unfinished store.
    """
    try:
        manifest = read_manifest(folder)
        if manifest.shards:
            manifest = read_manifest(folder, finished=True)
    except StoreError as error:
        return [str(error)]
    files = [(EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])]
    files += [(shard.file, shard.bytes, shard.sha256) for shard in manifest.shards]
    checked = (
        damage(folder / name, size, digest)
        for name, size, digest in progress(files, f"checking {folder.name}", unit="file")
    )
    return list(filter(None, checked))


def repair(encoder: Encoder, folder: Path) -> list[str]:
    """Extract the damaged shards of a store again, and no others; return what was done.

    Raises:
        StoreError: the store was made with another model, or its manifest or records are
            damaged: extraction has to start again, from the corpus.
    """
    with only_one(folder):
        store = Store.open(folder, encoder)
        _check_model(encoder, folder, store.spec)
        if (folder / MANIFEST).is_file():
            (folder / MANIFEST).replace(folder / UNFINISHED)
        numbers = complete(store)
    return [f"{folder / shard_name(number)}: extracted again" for number in numbers]


def load_encoder(folder: Path, *, model: str | None, device: Device = "auto") -> Encoder:
    """Load the encoder that a store was made with; StoreError where ``model`` is another one.

    ``model`` is where it is now; a store knows the name of a local folder, not its place.
    """
    spec = read_manifest(folder).spec
    facts = spec.model
    try:
        encoder = load(
            model or facts["name"],
            revision=facts.get("revision"),
            device=device,
            dtype=facts["compute_dtype"],
            random_init=facts["random_init"],
        )
    except ModelError as error:
        raise ModelError(f"{error}; say where it is with --model PATH") from error
    _check_model(encoder, folder, spec)
    return encoder


def _check_model(encoder: Encoder, folder: Path, spec: StoreKey) -> None:
    """Raise StoreError where a store was made with another model than an encoder is now."""
    if replace(spec, **encoder_facts(encoder)) != spec:
        raise StoreError(
            f"{folder}: made with another model than {encoder.name!r} as it is now: {spec.model}; "
            "say where that one is with --model PATH"
        )
