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

from helpers.data.coreference import coreference_corpus
from helpers.data.records import Corpus, Document, Sentence
from helpers.data.text_files import unpacked
from helpers.data.treebank import treebank
from helpers.errors import CorpusError, InputError
from helpers.files import cache_root, resolve_user_path
from helpers.progress import progress

HERE = Path(__file__).parent
CONNECT_AND_READ_TIMEOUT = (10, 60)  # seconds


@cache
def registry() -> pd.DataFrame:
    """Read the table of corpora, by name: kind, licence, citation, homepage, their files' url."""
    return pd.DataFrame(json.loads((HERE / "corpora.json").read_text())).set_index("name")


@cache
def corpus_files() -> pd.DataFrame:
    """Read the table of files: corpus, path, upstream_path (under url), sha256, bytes, licence."""
    return pd.read_csv(HERE / "corpora_files.csv")


def corpora_table() -> pd.DataFrame:
    """Make the table of corpora with a name.

    Returns
    -------
    DataFrame
        One row per corpus: name, kind, files (their number), megabytes, licence, homepage and
        citation.
    """
    files = corpus_files().groupby("corpus")
    table = registry().assign(
        files=files.size(),
        megabytes=(files["bytes"].sum() / 1e6).round(1),
    )
    columns = ["kind", "files", "megabytes", "licence", "homepage", "citation"]
    return table[columns].reset_index()


def embedded_table() -> pd.DataFrame:
    """Read the table of the bundled parts: one row per part, with its package and its licence."""
    return pd.read_csv(HERE / "embedded.csv")


def fetch(name: str, annotation: str) -> dict[str, Path] | None:
    """Find the files of a corpus, and download those that are not on this machine.

    A file in the folder ``CORPORA_DIR`` (laid out as the ``path`` column of `corpus_files`, gzip
    allowed) is used as it is; any other is downloaded once into the cache.  The SHA-256 of every
    file is verified each time.

    Parameters
    ----------
    name : str
        Name of the corpus.
    annotation : str
        The annotation that it must have: "treebank", "coreference" or "argument pairs".

    Returns
    -------
    dict of str to Path, or None
        The files, by file name; None if no corpus has that name.

    Raises
    ------
    InputError
        For a corpus with another annotation, and for a failed download.
    CorpusError
        For a file that is not the pinned version.
    """
    if name not in registry().index:
        return None
    corpus = registry().loc[name]
    if corpus.kind != annotation:
        raise InputError(
            f"{name} is a corpus for {corpus.kind}, not for {annotation}; "
            f"name one of {names(annotation)}, or give a path"
        )
    files = corpus_files().query("corpus == @name")
    paths = {}
    for file in progress(files.itertuples(), f"checking {name}", unit="file", total=len(files)):
        url = f"{corpus.url}/{file.upstream_path}"
        path = _path_in_folder(file.path)
        if path is None:
            path = _download(file.path, url, file.sha256)
        elif _sha256(path) != file.sha256:
            raise CorpusError(
                path,
                f"not the pinned version (expected SHA-256 {file.sha256}); "
                f"replace it with {url}, or unset CORPORA_DIR",
            )
        paths[Path(file.path).name] = path
    return paths


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
    files = fetch(source, "treebank")
    if files:
        splits = {name.rpartition("-")[2].partition(".")[0]: path for name, path in files.items()}
        return treebank(splits["train"], splits["dev"], name=source, sentences=sentences, seed=seed)
    parts = [source] if resolve_user_path(source).exists() else source.split(",")
    paths = [resolve_user_path(part.strip()) for part in parts]
    for path in paths:
        if not path.exists() or len(paths) > 2:
            raise InputError(
                f"no treebank at {path}; expected "
                f"a name ({names('treebank')}), a folder or file, or TRAIN,DEV"
            )
    return treebank(*paths, sentences=sentences, seed=seed)


def resolve_coreference(source: str) -> Corpus[Document]:
    """Open the coreference corpus that the user names by ``--coref``: a name, file or folder."""
    files = fetch(source, "coreference")
    if files:
        folder = next(iter(files.values())).parent
        return coreference_corpus(folder, name=source)
    path = resolve_user_path(source)
    if not path.exists():
        raise InputError(
            f"no coreference corpus at {source}; expected a name ({names('coreference')}) or a path"
        )
    return coreference_corpus(path)


def names(annotation: str) -> str:
    """List the names of the corpora with an annotation, for a message."""
    return ", ".join(registry().query("kind == @annotation").index)


def _path_in_folder(path: str) -> Path | None:
    """Find a file of a corpus, plain or as gzip, in the folder ``CORPORA_DIR``."""
    folder = os.environ.get("CORPORA_DIR")
    if not folder:
        return None
    for candidate in (Path(folder) / path, Path(folder) / f"{path}.gz"):
        if candidate.is_file():
            return candidate
    return None


def _sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's content, unpacked."""
    with unpacked(path) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(path: str, url: str, sha256: str) -> Path:
    """Download a file into the cache, unless it is there already."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # its line per file would break the progress bar
    target = cache_root() / "corpora" / path
    downloader = pooch.HTTPDownloader(timeout=CONNECT_AND_READ_TIMEOUT)
    remedy = f"try again with a network, or set CORPORA_DIR to a folder that holds {path}"
    try:
        return Path(pooch.retrieve(url, sha256, target.name, target.parent, downloader=downloader))
    except (requests.RequestException, OSError) as error:
        reason = type(error).__name__
        raise InputError(f"{url} cannot be downloaded ({reason}); {remedy}") from error
    except ValueError as error:  # pooch: the hash does not match
        raise InputError(
            f"{url} did not send the pinned version (expected SHA-256 {sha256}); {remedy}"
        ) from error
