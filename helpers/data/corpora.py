"""Open corpora by name: pinned addresses and hashes, downloaded once or read from a folder.

``corpora.json`` describes each corpus and its terms, ``corpora_files.csv`` has the address and the
SHA-256 of each file, ``embedded.csv`` the terms of the bundled parts, which need no download.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.data.coreference import coreference_corpus
from helpers.data.records import Corpus, Document, Sentence
from helpers.data.text_files import unpacked
from helpers.data.treebank import treebank
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
    root = Path(os.environ.get("CORPORA_DIR") or cache_root() / "corpora")
    files = corpus_files().query("corpus == @name")
    for file in progress(files.itertuples(), f"checking {name}", unit="file", total=len(files)):
        url = f"{registry().loc[name, 'url']}/{file.upstream_path}"
        path = root / file.path
        packed = path.with_name(f"{path.name}.gz")
        existing = packed if packed.is_file() else path
        if not existing.is_file():
            _download(path, url, file.sha256)
            continue
        with unpacked(existing) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != file.sha256:
            problem = f"not the pinned version (expected SHA-256 {file.sha256})"
            raise CorpusError(existing, f"{problem}; remove it, or replace it with {url}")
    return path.parent


def resolve_treebank(
    source: str, *, sentences: int | None = None, seed: int = 0
) -> Corpus[Sentence]:
    """Open the treebank that the user names by ``--treebank``.

    Parameters
    ----------
    source : str
        The name of a corpus, a folder, a file, or "TRAIN,DEV".
    sentences, seed
        As in `treebank`.

    Returns
    -------
    Corpus of Sentence

    Raises
    ------
    InputError
        If there is no such corpus, folder or file.
    """
    # A path may have a comma in it.
    parts = [source] if resolve_user_path(source).exists() else source.split(",", 1)
    paths = [find_corpus(part.strip(), "treebank") for part in parts]
    return _named(treebank(*paths, sentences=sentences, seed=seed), source)


def resolve_coreference(source: str) -> Corpus[Document]:
    """Open the coreference corpus that the user names by ``--coref``: a name, file or folder."""
    return _named(coreference_corpus(find_corpus(source, "coreference")), source)


def _named(corpus: Corpus, source: str) -> Corpus:
    """Give a corpus of the registry its name there, in place of the name of a file."""
    return replace(corpus, name=source) if source in registry().index else corpus


def _download(path: Path, url: str, sha256: str) -> None:
    """Download a file."""
    import pooch

    try:
        pooch.retrieve(url, sha256, path.name, path.parent)
    except (OSError, ValueError) as error:  # the latter: a wrong hash
        problem = f"{url} cannot be downloaded ({str(error)[:120]})"
        raise InputError(f"{problem}; try again with a network, or copy it to {path}") from error
