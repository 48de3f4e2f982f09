"""Reading XML of any origin as a stream, without trusting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from helpers.data.text_files import limit, open_bounded
from helpers.errors import CorpusError

CHUNK = 1 << 18  # bytes that are parsed at a time
MAX_DEPTH = 32  # dumps and annotations nest 5 elements

Attributes = Mapping[str, str]


class XmlReader:
    """Reads a file of one kind: a subclass takes its events and puts what is whole in ``done``.

    Refused, with the line: XML that is malformed, has another root, declares a document type (and
    with it every entity), nests deep, or goes on for ``ATTENTION_MAX_PAGE`` bytes without
    anything whole, be it in one attribute.
    """

    root = ""  # name of the outermost element
    item = ""  # what is put in ``done``
    expected = ""  # a file of what kind

    def __init__(self, path: str | Path) -> None:
        self.path, self.depth = path, 0
        self.done: list[Any] = []
        # The files are UTF-8; naming it keeps a declaration from choosing another codec.
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._open
        self._parser.EndElementHandler = self._close
        self._parser.CharacterDataHandler = self.characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    def read(self) -> Iterator[Any]:
        """Yield what is in ``done``, as it comes."""
        most, pending, data = limit("ATTENTION_MAX_PAGE"), 0, b" "
        with open_bounded(self.path) as file:
            while data:
                data = file.read(CHUNK)
                pending += len(data)
                try:
                    self._parser.Parse(data, not data)
                except expat.ExpatError as error:
                    reason = expat.ErrorString(error.code)
                    self.fail(f"malformed XML ({reason}); is the file whole?")
                pending = 0 if self.done else pending
                yield from self.done
                self.done.clear()
                if pending > most:
                    message = f"{self.item} longer than {most:,} bytes"
                    self.fail(f"{message}; set ATTENTION_MAX_PAGE higher")

    def fail(self, message: str) -> NoReturn:
        """Raise CorpusError with the line that is being read."""
        raise CorpusError(self.path, message, self._parser.CurrentLineNumber)

    def start(self, tag: str, attributes: Attributes) -> None:
        """Take the start of an element."""

    def end(self, tag: str) -> None:
        """Take the end of an element."""

    def characters(self, data: str) -> None:
        """Take a piece of text."""

    def _open(self, tag: str, attributes: Attributes) -> None:
        if not self.depth and tag != self.root:
            self.fail(f"the XML is <{tag[:40]}>, expected <{self.root}>; {self.expected}")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"elements nested more than {MAX_DEPTH} deep; {self.expected}")
        self.start(tag, attributes)

    def _close(self, tag: str) -> None:
        self.depth -= 1
        self.end(tag)

    def _doctype(self, *_: object) -> None:
        self.fail(f"declares a document type, which is not read; {self.expected}")
