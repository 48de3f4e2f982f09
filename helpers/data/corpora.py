"""Open corpora by name: pinned addresses and hashes, downloaded once or read from a folder.

``corpora.json`` describes each corpus and its terms, ``corpora_files.csv`` has the address and the
SHA-256 of each file, ``embedded.csv`` the terms of the bundled parts, which need no download.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.data.text_files import unpacked
from helpers.errors import CorpusError, InputError
from helpers.files import cache_root, resolve_user_path
from helpers.progress import progress

HERE = Path(__file__).parent


@cache
def registry() -> pd.DataFrame:
    """Read the table of corpora, by name: kind, licence, citation, homepage, their files' url."""
    return pd.DataFrame(json.loads((HERE / "corpora.json").read_text())).set_index("name")


@cache
def corpus_files() -> pd.DataFrame:
    """Read the table of files: corpus, path, upstream_path (under url), sha256, bytes, licence."""
    return pd.read_csv(HERE / "corpora_files.csv")


def find_corpus(source: str, annotation: str) -> Path:
    """Find the corpus that the user names.

    Parameters
    ----------
    source : str
        The name of a corpus, or the path of a folder or file.
    annotation : str
        The annotation that it must have: "treebank", "coreference" or "argument pairs".

    Returns
    -------
    Path
        The folder of the named corpus (see `fetch`), or the folder or file.

    Raises
    ------
    InputError
        If there is no such corpus, folder or file.
    """
    names = registry().query("kind == @annotation").index
    if source in names:
        return fetch(source)
    path = resolve_user_path(source)
    if not path.exists():
        problem = f"{source} is neither a path nor a named corpus with {annotation} annotation"
        raise InputError(f"{problem}; give a path, or one of {', '.join(names)}")
    return path


def corpus_name(source: str | Path, file: Path) -> str:
    """Name a corpus: as the table of corpora does, or by its file, up to the first dot."""
    return str(source) if source in registry().index else file.name.partition(".")[0]


def fetch(name: str) -> Path:
    """Find the folder of a corpus, and download the files that it lacks.

    It is below the folder ``CORPORA_DIR``, or else in the cache, at the ``path`` of `corpus_files`.
    The SHA-256 of every file is verified each time; a file may be packed with gzip.

    Parameters
    ----------
    name : str
        Name of the corpus.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        For a failed download.
    CorpusError
        For a file that is not the pinned version.
    """
    import pooch

    root = Path(os.environ.get("CORPORA_DIR") or cache_root() / "corpora")
    files = corpus_files().query("corpus == @name")
    for file in progress(files.itertuples(), f"checking {name}", unit="file", total=len(files)):
        url = f"{registry().loc[name, 'url']}/{file.upstream_path}"
        path = root / file.path
        packed = path.with_name(f"{path.name}.gz")
        existing = packed if packed.is_file() else path
        if not existing.is_file():
            try:
                pooch.retrieve(url, file.sha256, path.name, path.parent)
            except (OSError, ValueError) as error:  # the latter: a wrong hash
                problem = f"{url} cannot be downloaded ({str(error)[:120]})"
                remedy = f"try again with a network, or copy it to {path}"
                raise InputError(f"{problem}; {remedy}") from error
            continue
        with unpacked(existing) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != file.sha256:
            problem = f"not the pinned version (expected SHA-256 {file.sha256})"
            raise CorpusError(existing, f"{problem}; remove it, or replace it with {url}")
    return path.parent
