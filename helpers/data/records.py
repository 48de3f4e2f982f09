"""The plain records that pass from readers to extraction, and what is read off a stored one."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool

PUNCTUATION = (".", ",")
# How the source of a sentence tells its document.
_IN_DOCUMENT = re.compile(
    r"(?P<article>.+), paragraph \d+, sentence \d+|(?P<document>.+, document .+), sentence .+"
)
WORD_MARKS = "Ġ▁"  # how byte-level and SentencePiece vocabularies write a leading space


class Segment(NamedTuple):
    """Two consecutive paragraphs of one article."""

    first: str
    second: str
    title: str


class Sentence(NamedTuple):
    """A dependency-parsed sentence.

    ``heads[i]`` is the head of word ``i``: 1 is the first word, 0 the root.  ``split`` is
    ``train`` or ``dev``.  ``source`` is "ARTICLE, paragraph N, sentence N", or
    "FILE, document NAME, sentence ID", or "FILE, sentence ID" where the documents of a file are
    not known; `document_of` reads it.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    split: str
    source: str


Span = tuple[int, int, int | None]  # of a mention: first word, the one after the last, chain


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

    def cut(self, words: int) -> tuple[Document, int]:
        """Return the first words and the number of mentions dropped for crossing the cut.

        Mentions wholly inside stay; those wholly outside go with their words and are not
        counted.  A chain with one mention left becomes a singleton (chain None).
        """
        inside = [mention for mention in self.mentions if mention.end <= words]
        crossing = sum(mention.start < words < mention.end for mention in self.mentions)
        sizes = Counter(mention.chain for mention in inside)
        mentions = tuple(
            mention if sizes[mention.chain] > 1 else mention._replace(chain=None)
            for mention in inside
        )
        shorter = Document(self.words[:words], self.tags[:words], mentions, self.split, self.source)
        return shorter, crossing


Record = dict[str, Any]  # an example of a store: one line of examples.jsonl
Item = TypeVar("Item", Segment, Sentence, Document)


@dataclass(frozen=True)
class Corpus(Generic[Item]):
    """What is read when asked for, and the facts that decide what it is.

    ``spec`` holds everything that determines the content, so that a store can be found without
    reading the corpus.  ``read`` takes a counter, in which the reader counts what it dropped or
    changed, by reason.  ``reader``: the function whose code decides what it is, if not ``read``.
    ``check`` raises CorpusError for faults in the files; None if ``read`` is quick enough for that.
    """

    name: str
    spec: Mapping[str, Any]
    read: Callable[[Counter[str]], Iterator[Item]] = field(repr=False)
    reader: Callable[..., Any] | None = field(repr=False, default=None)
    check: Callable[[], None] | None = field(repr=False, default=None)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the specification, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()

    def records(self) -> list[Item]:
        """Read everything into memory."""
        return list(self.read(Counter()))

    def validate(self) -> None:
        """Read the files in seconds, without a parser or a model; CorpusError for a fault."""
        if self.check is None:
            self.records()
        else:
            self.check()


def document_of(record: Mapping[str, Any]) -> str | None:
    """Name the article or document that a segment or a sentence is from; None if it is unknown.

    A segment has a ``title``, a sentence a ``source`` (see `Sentence`).
    """
    if record.get("title"):
        return record["title"]
    in_document = _IN_DOCUMENT.fullmatch(record.get("source", ""))
    if in_document is None:
        return None
    return in_document["article"] or in_document["document"]


def cluster_of(record: Mapping[str, Any], index: int) -> str:
    """Name the cluster of a record: its document, or itself if its document is unknown.

    ``index`` tells records without a document apart.
    """
    return document_of(record) or f"{record.get('source', '')} {index}"


def describe_documents(records: Iterable[Mapping[str, Any]]) -> str:
    """Say how many documents sentences are from, which is what intervals are drawn over."""
    documents = set()
    unknown = 0
    for record in records:
        document = document_of(record)
        if document is None:
            unknown += 1
        else:
            documents.add(document)
    if not unknown:
        return f"{len(documents):,}"
    if not documents:
        return "not marked, so that each sentence counts as one"
    return f"{len(documents):,}, and {unknown:,} sentences without one, each of which counts as one"


@dataclass(frozen=True)
class Roles:
    """Masks over an example's positions; every position is in exactly one of them.

    ``cls`` or ``sep`` is None where the model has no such token, which is not the same as a
    model that has one and gives it no attention.
    """

    cls: Bool[np.ndarray, " position"] | None
    sep: Bool[np.ndarray, " position"] | None
    punctuation: Bool[np.ndarray, " position"]
    other: Bool[np.ndarray, " position"]

    def masks(self) -> dict[str, Bool[np.ndarray, " position"]]:
        """Return the masks that the model has, by name."""
        return {name: mask for name, mask in vars(self).items() if mask is not None}

    def kinds(self) -> list[str]:
        """Return the name of the mask that each position is in."""
        names, masks = zip(*self.masks().items(), strict=True)
        return [names[index] for index in np.argmax(masks, axis=0)]


def roles(tokens: Sequence[str], special_tokens: Mapping[str, str | None]) -> Roles:
    """Return the role of each token; ``special_tokens`` says what [CLS] and [SEP] are here."""
    cls, sep = (
        None if token is None else np.array([other == token for other in tokens])
        for token in map(special_tokens.get, ("cls", "sep"))
    )
    punctuation = np.array([token.lstrip(WORD_MARKS) in PUNCTUATION for token in tokens])
    taken = [mask for mask in (cls, sep, punctuation) if mask is not None]
    return Roles(cls, sep, punctuation, ~np.any(taken, axis=0))


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
