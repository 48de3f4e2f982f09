"""Check every byte of a store, and extract again what is damaged."""

from __future__ import annotations

from pathlib import Path

from helpers.errors import StoreError
from helpers.files import only_one
from helpers.model.checkpoint import Device
from helpers.model.encoder import Encoder, load
from helpers.paths import cache_root
from helpers.progress import progress
from helpers.store.extract import check_model, complete
from helpers.store.format import (
    EXAMPLES,
    MANIFEST,
    UNFINISHED,
    Manifest,
    damage,
    read_manifest,
    read_record,
    shard_name,
)

BEGUN_WITH = (UNFINISHED, MANIFEST, "key.json")  # the last one: of a store of format 1


def stores(root: Path | None = None) -> list[Path]:
    """Return the folders of the stores under ``root`` (the cache), finished or not."""
    root = root or cache_root()
    return sorted({path.parent for name in BEGUN_WITH for path in root.glob(f"*/{name}")})


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
        check_model(encoder, folder, _known(folder).spec)
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
    spec = _known(folder).spec
    encoder = load(
        model or spec.model["name"],
        revision=spec.model.get("revision"),
        device=device,
        dtype=spec.model["compute_dtype"],
        random_init=spec.model["random_init"],
    )
    check_model(encoder, folder, spec)
    return encoder


def _known(folder: Path) -> Manifest:
    return read_manifest(folder) if (folder / MANIFEST).is_file() else read_record(folder)
