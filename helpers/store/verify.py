"""Check every byte of a store, and extract again what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.errors import StoreError
from helpers.model.checkpoint import Device
from helpers.model.encoder import Encoder, load
from helpers.paths import cache_root
from helpers.progress import progress
from helpers.store.extract import check_model, finish, only_one, work
from helpers.store.format import (
    EXAMPLES,
    KEY,
    MANIFEST,
    FormatError,
    Shard,
    StoreKey,
    check_size,
    manifest_key,
    read_key,
    read_manifest,
    remove_temporary,
    sha256,
    shard_name,
    write_key,
)
from helpers.store.shards import finished_shard, shards_tensors, write_shard
from helpers.store.store import Records


def stores(root: Path | None = None) -> list[Path]:
    """Return the folders of the stores under ``root`` (the cache), finished or not."""
    root = root or cache_root()
    return sorted({path.parent for name in (KEY, MANIFEST) for path in root.glob(f"*/{name}")})


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return what is wrong, a line each."""
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return [str(error)]
    problems = []
    try:
        if read_key(folder) != (manifest_key(manifest), manifest["examples"]):
            problems.append(f"{folder / MANIFEST}: belongs to another store than {KEY}")
    except StoreError as error:
        problems.append(str(error))
    entries = [manifest["examples"], *manifest["shards"]]
    for entry in progress(entries, f"checking {folder.name}", unit="file"):
        problem = _damage(folder / entry["file"], entry["bytes"], entry["sha256"])
        if problem is not None:
            problems.append(problem)
    return problems


def repair(encoder: Encoder, folder: Path) -> list[str]:
    """Extract the damaged shards of a store again, and no others; return what was done.

    A manifest that cannot be read is written anew.  The records are what everything is computed
    from: where ``examples.jsonl`` is damaged, the corpus is needed.

    Raises:
        StoreError: the store was made with another model, or by a newer version, or its records
            are damaged, so that extraction has to start again.
    """
    with only_one(folder):
        spec, examples, recorded = _facts(folder)
        check_model(encoder, folder, spec)
        problem = _damage(folder / EXAMPLES, examples["bytes"], examples["sha256"])
        if problem is not None:
            raise StoreError(
                f"{problem}; the corpus is needed: move the folder away and run extraction again"
            )
        remove_temporary(folder)
        done = _restore_key(folder, spec, examples)
        records = Records.read(folder, spec)
        shards = _intact(records, recorded)
        damaged = [number for number in range(records.n_shards) if number not in shards]
        maps = shards_tensors(encoder, work(records, damaged), level=spec.level, hidden=spec.hidden)
        for number, (indices, tensors) in zip(damaged, maps, strict=True):
            shards[number] = write_shard(folder, number, tensors, indices, spec.hash)
            done.append(f"{folder / shard_name(number)}: extracted again")
        if damaged or not recorded:
            finish(records, [shards[number] for number in range(records.n_shards)])
        return done if recorded else [*done, f"{folder / MANIFEST}: written anew"]


def load_encoder(folder: Path, *, model: str | None = None, device: Device = "auto") -> Encoder:
    """Load the encoder that a store was made with.

    ``model`` is where it is now; a store knows the name of a local folder, not its place.

    Raises:
        ModelError: it cannot be loaded.
        StoreError: the store does not say, or ``model`` is another one.
    """
    spec, _, _ = _facts(folder)
    encoder = load(
        model or spec.model["name"],
        revision=spec.model.get("revision"),
        device=device,
        dtype=spec.model["compute_dtype"],
        random_init=spec.model["random_init"],
    )
    check_model(encoder, folder, spec)
    return encoder


def _facts(folder: Path) -> tuple[StoreKey, dict[str, Any], dict[str, Shard]]:
    """Return the key, what identifies the records, and the recorded shards by file name.

    Either of ``key.json`` and the manifest may be damaged, not both; where they contradict each
    other, ``key.json`` is right: it was there first, and nothing else is written into the folder.
    """
    try:
        manifest = read_manifest(folder)
    except FormatError:
        raise
    except StoreError:
        return *read_key(folder), {}
    facts = manifest_key(manifest), manifest["examples"]
    try:
        if read_key(folder) != facts:
            return *read_key(folder), {}
    except StoreError:
        pass
    return *facts, {entry["file"]: Shard(**entry) for entry in manifest["shards"]}


def _restore_key(folder: Path, spec: StoreKey, examples: dict[str, Any]) -> list[str]:
    """Write ``key.json`` anew if it is damaged; return what was done."""
    try:
        if read_key(folder) == (spec, examples):
            return []
    except StoreError:
        pass
    write_key(folder, spec)
    return [f"{folder / KEY}: written anew"]


def _intact(records: Records, recorded: dict[str, Shard]) -> dict[int, Shard]:
    """Return the shards that are as the manifest (or, without one, their header) says."""
    intact = {}
    for number in progress(range(records.n_shards), "looking for damaged shards", unit="shard"):
        shard = recorded.get(shard_name(number))
        if shard is None:
            indices = records.shard_examples(number)
            shard = finished_shard(records.folder, number, indices, records.spec.hash)
        elif _damage(records.folder / shard.file, shard.bytes, shard.sha256) is not None:
            shard = None
        if shard is not None:
            intact[number] = shard
    return intact


def _damage(path: Path, size: int, digest: str) -> str | None:
    """Return what is wrong with a file, or None."""
    try:
        check_size(path, size)
    except StoreError as error:
        return str(error)
    found = sha256(path)
    if found != digest:
        return f"{path}: SHA-256 is {found[:16]}..., expected {digest[:16]}..."
    return None
