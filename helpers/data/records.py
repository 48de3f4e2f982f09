"""Records that pass from readers to extraction, and the functions that interpret them.

A record holds text and its annotation; it knows no model.  The keys that a query can attend to
(all, earlier ones, or a window) decide every baseline, and a store describes them for each layer.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool

from helpers.files import json_digest

WORD_MARKS = "Ġ▁ "  # how byte-level and SentencePiece vocabularies write a leading space, and it
# Reasons of reports that a dry run shows, too.
REPEATED = "dev sentences whose words are in train, too"
SPACED = "words with a space before them, whether the text has one or not"
SPECIAL_ROLES = ("cls", "sep", "first")
KEY_TYPES = ("sep", "cls", "punctuation", "other", "first")  # of Figure 3, in its order


class Segment(NamedTuple):
    """Two consecutive paragraphs of one article.

    Attributes
    ----------
    first, second : str
        The two paragraphs.
    title : str
        The title of the article.
    """

    first: str
    second: str
    title: str


class Sentence(NamedTuple):
    """A dependency-parsed sentence.

    ``heads[i]`` is the head of word ``i``: 1 is the first word, 0 the root.  ``split`` is
    ``train`` or ``dev``.  ``source`` is "ARTICLE, paragraph N, sentence N", or
    "FILE, document NAME, sentence ID", or "FILE, sentence ID" where the documents of a file are
    not known; `document_of` reads it.  ``tags`` are universal part-of-speech tags, one per word, as
    in `Document`, or empty if the corpus has none.  ``spaces`` tell for each word whether the text
    has a space before it; they are empty if the corpus does not say so.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    split: str
    source: str
    tags: tuple[str | None, ...] = ()
    spaces: tuple[bool, ...] = ()


Pair = tuple[int, int, str]  # dependent, parent and label; words from 0, a root with itself


class PairedText(NamedTuple):
    """A text with labelled pairs of its words, of any relation.

    A word can be in any number of pairs, or in none.  The other fields are those of `Sentence`.
    """

    words: tuple[str, ...]
    pairs: tuple[Pair, ...]
    split: str
    source: str
    tags: tuple[str | None, ...] = ()


Span = tuple[int, int, int | None]  # of a mention: first word, the one after the last, chain


class AnnotatedText(NamedTuple):
    """A coreference document as its file has it, before the heads of mentions are settled.

    ``heads[i]`` is the index of word ``i``'s head in the document (-1: a sentence root).
    ``tags`` are as in `Document`, and ``spaces`` as in `Sentence`.  ``heads`` and
    ``sentence_starts`` are None if the format does not have them.
    """

    source: str
    words: tuple[str, ...]
    spans: tuple[Span, ...]
    tags: tuple[str | None, ...]
    heads: tuple[int, ...] | None = None
    sentence_starts: tuple[bool, ...] | None = None
    spaces: tuple[bool, ...] = ()


class Mention(NamedTuple):
    """A mention: words ``start`` to ``end`` (exclusive), chain (None: singleton), head word."""

    start: int
    end: int
    chain: int | None
    head: int


def name_chains(mentions: Sequence[Mention]) -> tuple[Mention, ...]:
    """Set the chain of a mention that nothing else refers to, a singleton, to None."""
    sizes = Counter(mention.chain for mention in mentions)
    return tuple(m if sizes[m.chain] > 1 else m._replace(chain=None) for m in mentions)


class Document(NamedTuple):
    """A coreference document; ``tags`` are universal part-of-speech tags, one per word.

    The tag of a word is None if no one knows it.  ``spaces`` are as in `Sentence`.
    """

    words: tuple[str, ...]
    tags: tuple[str | None, ...]
    mentions: tuple[Mention, ...]
    split: str
    source: str
    spaces: tuple[bool, ...] = ()

    def cut(self, words: int) -> tuple[Document, int]:
        """Cut the document after some words.

        A chain that keeps one mention only becomes a singleton (chain None).

        Parameters
        ----------
        words : int
            Number of words to keep.

        Returns
        -------
        document : Document
            The first words, with the mentions that end among them.
        dropped : int
            Number of mentions that cross the cut or begin after it.
        """
        inside = name_chains([mention for mention in self.mentions if mention.end <= words])
        parts = {name: getattr(self, name)[:words] for name in ("words", "tags", "spaces")}
        shorter = self._replace(**parts, mentions=inside)
        return shorter, len(self.mentions) - len(inside)


Record = dict[str, Any]  # an example of a store: one line of examples.jsonl
Item = TypeVar("Item", Segment, Sentence, PairedText, Document)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Corpus(Generic[Item]):
    """A lazily read corpus and the specification that determines its content.

    Parameters
    ----------
    name : str
        Readable name; it becomes a part of folder names.
    spec : Mapping
        Everything that determines the content, so that a store can be found without reading the
        corpus.  It must be serialisable as JSON.
    read : callable
        Function that yields the records, in order.  It takes a counter, in which it counts what it
        dropped or changed, by reason.
    """

    name: str
    spec: Mapping[str, Any]
    read: Callable[[Counter[str]], Iterator[Item]] = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the specification, in hexadecimal."""
        return json_digest(self.spec)

    def records(self) -> list[Item]:
        """Read everything into memory."""
        return list(self.read(Counter()))

    def part(self, count: int) -> Corpus[Item]:
        """Take at most ``count`` records at equal distances; the corpus is read twice for it."""

        def read(counts: Counter[str]) -> Iterator[Item]:
            total = sum(1 for _ in self.read(Counter()))
            chosen = set(evenly_spaced(range(total), count))
            yield from (item for i, item in enumerate(self.read(counts)) if i in chosen)

        return Corpus(self.name, {"part": count, "of": self.spec}, read)


def document_of(record: Mapping[str, Any]) -> str | None:
    """Name the article or document that a segment or a sentence is from; None if it is unknown.

    A segment has a ``title``, a sentence a ``source`` (see `Sentence`), and so has a part of a
    coreference document.
    """
    # A sentence of an article or a treebank, or a part of a document (CoNLL-2012).
    sources = r"(.+), paragraph \d+, sentence \d+|(.+, document .+), sentence .+|(.+) part \d+"
    in_document = re.fullmatch(sources, record.get("source", ""))
    name = in_document[in_document.lastindex or 0] if in_document else None
    return record.get("title") or name


def cluster_of(record: Mapping[str, Any], index: int) -> str:
    """Name the cluster of a record: its document, or itself if its document is unknown.

    ``index`` tells records without a document apart.
    """
    return document_of(record) or f"{record.get('source', '')} {index}"


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Masks over the positions of an example; every position is in exactly one of them.

    Attributes
    ----------
    cls, sep, first : bool array of shape (position,), or None
        The positions of [CLS] and [SEP], and of another token that begins every text.  None means
        that the model has no such token, which is not the same as a model that has one and gives it
        no attention.
    punctuation : bool array of shape (position,)
        The positions of full stops and commas, of any script.
    other : bool array of shape (position,)
        All other positions.
    """

    cls: Bool[np.ndarray, " position"] | None = None
    sep: Bool[np.ndarray, " position"] | None = None
    first: Bool[np.ndarray, " position"] | None = None
    punctuation: Bool[np.ndarray, " position"]
    other: Bool[np.ndarray, " position"]

    def masks(self) -> dict[str, Bool[np.ndarray, " position"]]:
        """Collect the masks of the roles that the model has, by name."""
        return {name: mask for name, mask in vars(self).items() if mask is not None}

    def kinds(self) -> list[str]:
        """Name the role of each position."""
        names, masks = zip(*self.masks().items(), strict=True)
        return np.array(names)[np.argmax(masks, axis=0)].tolist()


@cache
def is_punctuation(token: str) -> bool:
    """Tell whether a token is a full stop or comma of any script (section 3.2).

    Parameters
    ----------
    token : str
        The token as the tokenizer writes it.  Byte-level vocabularies write every byte of a
        character as a letter of its own.

    Returns
    -------
    bool
    """
    from tokenizers.decoders import ByteLevel

    text = ByteLevel().decode([token.lstrip(WORD_MARKS)])
    if len(text) != 1 or unicodedata.category(text)[0] != "P":
        return False
    # Such as IDEOGRAPHIC FULL STOP, ARABIC COMMA or DEVANAGARI DANDA.
    return bool(re.search(r"\b(FULL STOP|COMMA|DANDA)\b", unicodedata.name(text, "")))


def roles(tokens: Sequence[str], special_tokens: Mapping[str, str | None]) -> Roles:
    """Find the role of each token: [CLS], [SEP], punctuation or other (section 3.2).

    Parameters
    ----------
    tokens : sequence of str
        The tokens of an example as the tokenizer writes them.
    special_tokens : Mapping
        The model's tokens for "cls" and "sep"; None for one that it does not have.  "first" is
        another token that begins every text.

    Returns
    -------
    Roles
        Masks over the positions.
    """
    masks = {"punctuation": np.array(list(map(is_punctuation, tokens)))}
    for role in ("cls", "sep"):
        special_token = special_tokens.get(role)
        if special_token is not None:
            masks[role] = np.array(tokens, dtype=object) == special_token
    if "first" in special_tokens:
        masks["first"] = np.arange(len(tokens)) == 0
    return Roles(**masks, other=~np.any(list(masks.values()), axis=0))


def evenly_spaced(values: Sequence[Value], count: int) -> list[Value]:
    """Select at most ``count`` values at equal distances, the first and the last included."""
    indices = np.linspace(0, len(values) - 1, min(count, len(values))).astype(int)
    return list(map(values.__getitem__, indices))


def reservoir(items: Iterable[Any], count: float, generator: random.Random) -> list[Any]:
    """Choose ``count`` items uniformly in one pass (reservoir sampling)."""
    chosen: list[Any] = []
    for total, item in enumerate(items, 1):
        if total <= count:
            chosen.append(item)
            continue
        slot = generator.randrange(total)
        if slot < count:
            chosen[slot] = item
    return chosen


def count_used(records: Iterable[Record], report: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Count the records of a store that are used, and those that the reader found.

    Parameters
    ----------
    records : iterable of dict
        The records of a store: ``store.records()``.
    report : Mapping
        What was counted while its corpus was read: ``store.report``.

    Returns
    -------
    dict of str to (int, int)
        The numbers used and read of "segments", of "sentences", or of "documents" and "mentions".
        A sentence over the limit of tokens is read and not used, and so is a mention beyond it.
    """
    used: Counter[str] = Counter()
    for record in records:
        if "mentions" in record:
            used["documents"] += 1
            used["mentions"] += len(record["mentions"])
        else:
            used["sentences" if "words" in record else "segments"] += 1
    n_segments = report.get("segments", 0) - report.get("segments not sampled", 0)
    n_read = {"segments read": n_segments, **report}
    return {unit: (count, n_read.get(f"{unit} read") or count) for unit, count in used.items()}


class Visible(NamedTuple):
    """The keys that the queries of a layer can attend to.

    Attributes
    ----------
    causal : bool
        Whether a query sees no later keys.
    window : int or None
        The distance of the farthest key that a query sees, in tokens; None if there is no limit.
        A key is visible if it is as far away or nearer.
    """

    causal: bool
    window: int | None


def visible_mask(visible: Visible, n: int) -> Bool[np.ndarray, "query key"]:
    """Compute which keys each query of an input can attend to.

    Parameters
    ----------
    visible : Visible
        The description of a layer.
    n : int
        The number of tokens.

    Returns
    -------
    bool array of shape (query, key)
        Each query sees itself.
    """
    positions = np.arange(n)
    distance = positions[:, None] - positions  # of a key before the query
    mask = np.ones(distance.shape, dtype=bool)
    if visible.causal:
        mask &= distance >= 0
    if visible.window is not None:
        mask &= abs(distance) <= visible.window
    return mask


def visible_words(
    mask: Bool[np.ndarray, "query key"], groups: Sequence[int]
) -> Bool[np.ndarray, "word word"]:
    """Compute which words each word can attend to: a word sees another if any of its tokens does.

    Parameters
    ----------
    mask : bool array of shape (query, key)
        Which tokens see which, as from `visible_mask`.
    groups : sequence of int
        The word of each token, numbered from 0 in their order without gaps.

    Returns
    -------
    bool array of shape (word, word)
    """
    first_tokens = np.flatnonzero(np.diff(groups, prepend=-1))
    by_query = np.logical_or.reduceat(mask, first_tokens, axis=0)
    return np.logical_or.reduceat(by_query, first_tokens, axis=1)


def describe_mask(mask: Bool[np.ndarray, "query key"]) -> Visible | None:
    """Describe a mask; None if it is neither full nor causal nor a window.

    Parameters
    ----------
    mask : bool array of shape (query, key)
        Which keys each query of an input sees.

    Returns
    -------
    Visible or None
        A window as long as the input, or longer, looks like no window.
    """
    n = len(mask)
    queries, keys = np.nonzero(mask)
    farthest = int(abs(queries - keys).max(initial=0))
    causal = n > 1 and not np.triu(mask, 1).any()
    visible = Visible(causal, farthest if farthest < n - 1 else None)
    return visible if np.array_equal(visible_mask(visible, n), mask) else None
