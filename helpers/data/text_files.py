"""Reading files of any origin: text in UTF-8, plain or packed with gzip or bzip2.

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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from helpers.cache import cached
from helpers.data import CODE
from helpers.errors import CorpusError
from helpers.files import resolve_user_path, sha256

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


def text_paths(path: Path) -> list[Path]:
    """List a file, or the text files in a folder and below it; CorpusError for none."""
    if not path.is_dir():
        return [path]
    patterns = ("*.txt", "*.md", "wiki_[0-9][0-9]*")  # the last of WikiExtractor, may be packed
    candidates = sorted(file for pattern in patterns for file in path.rglob(pattern))
    files = [file for file in candidates if file.is_file() and file.name[0] != "."]
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
