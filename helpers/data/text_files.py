"""Reading files of any origin: text in UTF-8, and XML, plain or packed with gzip or bzip2.

Every failure is a `CorpusError` that names the file and, where there is one, the line.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import re
import time
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError

from helpers.cache import cached
from helpers.errors import CorpusError, StoreError
from helpers.files import resolve_user_path, sha256
from helpers.progress import progress

LARGE_FILE_BYTES = 1 << 30  # larger files are hashed with a bar, and their digest is remembered
HASH_BLOCK_BYTES = 1 << 20
# A file that changed so recently may change again within one tick of the file system's clock.
SETTLED_NANOSECONDS = 2_000_000_000
_PACKED = {b"BZh": bz2.open, b"\x1f\x8b\x08": gzip.open}  # by the first bytes
_NO_TEXT = {
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a Word, OpenDocument or e-book file, or another zip archive",
    b"\xd0\xcf\x11\xe0": "a Word file of the old kind (.doc)",
    b"{\\rtf": "a file in Rich Text Format",
}
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def existing_file(path: str | Path, *, folder: bool = False) -> Path:
    """Find a file that the user names, or with ``folder`` a file or a folder.

    Parameters
    ----------
    path : str or Path
        The file; `resolve_user_path` says where a relative path counts from.
    folder : bool
        Whether a folder will do, too.

    Returns
    -------
    Path

    Raises
    ------
    CorpusError
        If the path is not that of a regular file, or of such a folder.
    """
    try:
        resolved = resolve_user_path(path)
        if resolved.is_file() or (folder and resolved.is_dir()):
            return resolved
        problem = "is not a regular file" if resolved.exists() else "does not exist"
    except (OSError, RuntimeError) as error:  # a name that is too long, an unknown ~user
        problem = f"cannot be reached ({error})"
    raise CorpusError(path, f"{problem}; check the path")


def text_paths(path: Path) -> list[Path]:
    """List a file, or the .txt and .md files in a folder and below it; CorpusError for none."""
    if not path.is_dir():
        return [path]
    candidates = [*path.rglob("*.txt"), *path.rglob("*.md")]
    files = [file for file in candidates if file.is_file() and file.name[0] != "."]
    if not files:
        raise CorpusError(path, "holds no file .txt or .md; name another folder or a file")
    return sorted(files)


def file_fingerprint(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, or of a folder's text files with their names."""
    path = existing_file(path, folder=True)
    if path.is_dir():
        digest = hashlib.sha256()
        for file in text_paths(path):
            digest.update(f"{file.relative_to(path)} {file_fingerprint(file)}\n".encode())
        return digest.hexdigest()
    try:
        if path.stat().st_size > LARGE_FILE_BYTES:
            return _large_file_digest(path)
        return sha256(path)
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror})") from error


def _large_file_digest(path: Path) -> str:
    """Return the SHA-256 of a large file, from the cache if the file is unchanged.

    Hashing tens of gigabytes takes minutes, and every notebook of a run asks for the digest.  A
    program can set the time of modification back, but not the time of the last change of status.
    """
    status = path.stat()
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - changed_ns < SETTLED_NANOSECONDS:
        return _hash_with_bar(path)
    hash_once = cache(partial(_hash_with_bar, path))
    state = {
        "file": str(path.resolve()),
        "device": status.st_dev,
        "inode": status.st_ino,
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
    }
    try:
        return cached("fingerprint", hash_once, inputs=state, module="helpers.data.text_files")
    except StoreError:  # a cache that cannot be written to: hash again next time
        return hash_once()


def _hash_with_bar(path: Path) -> str:
    """Return the SHA-256 of a file, and show a progress bar."""
    digest = hashlib.sha256()
    n_blocks = -(-path.stat().st_size // HASH_BLOCK_BYTES)
    with path.open("rb") as file:
        blocks = iter(lambda: file.read(HASH_BLOCK_BYTES), b"")
        for block in progress(blocks, f"hashing {path.name}", unit="MiB", total=n_blocks):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def unpacked(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading; it is unpacked if its content is that of gzip or bzip2."""
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(5)
        for magic, description in _NO_TEXT.items():
            if start.startswith(magic):
                problem = f"is {description}; save it as plain text (.txt, UTF-8) first"
                raise CorpusError(path, problem)
        open_file = _PACKED.get(start[:3], open)
        with open_file(path, "rb") as stream:
            yield io.BufferedReader(stream)
    except (EOFError, OSError, zlib.error) as error:
        raise CorpusError(path, f"cannot be read ({error}); is the file whole?") from error


def lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text without its end) for each line of a UTF-8 file (BOM, CRLF too)."""
    with unpacked(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8" if number > 1 else "utf-8-sig")
            except UnicodeDecodeError as error:
                raise CorpusError(path, "not UTF-8 text; convert it to UTF-8", number) from error
            yield number, text.rstrip("\r\n")


def xml_elements(path: str | Path, root: str, items: Collection[str]) -> Iterator[Element]:
    """Yield the elements called one of ``items``, each whole; it is emptied afterwards.

    Tags have no namespaces.

    Raises
    ------
    CorpusError
        With the line, if there is one, for XML that is malformed, declares a document type (and
        with it entities), or has another root.
    """
    top = None
    with unpacked(path) as file:
        for event, element in _events(path, file):
            tag = element.tag.rpartition("}")[2]
            if top is None:
                top = element
                if tag != root:
                    raise CorpusError(path, f"the XML is <{tag[:40]}>; expected <{root}>")
            if event == "end":
                element.tag = tag
                if tag in items:
                    yield element
                    top.clear()


def _events(path: str | Path, file: BinaryIO) -> Iterator[tuple[str, Element]]:
    """Yield the starts and ends of elements as they are parsed; CorpusError for a fault."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    try:
        yield from iterparse(file, ("start", "end"), forbid_dtd=True)
    except DefusedXmlException as error:
        problem = "declares a document type, which is not read; remove the declaration"
        raise CorpusError(path, problem) from error
    except (ParseError, LookupError, ValueError) as error:  # the latter two: the encoding
        line = error.position[0] if isinstance(error, ParseError) else None
        problem = f"malformed XML ({str(error)[:80]}); is the file whole?"
        raise CorpusError(path, problem, line) from error


def one_line(text: str) -> str:
    """Normalise a text to single spaces, without control and invisible characters."""
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL.sub(" ", _INVISIBLE.sub("", text))
    return " ".join(text.split())


def visible(text: str) -> bool:
    """Tell whether a text has a character that a tokenizer keeps.

    Tokenizers drop white space, control, zero-width and lone combining characters, and U+FFFD.
    """
    if text.isalnum():
        return True
    return any(
        unicodedata.category(character)[0] not in "ZCM" and character != "\ufffd"
        for character in text
    )


def word(cell: str, counts: Counter[str]) -> str:
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
