"""The plain records that pass from readers to extraction, and the corpus that yields them."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from helpers.data.text_files import existing_file
from helpers.errors import CorpusError

HASHED_WHOLE = 1 << 30  # larger files are fingerprinted by size and both ends


class Segment(NamedTuple):
    """Two consecutive paragraphs of one article."""

    first: str
    second: str
    title: str


class Sentence(NamedTuple):
    """A dependency-parsed sentence.

    ``heads[i]`` is the head of word ``i``: 1 is the first word, 0 the root.  ``source`` names
    the article or file and sentence; ``split`` is ``train`` or ``dev``.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    split: str
    source: str


class Span(NamedTuple):
    """Words ``start`` to ``end`` (end exclusive) of a mention; ``chain`` None is a singleton."""

    start: int
    end: int
    chain: int | None


class AnnotatedText(NamedTuple):
    """A coreference document as its file has it, before the heads of mentions are settled.

    ``name`` is the document without its part, so that parts stay in one half of a split;
    ``heads[i]`` is the index of word ``i``'s head in the document (-1: a sentence root).
    ``tags``, ``heads`` and ``sentence_starts`` are None where the format does not have them.
    """

    name: str
    source: str
    words: tuple[str, ...]
    spans: tuple[Span, ...]
    tags: tuple[str | None, ...] | None = None
    heads: tuple[int, ...] | None = None
    sentence_starts: tuple[bool, ...] | None = None


class Mention(NamedTuple):
    """Words ``start`` to ``end`` (end exclusive), their chain (None: singleton), the head word."""

    start: int
    end: int
    chain: int | None
    head: int


class Document(NamedTuple):
    """A coreference document; ``tags`` are universal part-of-speech tags, one a word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    mentions: tuple[Mention, ...]
    split: str
    source: str


Record = dict[str, Any]  # an example of a store: one line of examples.jsonl
Item = TypeVar("Item", Segment, Sentence, Document)


@dataclass(frozen=True)
class Corpus(Generic[Item]):
    """What is read when asked for, and the facts that decide what it is.

    ``spec`` holds everything that determines the content (format version, file fingerprints,
    seed, sizes), so that a store can be found without reading the corpus.  ``read`` takes a
    counter, in which the reader counts what it dropped or changed, by reason.  ``check`` raises
    what reading would, as far as seconds can tell: annotations are read whole, and of a text the
    first megabytes.
    """

    name: str
    spec: Mapping[str, Any]
    read: Callable[[Counter[str]], Iterator[Item]] = field(repr=False)
    check: Callable[[], None] = field(repr=False, default=lambda: None)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the specification, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()

    def records(self) -> list[Item]:
        """Read everything into memory."""
        return list(self.read(Counter()))


def file_fingerprint(path: Path) -> str:
    """Return what identifies a file's content: its SHA-256.

    A file over 1 GiB is identified by a sample: its size and the SHA-256 of its first and last
    64 MiB.  Raises CorpusError for anything but a regular file, such as a pipe.
    """
    path, digest, end = existing_file(path), hashlib.sha256(), 64 << 20
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= HASHED_WHOLE:
                return hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(file.read(end))
            file.seek(size - end)
            digest.update(file.read(end))
    except OSError as error:
        raise CorpusError(path, f"cannot be read ({error.strerror}); check the path") from error
    return f"{size}-{digest.hexdigest()}"


def cluster_of(record: Mapping[str, Any], index: int) -> str:
    """Return the article that the record of a segment or a sentence is from, where it is known.

    A segment has a ``title``; the ``source`` of a sentence is "Anarchism, paragraph 12, sentence
    1", or "file:sent_id", where the sentences of one document differ in the last number alone.
    A record that says nothing of the kind stands for itself: ``index`` tells it from others.
    """
    if record.get("title"):
        return record["title"]
    source = record.get("source", "")
    article = re.sub(r", paragraph \d+, sentence \d+$|(?<=\w)-\d+$", "", source)
    return article if article != source else f"{source} {index}"


def reservoir(items: Iterable[Any], count: int, generator: random.Random) -> tuple[list, int]:
    """Choose ``count`` items uniformly in one pass (reservoir sampling); return also how many."""
    chosen: list[Any] = []
    total = 0
    for total, item in enumerate(items, 1):
        if total <= count:
            chosen.append(item)
        elif (slot := generator.randrange(total)) < count:
            chosen[slot] = item
    return chosen, total
