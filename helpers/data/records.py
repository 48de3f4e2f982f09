"""The plain records that pass from readers to extraction, and the corpus that yields them.

What every coreference reader gives: words and mention spans, before heads are settled.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from helpers.errors import CorpusError

HASHED_WHOLE = 1 << 30  # larger files are fingerprinted by size and both ends


@dataclass(frozen=True, slots=True)
class Segment:
    """Two consecutive paragraphs of one article."""

    first: str
    second: str
    title: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A dependency-parsed sentence.

    ``heads[i]`` is the head of word ``i``: 1 is the first word, 0 the root.  ``source`` names
    the article or file and sentence; ``split`` is ``train`` or ``dev``.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    split: str
    source: str


class Mention(NamedTuple):
    """Words ``start`` to ``end`` (end exclusive), their chain (None: singleton), the head word."""

    start: int
    end: int
    chain: int | None
    head: int


@dataclass(frozen=True, slots=True)
class Document:
    """A coreference document; ``tags`` are universal part-of-speech tags, one a word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    mentions: tuple[Mention, ...]
    split: str
    source: str


Record = TypeVar("Record", Segment, Sentence, Document)


@dataclass(frozen=True)
class Corpus(Generic[Record]):
    """Records that are read when asked for, and the facts that decide what they are.

    ``spec`` holds everything that determines the content (format version, file fingerprints,
    seed, sizes), so that a store can be found without reading the corpus.  ``read`` takes a
    counter, in which the reader counts what it dropped or changed, by reason.
    """

    name: str
    spec: Mapping[str, Any]
    read: Callable[[Counter[str]], Iterator[Record]] = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the specification, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()

    def records(self) -> list[Record]:
        """Read everything into memory."""
        return list(self.read(Counter()))


def file_fingerprint(path: Path) -> str:
    """Return what identifies a file's content: its SHA-256.

    A file over 1 GiB is identified by its size and the SHA-256 of its first and last 64 MiB.
    """
    digest, end = hashlib.sha256(), 64 << 20
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


class Span(NamedTuple):
    """Words ``start`` to ``end`` (end exclusive) of a mention; ``chain`` None is a singleton."""

    start: int
    end: int
    chain: int | None


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A document as its file has it.

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


def head_candidates(start: int, end: int, heads: Sequence[int]) -> list[int]:
    """Return the words of a span whose head lies outside it (or that are a root)."""
    return [word for word in range(start, end) if not start <= heads[word] < end]


def head_word(start: int, end: int, heads: Sequence[int], tags: Sequence[str] | None = None) -> int:
    """Return the head word of a span: the word whose head lies outside it.

    Of several, the one nearest its sentence root, then the first.  With ``tags``, nouns and names
    go before pronouns and numerals, and those before other words: a parser that breaks a span
    apart then does not make "behind" the head of "a tree behind the church".  ``heads`` are
    indices into the document, -1 for a root.
    """
    # In a damaged tree every word may depend on another inside the span.
    candidates = head_candidates(start, end, heads) or range(start, end)
    return min(
        candidates,
        key=lambda word: (_HEAD_RANKS.get(tags[word], 2) if tags else 0, _depth(word, heads)),
    )


_HEAD_RANKS = {"NOUN": 0, "PROPN": 0, "PRON": 1, "NUM": 1}


def _depth(word: int, heads: Sequence[int]) -> int:
    depth = 0
    while heads[word] >= 0 and depth <= len(heads):  # the bound ends a cycle
        word, depth = heads[word], depth + 1
    return depth


Record = dict[str, Any]  # one line of examples.jsonl
