"""Coreference corpora: documents with mentions, their chains and their head words (section 4.3).

Read are the embedded sample, CoNLL-2012, OntoGUM, and text in brackets, a notation that people
can write::

    ## A comment.
    # tale-01 story
    [Ann]1 lost [[her]1 ring]2, and [a magpie] found [it]2.

A header line names a document and its genre; its text follows, over as many lines as it takes.
``[...]7`` is a mention of chain 7, ``[...]`` a mention that nothing else refers to.  Mentions
nest.  Words, punctuation and clitics (``'s``, ``n't``) are separated by the reader, as the Penn
Treebank does it.

Where a corpus has dependency trees, the head word of a mention comes from them; otherwise from
spaCy's parse of the corpus's own words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from helpers.data.conll import DocumentFormat, read_documents
from helpers.data.records import (
    AnnotatedText,
    Corpus,
    Document,
    Mention,
    Span,
)
from helpers.data.silver_treebank import PIPELINE, pipeline
from helpers.data.text_files import file_fingerprint, lines, one_line, quoted, visible
from helpers.errors import CorpusError
from helpers.progress import progress

READER_FORMAT = 1  # raise it when the readers give something else for the same files
SAMPLE = Path(__file__).with_name("coreference_sample.txt")
# A folder may hold one corpus in several formats: the first of these that it has is read.
FILE_PATTERNS = ("*.conllu", "*gold_conll", "*conll", "*.txt")
SPLITS = ("train", "dev")
Format = DocumentFormat | Literal["brackets"]

MAX_DIGITS = 9  # of a chain number
_HEADER = re.compile(r"# (?P<name>\S+) (?P<genre>\S.*)")
_PIECE = re.compile(
    r"""
    (\[)
  | (\]([0-9]+)?)                  # with the chain
  | (
        (?:Mr|Mrs|Ms|Dr|St)\.
      | \d+(?:[.,:]\d+)+              # 1,200  3.5  10:30
      | \w+(?=n't\b) | n't\b
      | '(?:s|re|ve|ll|d|m)\b
      | \w+(?:-\w+)*                  # well-known
      | \.{3} | [^\w\s]
    )
    """,
    re.VERBOSE,
)
_HEAD_RANKS = {"NOUN": 0, "PROPN": 0, "PRON": 1, "NUM": 1}


def coreference_corpus(
    path: str | Path | None = None, *, name: str | None = None
) -> Corpus[Document]:
    """Return a coreference corpus; it is read only when its documents are asked for.

    ``path`` is a file or a folder (searched through) of CoNLL-2012 (``*_conll``), OntoGUM
    (``.conllu`` with ``Entity=``, or three-column ``.conll``) or bracket notation (``.txt``);
    None is the embedded sample.  Every second document is ``train``, the others ``dev``; parts of
    one document stay together.  Raises :class:`CorpusError` here where there is no such file, and
    while reading where a file is damaged or no file has a mention.
    """
    source = Path(path) if path is not None else SAMPLE
    formats = {file: _format(file) for file in _files(source)}
    folder = source.parent if source.is_file() else source
    spec = {
        "kind": "coreference",
        "format": READER_FORMAT,
        "files": {file.relative_to(folder).as_posix(): file_fingerprint(file) for file in formats},
    }
    if set(formats.values()) != {"conllu"}:
        spec["heads"] = {package: version(package) for package in ("spacy", PIPELINE)}

    def texts(counts: Counter[str]) -> Iterator[tuple[AnnotatedText, str]]:
        mentions = 0
        for text, split in _halves(formats, counts):
            mentions += len(text.spans)
            yield text, split
        if not mentions:
            raise CorpusError(source, "no mention in any document; is coreference annotated?")

    def read(counts: Counter[str]) -> Iterator[Document]:
        return (_with_heads(text, split, counts) for text, split in texts(counts))

    def check() -> None:
        for _ in texts(Counter()):
            pass

    own_name = source.stem if source.is_file() else source.name
    return Corpus(name or ("coreference-sample" if path is None else own_name), spec, read, check)


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise CorpusError(source, "no such file or folder; check the path")
    for pattern in FILE_PATTERNS:
        if files := sorted(source.rglob(pattern)):
            return files
    expected = ", ".join(FILE_PATTERNS)
    raise CorpusError(source, f"no coreference file in this folder; expected {expected}")


def _format(file: Path) -> Format:
    """Choose by name; CoNLL-2012 and three-column OntoGUM differ in their first line."""
    if file.suffix == ".conllu":
        return "conllu"
    if file.suffix == ".txt":
        return "brackets"
    first = next((line for _, line in lines(file) if line.strip()), "")
    if first.startswith("#begin document"):
        return "conll2012"
    if first.startswith("# begin document"):
        return "ontogum"
    formats = "'#begin document (name); part 000' (CoNLL-2012) or '# begin document' (OntoGUM)"
    raise CorpusError(file, f"unknown format: expected {formats}, .conllu or .txt", line=1)


def _halves(
    formats: Mapping[Path, Format], counts: Counter[str]
) -> Iterator[tuple[AnnotatedText, str]]:
    """Yield texts, alternating between the splits from document name to document name.

    Files and documents are in order of name, which in these corpora starts with the genre: taking
    turns gives both halves the same mixture.
    """
    turns: dict[str, int] = {}
    for file, format in progress(formats.items(), "reading documents", unit="file"):
        brackets = format == "brackets"
        for text in (
            read_brackets(file, counts) if brackets else read_documents(file, format, counts)
        ):
            turn = turns.setdefault(text.name, len(turns))
            yield text, SPLITS[turn % len(SPLITS)]


def _with_heads(text: AnnotatedText, split: str, counts: Counter[str]) -> Document:
    heads, tags = text.heads, text.tags
    predicted = None
    if heads is None or tags is None:
        heads, predicted = _parse(text.words, text.sentence_starts)
        known = tags or (None,) * len(predicted)
        tags = tuple(tag or guess for tag, guess in zip(known, predicted, strict=True))
    mentions = []
    for start, end, chain in text.spans:
        tie = len(_head_candidates(start, end, heads)) != 1
        counts["mention heads that needed a tie-break"] += tie
        mentions.append(Mention(start, end, chain, head_word(start, end, heads, predicted)))
    return Document(text.words, tuple(tags), tuple(mentions), split, text.source)


def _parse(
    words: Sequence[str], sentence_starts: Sequence[bool] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return each word's head (index in the document, -1 for a root) and universal tag."""
    from spacy.tokens import Doc

    if not words:
        return (), ()
    nlp = pipeline()
    starts = list(sentence_starts) if sentence_starts is not None else None
    parsed = nlp(Doc(nlp.vocab, words=list(words), sent_starts=starts))
    heads = tuple(token.head.i if token.head.i != token.i else -1 for token in parsed)
    return heads, tuple(token.pos_ for token in parsed)


def head_word(start: int, end: int, heads: Sequence[int], tags: Sequence[str] | None = None) -> int:
    """Return the head word of a span: the word whose head lies outside it.

    Of several, the one nearest its sentence root, then the first.  With ``tags``, nouns and names
    go before pronouns and numerals, and those before other words: a parser that breaks a span
    apart then does not make "behind" the head of "a tree behind the church".  ``heads`` are
    indices into the document, -1 for a root.
    """
    # In a damaged tree every word may depend on another inside the span.
    return min(
        _head_candidates(start, end, heads) or range(start, end),
        key=lambda word: (_HEAD_RANKS.get(tags[word], 2) if tags else 0, _depth(word, heads)),
    )


def _head_candidates(start: int, end: int, heads: Sequence[int]) -> list[int]:
    """Return the words of a span whose head lies outside it (or that are a root)."""
    return [word for word in range(start, end) if not start <= heads[word] < end]


def _depth(word: int, heads: Sequence[int]) -> int:
    depth = 0
    while heads[word] >= 0 and depth <= len(heads):  # the bound ends a cycle
        word, depth = heads[word], depth + 1
    return depth


def read_brackets(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a file in bracket notation.

    ``counts`` receives the invisible characters that stood for a word, and are left out.  Raises
    :class:`CorpusError` with the line: text before the first header, a name used twice, a
    mention that is empty, never closed, or closed without having been opened.
    """
    names: set[str] = set()
    header: tuple[str, str] | None = None
    text: list[tuple[int, str]] = []
    for number, line in lines(path):
        if line.startswith("##") or not line.strip():
            continue
        if not line.startswith("#"):
            if header is None:
                message = "text before the first header, a line '# name genre' such as '# a story'"
                raise CorpusError(path, message, line=number)
            text.append((number, one_line(line)))
            continue
        if header:
            yield _document(path, header, text, counts)
        match = _HEADER.fullmatch(line.rstrip())
        if not match:
            raise CorpusError(path, "expected '# name genre' (or '##', a comment)", line=number)
        if match["name"] in names:
            raise CorpusError(path, f"a second document named {quoted(match['name'])}", line=number)
        names.add(match["name"])
        header, text = (match["name"], match["genre"]), []
    if header:
        yield _document(path, header, text, counts)


def _document(
    path: Path, header: tuple[str, str], text: list[tuple[int, str]], counts: Counter[str]
) -> AnnotatedText:
    words: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[int, int]] = []  # first word and line
    for number, line in text:
        for opening, _, chain, word in _PIECE.findall(line):
            if opening:
                opened.append((len(words), number))
            elif word:
                if visible(word):
                    words.append(word)
                else:
                    counts["invisible characters left out"] += 1
            elif not opened:
                raise CorpusError(path, "']' closes no mention; remove it", line=number)
            else:
                start, _ = opened.pop()
                if start == len(words):
                    raise CorpusError(path, "a mention without words", line=number)
                if len(chain) > MAX_DIGITS:  # int() has an error of its own over 4,300 digits
                    problem = f"chain {quoted(chain)}; at most {MAX_DIGITS} digits"
                    raise CorpusError(path, problem, line=number)
                spans.append(Span(start, len(words), int(chain) if chain else None))
    if opened:
        raise CorpusError(path, "'[' is never closed in this document", line=opened[-1][1])
    name, genre = header
    spans.sort(key=lambda span: (span.start, span.end))
    return AnnotatedText(name, f"{name} ({genre})", tuple(words), tuple(spans))
