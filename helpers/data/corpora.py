"""Open corpora by name: pinned addresses and hashes, downloaded once or read from a folder.

``corpora.json`` says what each corpus is and its terms, ``corpora_files.csv`` where each file is
and what it must be, ``embedded.csv`` the terms of what is here without a download.
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
from helpers.paths import cache_root, given_path
from helpers.work import progress

HERE = Path(__file__).parent
CONNECT_AND_READ_TIMEOUT = (10, 60)  # seconds


@cache
def registry() -> pd.DataFrame:
    """Return one row a corpus, by name: kind, licence, citation, homepage, and its files' url."""
    return pd.DataFrame(json.loads((HERE / "corpora.json").read_text())).set_index("name")


@cache
def corpus_files() -> pd.DataFrame:
    """Return one row a file: corpus, path, upstream_path (under url), sha256, bytes, licence."""
    return pd.read_csv(HERE / "corpora_files.csv")


def corpora_table() -> pd.DataFrame:
    """Return one row a corpus: what it is, its size in megabytes, its terms, where it is now.

    ``here`` is "folder" (all files in ``CORPORA_DIR``), "cache" (downloaded before) or "no".
    """
    files = corpus_files().groupby("corpus")
    table = registry().assign(
        files=files.size(),
        megabytes=(files["bytes"].sum() / 1e6).round(1),
        here=files["path"].agg(_whereabouts),
    )
    columns = ["kind", "files", "megabytes", "licence", "here", "homepage", "citation"]
    return table[columns].reset_index()


def embedded_table() -> pd.DataFrame:
    """Return one row a part of the embedded default: its package, and the part's own licence."""
    return pd.read_csv(HERE / "embedded.csv")


def fetch(name: str, kind: str) -> dict[str, Path] | None:
    """Return a corpus's files by file name, downloading what is not on this machine.

    None where no corpus is called that.  A file in the folder ``CORPORA_DIR`` (laid out as the
    ``path`` column of `corpus_files`, gzip allowed) is used where it lies; any other is
    downloaded once into the cache.  Every file's SHA-256 is verified each time.
    """
    if name not in registry().index:
        return None
    corpus = registry().loc[name]
    if corpus.kind != kind:
        raise InputError(f"{name} is a corpus for {corpus.kind}, not for {kind}")
    files = corpus_files().query("corpus == @name")
    found = {}
    for file in progress(files.itertuples(), f"checking {name}", unit="file", total=len(files)):
        url = f"{corpus.url}/{file.upstream_path}"
        path = _in_folder(file.path)
        if path is None:
            path = _download(file.path, url, file.sha256)
        elif _sha256(path) != file.sha256:
            problem = f"not the pinned version (expected SHA-256 {file.sha256})"
            raise CorpusError(path, f"{problem}; replace it with {url}, or unset CORPORA_DIR")
        found[Path(file.path).name] = path
    return found


def resolve_treebank(
    source: str, *, sentences: int | None = None, seed: int = 0
) -> Corpus[Sentence]:
    """Return the treebank that a user means by ``--treebank``; for the options see `treebank`.

    InputError where there is no registered corpus, folder or file of that name, or "TRAIN,DEV".
    """
    options = {"sentences": sentences, "seed": seed}
    if files := fetch(source, "treebank"):
        splits = {name.rpartition("-")[2].partition(".")[0]: path for name, path in files.items()}
        return treebank(splits["train"], splits["dev"], name=source, **options)
    parts = [source] if given_path(source).exists() else source.split(",")
    paths = [given_path(part.strip()) for part in parts]
    for path in paths:
        if not path.exists() or len(paths) > 2:
            expected = f"a name ({names('treebank')}), a folder or file, or TRAIN,DEV"
            raise InputError(f"no treebank at {path}; expected {expected}")
    return treebank(*paths, **options)


def resolve_coreference(source: str) -> Corpus[Document]:
    """Return the coreference corpus that a user means by ``--coref``: a name, file or folder."""
    if files := fetch(source, "coreference"):
        return coreference_corpus(next(iter(files.values())).parent, name=source)
    path = given_path(source)
    if not path.exists():
        expected = f"expected a name ({names('coreference')}) or a path"
        raise InputError(f"no coreference corpus at {source}; {expected}")
    return coreference_corpus(path)


def names(kind: str) -> str:
    """Return the names of the corpora of a kind, as a message lists them."""
    return ", ".join(registry().query("kind == @kind").index)


def _whereabouts(paths: pd.Series) -> str:
    if all(map(_in_folder, paths)):
        return "folder"
    here = all((cache_root() / "corpora" / path).is_file() for path in paths)
    return "cache" if here else "no"


def _in_folder(path: str) -> Path | None:
    folder = os.environ.get("CORPORA_DIR")
    copies = [Path(folder) / path, Path(folder) / f"{path}.gz"] if folder else []
    return next((copy for copy in copies if copy.is_file()), None)


def _sha256(path: Path) -> str:
    with unpacked(path) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(path: str, url: str, sha256: str) -> Path:
    """Return the cached download of a file, after downloading it where there is none."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # its line per file would break the progress bar
    place = cache_root() / "corpora" / path
    downloader = pooch.HTTPDownloader(timeout=CONNECT_AND_READ_TIMEOUT)
    ways_out = f"try again with a network, or set CORPORA_DIR to a folder that holds {path}"
    try:
        return Path(pooch.retrieve(url, sha256, place.name, place.parent, downloader=downloader))
    except (requests.RequestException, OSError) as error:
        why = type(error).__name__
        raise InputError(f"{url} cannot be downloaded ({why}); {ways_out}") from error
    except ValueError as error:  # pooch: the hash does not match
        problem = f"what {url} sent is not the pinned version (expected SHA-256 {sha256})"
        raise InputError(f"{problem}; {ways_out}") from error
