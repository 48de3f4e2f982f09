"""Reading files of any origin: text in UTF-8, and XML, plain or packed with gzip or bzip2.

Every failure is a `CorpusError` that names the file and, where there is one, the line.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError

from helpers.errors import CorpusError
from helpers.paths import given_path

HASHED_WHOLE = 1 << 30  # larger files are fingerprinted by size and both ends
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
    """Return where a file is (see `given_path`), or with ``folder`` a file or folder.

    CorpusError unless it is a regular file, or such a folder.
    """
    try:
        found = given_path(path)
        if found.is_file() or (folder and found.is_dir()):
            return found
        problem = "is not a regular file" if found.exists() else "does not exist"
    except (OSError, RuntimeError) as error:  # a name that is too long, an unknown ~user
        problem = f"cannot be reached ({error})"
    raise CorpusError(path, f"{problem}; check the path")


def text_paths(path: Path) -> list[Path]:
    """Return a file, or the .txt and .md files in a folder and below it; CorpusError for none."""
    if not path.is_dir():
        return [path]
    found = sorted(file for kind in ("*.txt", "*.md") for file in path.rglob(kind))
    if files := [file for file in found if file.is_file() and file.name[0] != "."]:
        return files
    raise CorpusError(path, "holds no file .txt or .md")


def file_fingerprint(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, or of a folder's text files with their names.

    A file over 1 GiB is identified by its size and the SHA-256 of its first and last 64 MiB.
    """
    path, digest, end = existing_file(path, folder=True), hashlib.sha256(), 64 << 20
    if path.is_dir():
        for file in text_paths(path):
            digest.update(f"{file.relative_to(path)} {file_fingerprint(file)}\n".encode())
        return digest.hexdigest()
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size <= HASHED_WHOLE:
                return hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(file.read(end))
            file.seek(size - end)
            digest.update(file.read(end))
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror})") from error
    return f"{size}-{digest.hexdigest()}"


@contextmanager
def unpacked(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked where its content is that of gzip or bzip2."""
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(5)
        for magic, kind in _NO_TEXT.items():
            if start.startswith(magic):
                raise CorpusError(path, f"is {kind}; save it as plain text (.txt, UTF-8) first")
        with _PACKED.get(start[:3], open)(path, "rb") as stream:
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

    Tags have no namespaces.  Raises CorpusError, with the line where there is one: XML that is
    malformed, declares a document type (and with it entities), or has another root.
    """
    top = None
    with unpacked(path) as file:
        for event, element in _events(path, file):
            tag = element.tag.rpartition("}")[2]
            if top is None:
                top = element
                if tag != root:
                    raise CorpusError(path, f"the XML is <{tag[:40]}>, expected <{root}>")
            if event == "end":
                element.tag = tag
                if tag in items:
                    yield element
                    top.clear()


def _events(path: str | Path, file: BinaryIO) -> Iterator[tuple[str, Element]]:
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    try:
        yield from iterparse(file, ("start", "end"), forbid_dtd=True)
    except DefusedXmlException as error:
        raise CorpusError(path, "declares a document type, which is not read") from error
    except (ParseError, LookupError, ValueError) as error:  # the latter two of the encoding
        line = error.position[0] if isinstance(error, ParseError) else None
        problem = f"malformed XML ({str(error)[:80]}); is the file whole?"
        raise CorpusError(path, problem, line) from error


def one_line(text: str) -> str:
    """Return the text with single spaces, and without control and invisible characters."""
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL.sub(" ", _INVISIBLE.sub("", text))
    return " ".join(text.split())


def visible(text: str) -> bool:
    """Return whether a tokenizer keeps anything of a text.

    It keeps no white space, control, zero-width or lone combining character, and no U+FFFD.
    """
    return text.isalnum() or any(
        unicodedata.category(c)[0] not in "ZCM" and c != "\ufffd" for c in text
    )


def word(cell: str, counts: Counter[str]) -> str:
    """Return the word that stands in a column: the cell as it is, or ``_`` where nothing shows.

    Spaces inside a word, such as a no-break space, stay.  ``counts`` receives what was replaced.
    """
    if visible(cell):
        return cell
    counts["words that are empty or invisible, read as _"] += 1
    return "_"


def quoted(text: str) -> str:
    """Return a text as a message shows it: quoted, cut to 40 characters, nothing unprintable."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
