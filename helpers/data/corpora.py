"""Open corpora by name: pinned addresses and hashes, downloaded once or read from a folder.

The registry is data: ``corpora.json`` says what each corpus is and its terms,
``corpora_files.csv`` where each file is and what it must be, ``embedded.csv`` the terms of what
is here without a download.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from helpers.data.coreference import coreference_corpus
from helpers.data.records import Corpus, Document, Sentence
from helpers.data.text_files import unpacked
from helpers.data.treebank import treebank
from helpers.errors import CorpusError, InputError
from helpers.paths import cache_root
from helpers.progress import progress

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["treebank", "coreference", "embeddings", "argument pairs"]

HERE = Path(__file__).parent
CONNECT_AND_READ_TIMEOUT = (10, 60)  # seconds
WITH_OWN_BAR = 10 << 20  # bytes from which a file's download has a bar of its own


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One file: its place under a corpora folder, and what it must be.

    ``sha256`` and ``size`` (bytes) are those of the file at ``url``; a copy in ``CORPORA_DIR``
    may be compressed with gzip, and is then compared by its content.
    """

    path: str
    url: str
    sha256: str
    size: int
    licence: str


@dataclass(frozen=True, slots=True)
class OpenCorpus:
    """A corpus that anyone may download, and the terms it comes under."""

    name: str
    kind: Kind
    licence: str
    citation: str
    homepage: str
    files: tuple[OpenFile, ...] = field(repr=False)


@cache
def registry() -> dict[str, OpenCorpus]:
    """Return the corpora that have a name, by name."""
    facts = {entry["name"]: entry for entry in json.loads((HERE / "corpora.json").read_text())}
    urls = {name: entry.pop("url") for name, entry in facts.items()}
    files: dict[str, list[OpenFile]] = {name: [] for name in facts}
    with (HERE / "corpora_files.csv").open(newline="") as table:
        for row in csv.DictReader(table):
            url = f"{urls[row['corpus']]}/{row['upstream_path']}"
            files[row["corpus"]].append(
                OpenFile(row["path"], url, row["sha256"], int(row["bytes"]), row["licence"])
            )
    return {name: OpenCorpus(**facts[name], files=tuple(files[name])) for name in facts}


def corpora_table() -> pd.DataFrame:
    """Return one row a corpus: what it is, its size in megabytes, its terms, where it is now.

    ``here`` is "folder" (all files in ``CORPORA_DIR``), "cache" (downloaded before) or "no";
    only the presence of files is looked at.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            "name": corpus.name,
            "kind": corpus.kind,
            "files": len(corpus.files),
            "megabytes": round(sum(file.size for file in corpus.files) / 1e6, 1),
            "licence": corpus.licence,
            "here": _whereabouts(corpus),
            "homepage": corpus.homepage,
            "citation": corpus.citation,
        }
        for corpus in registry().values()
    )


def embedded_table() -> pd.DataFrame:
    """Return one row a part of the embedded default: its package, and its own licence.

    The licence is that of the weights, text or vectors, not of the package around them.
    """
    import pandas as pd

    return pd.read_csv(HERE / "embedded.csv")


def fetch(name: str) -> dict[str, Path]:
    """Return the files of a corpus by file name, downloading what is not on this machine.

    A file in the folder ``CORPORA_DIR`` (laid out as the ``path`` column of the registry, gzip
    allowed) is used where it lies; any other is downloaded once into the cache.  Every file's
    SHA-256 is verified each time.

    Raises:
        InputError: an unknown name; or a file that is in no folder and cannot be downloaded.
        CorpusError: a file that is not the pinned version.
    """
    if name not in registry():
        raise InputError(f"no corpus is called {name!r}; there are {', '.join(registry())}")
    files = registry()[name].files
    return {
        Path(file.path).name: _local_copy(file) or _download(file, name)
        for file in progress(files, f"checking {name}", unit="file")
    }


def resolve_treebank(
    source: str, *, sentences: int | None = None, seed: int = 0
) -> Corpus[Sentence]:
    """Return the treebank that a user named.

    Args:
        source: a name of the registry ("ud-english-ewt"), a folder, a file, or
            "TRAIN,DEV" (two files).  The name wins over a file called the same.
        sentences: the size of a sample, as in `treebank`.
        seed: decides the sample, and the split of a single file.

    Raises:
        InputError: neither a name nor a path that exists; or the name of another kind of corpus.
        CorpusError: a file that cannot be read.
    """
    options = {"sentences": sentences, "seed": seed}
    if files := _named(source, "treebank"):
        train, dev = (
            next(path for name, path in files.items() if f"-{split}." in name)
            for split in ("train", "dev")
        )
        return treebank(train, dev, name=source, **options)
    if Path(source).exists():
        return treebank(Path(source), **options)
    parts = [Path(part.strip()) for part in source.split(",")]
    if len(parts) == 2 and all(part.is_file() for part in parts):
        return treebank(*parts, **options)
    missing = next((part for part in parts if not part.exists()), source)
    raise InputError(
        f"no treebank at {missing}; expected a name ({_names('treebank')}), a folder or file, or "
        "TRAIN,DEV"
    )


def resolve_coreference(source: str) -> Corpus[Document]:
    """Return the coreference corpus that a user means by ``--coref``.

    ``source`` is the name of a registered corpus, or the path of a file or folder.  Of a corpus
    that comes in several formats, the one with dependency trees is read.

    Raises:
        InputError: nothing of that name, or it cannot be had here.
    """
    if files := _named(source, "coreference"):
        paths = sorted(files.values(), key=lambda path: path.suffix != ".conllu")
        return coreference_corpus(paths[0].parent, name=source)
    if Path(source).expanduser().exists():
        return coreference_corpus(Path(source).expanduser())
    names = _names("coreference")
    raise InputError(f"no coreference corpus at {source}; expected a name ({names}) or a path")


def _names(kind: Kind) -> str:
    return ", ".join(corpus.name for corpus in registry().values() if corpus.kind == kind)


def _named(source: str, kind: Kind) -> dict[str, Path] | None:
    """Fetch the corpus of that name, which has to be of that kind; None for any other text."""
    if source not in registry():
        return None
    if registry()[source].kind != kind:
        found = registry()[source].kind
        raise InputError(f"{source} is a corpus for {found}, not for {kind}")
    return fetch(source)


def _whereabouts(corpus: OpenCorpus) -> Literal["folder", "cache", "no"]:
    if all(_in_folder(file) for file in corpus.files):
        return "folder"
    if all((cache_root() / "corpora" / file.path).is_file() for file in corpus.files):
        return "cache"
    return "no"


def _in_folder(file: OpenFile) -> Path | None:
    folder = os.environ.get("CORPORA_DIR")
    copies = [Path(folder) / file.path, Path(folder) / f"{file.path}.gz"] if folder else []
    return next((copy for copy in copies if copy.is_file()), None)


def _local_copy(file: OpenFile) -> Path | None:
    path = _in_folder(file)
    if path is not None and _sha256(path) != file.sha256:
        raise CorpusError(
            path,
            f"not the pinned version (expected SHA-256 {file.sha256}); replace it with "
            f"{file.url}, or unset CORPORA_DIR",
        )
    return path


def _sha256(path: Path) -> str:
    with unpacked(path) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _download(file: OpenFile, name: str) -> Path:
    """Return the cached download of a file, after downloading it where there is none."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # its line per file would break the progress bar
    store = pooch.create(
        cache_root() / "corpora",
        base_url="",
        registry={file.path: f"sha256:{file.sha256}"},
        urls={file.path: file.url},
    )
    downloader = pooch.HTTPDownloader(
        progressbar=file.size >= WITH_OWN_BAR, timeout=CONNECT_AND_READ_TIMEOUT
    )
    try:
        return Path(store.fetch(file.path, downloader=downloader))
    except (requests.RequestException, OSError) as error:
        raise InputError(
            f"{name}: {file.url} cannot be downloaded ({type(error).__name__}); try again with a "
            f"network, or set CORPORA_DIR to a folder that holds {file.path}"
        ) from error
    except ValueError as error:  # pooch: the hash does not match
        raise InputError(
            f"{name}: what {file.url} sent is not the pinned version (expected SHA-256 "
            f"{file.sha256}); try again, or set CORPORA_DIR to a folder that holds {file.path}"
        ) from error
