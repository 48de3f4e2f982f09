"""Reading text files of any origin without trusting them: compression, encoding, limits.

Every failure is a :class:`~helpers.errors.CorpusError` that names the file and, where there is
one, the line.  Three limits keep a hostile or broken file from filling the memory; each is an
environment variable (a whole number), so that whoever needs more can raise it:

- ``ATTENTION_MAX_LINE``: bytes of one line of text (default 1,000,000);
- ``ATTENTION_MAX_PAGE``: bytes of one page or document (default 16,000,000);
- ``ATTENTION_MAX_EXPANSION``: bytes that one compressed byte may become (default 50), once
  1 MiB has been unpacked.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from helpers.errors import CorpusError, InputError

DEFAULT_LIMITS = {
    "ATTENTION_MAX_LINE": 1_000_000,
    "ATTENTION_MAX_PAGE": 16_000_000,
    "ATTENTION_MAX_EXPANSION": 50,
}
FREE_EXPANSION = 1 << 20  # unpacked bytes that no ratio applies to
BLOCK = 1 << 16  # bytes that are decoded at a time
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
OTHER_ARCHIVES = {b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd", b"7z\xbc": "7z"}


def limit(name: str) -> int:
    """Return the limit ``name``: the environment variable, or its default."""
    value = os.environ.get(name) or str(DEFAULT_LIMITS[name])
    if not re.fullmatch("0*[1-9][0-9]{0,17}", value):
        raise InputError(f"{name}={value}: expected a whole number above 0")
    return int(value)


def existing_file(path: str | Path) -> Path:
    """Return ``path`` with ``~`` expanded; CorpusError unless it is a regular file."""
    try:
        found = Path(path).expanduser()
        found.name.encode()  # records and results name the file, in UTF-8
        if found.is_file():
            return found
        problem = "is not a regular file" if found.exists() else "does not exist"
    except (OSError, RuntimeError, UnicodeError) as error:  # too long, no leave, unknown ~user
        problem = f"cannot be reached ({error})"
    raise CorpusError(path, f"{problem}; check the path")


def open_bounded(path: str | Path) -> BinaryIO:
    """Open a plain, gzip or bzip2 file (told apart by content) for reading, within the limits.

    Reading raises CorpusError where the file is truncated, damaged or unpacks to too much.
    """
    path = existing_file(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror})") from error
    start = file.read(6)
    file.seek(0)
    for magic, kind in OTHER_ARCHIVES.items():
        if start.startswith(magic):
            file.close()
            raise CorpusError(path, f"is a {kind} archive; unpack it, or use .gz or .bz2")
    if start.startswith(b"BZh"):
        stream = bz2.BZ2File(file)
    elif start.startswith(b"\x1f\x8b"):
        stream = gzip.GzipFile(fileobj=file)
    elif path.suffix in (".bz2", ".gz"):
        file.close()
        raise CorpusError(path, f"is not a {path.suffix} archive, although its name says so")
    else:
        stream = file
    return io.BufferedReader(_Bounded(path, file, stream), 1 << 16)


def lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text without its end) for each line of a UTF-8 file.

    Of a run of blank lines, only the first comes.  A byte order mark and CRLF are accepted.
    CorpusError with the line for anything that is not UTF-8, for a NUL, and for a line over
    ``ATTENTION_MAX_LINE``.
    """
    most, number, blank = limit("ATTENTION_MAX_LINE"), 0, False
    with open_bounded(path) as file:
        for block in _blocks(file, most):
            block = block if number else block.removeprefix(b"\xef\xbb\xbf")
            first = number + 1
            try:
                if len(block) > most or b"\0" in block:
                    raise ValueError
                found = block.decode("utf-8").split("\n")
            except ValueError:  # as UnicodeDecodeError is one: a line of it is at fault
                packed = enumerate(block.split(b"\n"), first)
                found = (_decoded(path, at, line, most) for at, line in packed)
            for number, text in enumerate(found, first):
                shown = text and not text.isspace()
                if shown or not blank:
                    yield number, text.removesuffix("\r")
                blank = not shown


def _blocks(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; a line of more than ``most`` bytes ends it."""
    rest = b""
    while len(rest) <= most + 1 and (data := file.read(BLOCK)):
        block, end, rest = (rest + data).rpartition(b"\n")
        if end:
            yield block
    if rest:
        yield rest


def _decoded(path: str | Path, number: int, line: bytes, most: int) -> str:
    line = line.removesuffix(b"\r")
    if len(line) > most:
        message = f"line longer than {most:,} bytes; set ATTENTION_MAX_LINE higher"
        raise CorpusError(path, message, number)
    if b"\0" in line:
        raise CorpusError(path, "NUL character; expected UTF-8 text", number)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 (byte {error.start + 1} of the line); convert it to UTF-8"
        raise CorpusError(path, message, number) from error


def one_line(text: str) -> str:
    """Return the text with single spaces, and without control and invisible characters."""
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL.sub(" ", _INVISIBLE.sub("", text))
    return " ".join(text.split())


def visible(text: str) -> bool:
    """Return whether a tokenizer keeps anything of a text.

    It keeps no white space, control, zero-width or lone combining character, and not the mark of
    a lost one (U+FFFD).
    """
    if text.isascii() and text.isprintable():
        return text != "" and not text.isspace()
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


class _Bounded(io.RawIOBase):
    """A stream that turns the errors of decompression, and too much of it, into CorpusError."""

    def __init__(self, path: Path, file: BinaryIO, stream: BinaryIO) -> None:
        self._path, self._file, self._stream = path, file, stream
        self._unpacked, self._most = 0, limit("ATTENTION_MAX_EXPANSION")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        try:
            data = self._stream.read(len(buffer))
            self._unpacked += len(data)
            packed = max(self._file.tell(), 1)
        except (EOFError, OSError, zlib.error) as error:
            message = f"truncated or damaged after {self._unpacked:,} unpacked bytes ({error})"
            raise CorpusError(self._path, message) from error
        if self._unpacked > max(FREE_EXPANSION, self._most * packed):
            raise CorpusError(
                self._path,
                f"unpacks to more than {self._most} times its size; if that is intended, "
                "set ATTENTION_MAX_EXPANSION higher",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._file.close()
        super().close()
