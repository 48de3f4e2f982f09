"""Files of any origin: text in UTF-8, plain or packed with gzip or bzip2, and open corpora by name.

Every failure is a `CorpusError` that names the file and, where there is one, the line.  A file in a
format that is not read is known by its beginning, and refused by the name of its format: otherwise
it would be read as prose, or refused at some line for a reason that says nothing of the format.

``corpora.json`` describes each open corpus and its terms, ``corpora_files.csv`` has the address and
the SHA-256 of each file, which is downloaded once or read from a folder.  ``embedded.csv`` has the
terms of the bundled parts, which need no download.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import re
import tomllib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path

import pandas as pd

from helpers.cache import cached
from helpers.data import CODE
from helpers.errors import CorpusError, InputError
from helpers.files import cache_root, resolve_user_path, sha256
from helpers.progress import progress

HERE = Path(__file__).parent
ENGLISH = "English"
# What is bundled for English only, by the setting that takes another one.
BUNDLED_IN_ENGLISH = {"vectors": "word vectors", "coref": "coreference documents"}
# The most frequent words of English prose that are rare, or not words at all, in most other
# languages ("in", "was" and "so" are German words, "on" and "he" are found in many).
ENGLISH_WORDS = (
    "the of and to that it for with as his at by from which but this be are had were have they not "
    "or her an their been has would there when what can more who will other about"
)
EXPECTED = {  # by what a file is read for
    "text": "WikiExtractor's files, or plain text with a blank line between paragraphs",
    "treebank": "CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'",
    "coreference": "CoNLL-2012 (*_conll), CorefUD or GUM (.conllu with Entity=), brackets (.txt)",
}
LARGE_FILE_BYTES = 1 << 24  # the digests of larger files are remembered
# How files are opened whose content begins with these bytes.
_PACKED = {b"BZh": bz2.open, b"\x1f\x8b\x08": gzip.open}
# How archives begin that are not read: zip, 7-Zip, xz, Zstandard.
_ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain_name(path: Path) -> str:
    """Return the name of a file without the suffix of packing."""
    return path.name.removesuffix(".gz").removesuffix(".bz2")


def existing_file(path: str | Path) -> Path:
    """Find a file or folder that the user names.

    Parameters
    ----------
    path : str or Path
        The file; `resolve_user_path` says where a relative path counts from.

    Returns
    -------
    Path

    Raises
    ------
    CorpusError
        If the path is not that of a regular file or folder.
    """
    resolved = resolve_user_path(path)
    if resolved.is_file() or resolved.is_dir():
        return resolved
    raise CorpusError(path, "does not exist or is not a regular file; check the path")


def files_below(folder: Path, pattern: str) -> list[Path]:
    """List the files in a folder and below it whose names match, as they are when unpacked."""
    names = re.compile(rf"(?!\.){pattern}")
    files = filter(Path.is_file, folder.rglob("*"))
    return sorted(path for path in files if names.fullmatch(plain_name(path)))


def text_paths(path: Path) -> list[Path]:
    """List a file, or the text files in a folder and below it; CorpusError for none."""
    if not path.is_dir():
        return [path]
    files = files_below(path, r".*\.(txt|md)|wiki_[0-9][0-9].*")  # the last of WikiExtractor
    if not files:
        problem = "has no .txt or .md file and none of WikiExtractor (wiki_00)"
        raise CorpusError(path, f"{problem}; name another folder or a file")
    return files


def file_fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's content, or of a folder's text files with their names.

    Every notebook of a run asks for those of its model and its corpora, and hashing tens of
    gigabytes takes minutes.  The digest of a large file is therefore remembered until its path,
    size or times change.
    """
    if path.is_dir():
        digest = hashlib.sha256()
        for file in text_paths(path):
            digest.update(f"{file.relative_to(path)} {file_fingerprint(file)}\n".encode())
        return digest.hexdigest()
    try:
        status = path.stat()
        if status.st_size <= LARGE_FILE_BYTES:
            return sha256(path)
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror}); check the path") from error
    # A program can set the time of modification back, but not that of the change of status.
    state = [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return cached("fingerprint", partial(sha256, path), inputs={"file": state}, code=CODE)


@contextmanager
def unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading; it is unpacked if its content is that of gzip or bzip2."""
    try:
        with path.open("rb") as file:
            beginning = file.read(6)
        if beginning.startswith(_ARCHIVES):
            problem = "is an archive, which is not read; unpack it (only gzip and bzip2 are read)"
            raise CorpusError(path, problem)
        open_file = _PACKED.get(beginning[:3], open)
        with open_file(path, "rb") as stream:
            yield io.BufferedReader(stream)
    except (EOFError, OSError, zlib.error) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise CorpusError(path, f"{problem}; check the path, or use a complete copy") from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text without its end) for each line of a UTF-8 file (BOM, CRLF too)."""
    with unpacked(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8" if number > 1 else "utf-8-sig")
            except UnicodeDecodeError as error:
                raise CorpusError(path, "not UTF-8 text; save it as plain text", number) from error
            yield number, text.rstrip("\r\n")


def one_line(text: str) -> str:
    """Normalise a text to single spaces, without control and invisible characters."""
    return " ".join(_CONTROL.sub(" ", _INVISIBLE.sub("", text)).split())


def visible(text: str) -> bool:
    """Tell whether a text has a character that a tokenizer keeps.

    Tokenizers drop white space, control, zero-width and lone combining characters, and U+FFFD.
    """
    characters = text.replace("\ufffd", "")
    return any(unicodedata.category(character)[0] not in "ZCM" for character in characters)


def clean_word(cell: str, counts: Counter[str]) -> str:
    """Clean the word in a column: the cell as it is, or ``_`` if all of it is invisible.

    Spaces inside a word, such as a no-break space, stay.  ``counts`` receives the number of words
    that were replaced.
    """
    if visible(cell):
        return cell
    counts["words that are empty or invisible, read as _"] += 1
    return "_"


def quoted(text: str) -> str:
    """Quote a text for a message: cut to 40 characters, with unprintable ones escaped."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def refuse_other_formats(path: Path, purpose: str) -> None:
    """Raise CorpusError if a file begins as one in a format that is not read for a purpose."""
    texts = (line.rstrip() for _, line in lines(path) if line.strip())
    rows = list(islice(texts, 100))
    beginning = "".join(f"{row.strip()}\n" for row in rows)
    expected = f"expected {EXPECTED[purpose]}"
    for format in tomllib.loads((HERE / "foreign_formats.toml").read_text())["format"]:
        pattern = rf"(?:#.*\n)*?(?:{format['beginning']})"
        if purpose in format["purposes"] and re.match(pattern, beginning):
            raise CorpusError(path, f"looks like {format['looks_like']}; {expected}", 1)
    if purpose == "text" and is_table(rows):
        problem = "looks like a table; write its column of texts to a file"
        raise CorpusError(path, f"{problem}; {expected}", 1)


def is_table(rows: Sequence[str]) -> bool:
    """Tell whether lines are rows of a table: four of five have as many cells as the first one.

    In prose a space follows a comma.  A few lines of prose may have one comma each nevertheless, so
    that up to four rows need tabs or quoted cells.
    """
    text = "\n".join(row for row in rows if row[0] != "#")
    table = re.sub(r'"[^"]*"', '""', text).split("\n")  # a separator in quotes separates no cells
    for separator in "\t,;|":
        n_separators = table[0].count(separator)
        regular = [row for row in table if row.count(separator) == n_separators > 0]
        n_rows = sum(row[0] != separator and f"{separator} " not in row for row in regular)
        is_marked = separator == "\t" or '"' in text or len(table) > 4
        if is_marked and n_rows >= max(2, 0.8 * len(table)):
            return True
    return False


def is_english(texts: Iterable[str]) -> bool:
    """Tell whether a text can be English, by its first 2,000 words.

    Most of their letters have to be of the Latin alphabet without accents, and a tenth of the words
    have to be frequent words of English (English prose has 0.25 to 0.45), unless there are fewer
    than 20 words, which do not tell.

    Parameters
    ----------
    texts : iterable of str
        The paragraphs of the text.  No more of them are read than necessary.

    Returns
    -------
    bool
    """
    all_words = chain.from_iterable(re.findall(r"\w+", text) for text in texts)
    words = list(islice(all_words, 2000))
    letters = "".join(words)
    if sum(map(str.isascii, letters)) < len(letters) / 2:
        return False
    frequent_words = set(ENGLISH_WORDS.split())
    n_frequent = sum(word.lower() in frequent_words for word in words)
    return len(words) < 20 or n_frequent >= 0.1 * len(words)


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
    annotations = registry()["kind"]
    names = annotations.index[annotations == annotation]
    if source in names:
        return fetch(source)
    path = resolve_user_path(source)
    if not path.exists():
        problem = f"{source} is neither a path nor a named corpus with {annotation} annotation"
        raise InputError(f"{problem}; give a path, or one of {', '.join(names)}")
    return path


def corpus_name(path: Path, source: str | Path = "") -> str:
    """Name a corpus: as the table of corpora does, or by its file, up to the first dot."""
    return str(source) if source in registry().index else path.name.partition(".")[0]


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
