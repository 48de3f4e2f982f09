"""Check every byte of a store, and extract again what is damaged."""

from __future__ import annotations

from pathlib import Path

from helpers.errors import ModelError, StoreError
from helpers.model.checkpoint import Device
from helpers.model.encoder import Encoder, load
from helpers.paths import only_one
from helpers.progress import progress
from helpers.store.extract import check_model, complete
from helpers.store.format import (
    EXAMPLES,
    MANIFEST,
    UNFINISHED,
    damage,
    read_manifest,
    read_record,
    shard_name,
)
from helpers.store.store import Records


def verify(folder: Path) -> list[str]:
    """Check every byte of a store against its manifest; return what is wrong, a line each."""
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return [str(error)]
    files = [(EXAMPLES, manifest.examples["bytes"], manifest.examples["sha256"])]
    files += [(shard.file, shard.bytes, shard.sha256) for shard in manifest.shards]
    checked = (
        damage(folder / name, size, digest)
        for name, size, digest in progress(files, f"checking {folder.name}", unit="file")
    )
    return [problem for problem in checked if problem is not None]


def repair(encoder: Encoder, folder: Path) -> list[str]:
    """Drop the damaged shards of a store and extract them again, and no others.

    Returns:
        What was done, a line each.

    Raises:
        StoreError: the store was made with another model, or its manifest or records are
            damaged: extraction has to start again, from the corpus.
    """
    with only_one(folder):
        check_model(encoder, folder, Records.read(folder).spec)
        if (folder / MANIFEST).is_file():
            (folder / MANIFEST).replace(folder / UNFINISHED)
        numbers = complete(encoder, folder)
    return [f"{folder / shard_name(number)}: extracted again" for number in numbers]


def load_encoder(folder: Path, *, model: str | None = None, device: Device = "auto") -> Encoder:
    """Load the encoder that a store was made with.

    ``model`` is where it is now; a store knows the name of a local folder, not its place.

    Raises:
        ModelError: it cannot be loaded.
        StoreError: the store does not say, or ``model`` is another one.
    """
    spec = read_record(folder).spec
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
        if model is not None or facts.get("revision"):
            raise
        raise ModelError(
            f"made with {facts['name']!r}, a local folder; say where it is with --model PATH"
        ) from error
    check_model(encoder, folder, spec)
    return encoder
