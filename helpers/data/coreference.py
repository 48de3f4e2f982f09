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
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path

from helpers.data.columns import read_documents
from helpers.data.records import AnnotatedText, Corpus, Document, Mention, Span
from helpers.data.text_files import file_fingerprint, lines, one_line, quoted, visible
from helpers.data.treebank import PIPELINE, pipeline
from helpers.errors import CorpusError
from helpers.paths import given_path
from helpers.work import progress

SAMPLE = Path(__file__).with_name("coreference_sample.txt")
# A folder may hold one corpus in several formats: the first of these that it has is read.
FILE_PATTERNS = ("*.conllu", "*gold_conll", "*conll", "*.txt")
SPLITS = ("train", "dev")
_HEADER = re.compile(r"# (?P<name>\S+) (?P<genre>\S.*)")
_PIECE = re.compile(
    r"""
    (\[)
  | (\]([0-9]{1,9})?)                  # with the chain
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
    (``.conllu`` with ``Entity=``) or bracket notation (``.txt``); None is the embedded sample.
    Every second document, in order of name, is ``train``, the others ``dev``: names start with
    the genre, so that both halves have the same mixture.  Parts of one document stay together.
    CorpusError where there is no such file, one is damaged, or no mention is in any.
    """
    source = SAMPLE if path is None else given_path(path)
    files = _files(source)
    folder = source.parent if source.is_file() else source
    spec = {
        "kind": "coreference",
        "format": 1,
        "files": {file.relative_to(folder).as_posix(): file_fingerprint(file) for file in files},
    }
    if any(file.suffix != ".conllu" for file in files):
        spec["heads"] = {package: version(package) for package in ("spacy", PIPELINE)}

    def read(counts: Counter[str]) -> Iterator[Document]:
        turns: dict[str, int] = {}  # of the splits, taken in the order of names
        for text in _annotated_texts(source, files, counts):
            turn = turns.setdefault(text.name, len(turns))
            yield _with_heads(text, SPLITS[turn % len(SPLITS)], counts)

    def check() -> None:
        for _ in _annotated_texts(source, files, Counter()):
            pass

    own_name = source.stem if source.is_file() else source.name
    corpus_name = name or ("coreference-sample" if path is None else own_name)
    return Corpus(corpus_name, spec, read, check=check)


def _annotated_texts(
    source: Path, files: Sequence[Path], counts: Counter[str]
) -> Iterator[AnnotatedText]:
    """Yield the documents of all files; CorpusError if no document has a mention."""
    mentions = 0
    for file in progress(files, "reading documents", unit="file"):
        read_file = read_brackets if file.suffix == ".txt" else read_documents
        for text in read_file(file, counts):
            mentions += len(text.spans)
            yield text
    if not mentions:
        raise CorpusError(source, "no mention in any document; is coreference annotated?")


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


def _with_heads(text: AnnotatedText, split: str, counts: Counter[str]) -> Document:
    heads, tags, predicted = text.heads, text.tags, None
    if heads is None:
        heads, predicted = _parse(text)
        known = tags or (None,) * len(predicted)
        tags = tuple(tag or guess for tag, guess in zip(known, predicted, strict=True))
    mentions = []
    for start, end, chain in text.spans:
        candidates = _head_candidates(start, end, heads)
        counts["mention heads that needed a tie-break"] += len(candidates) != 1
        mentions.append(Mention(start, end, chain, head_word(start, end, heads, predicted)))
    return Document(text.words, tags, tuple(mentions), split, text.source)


def _parse(text: AnnotatedText) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return each word's head (index in the document, -1 for a root) and universal tag."""
    from spacy.tokens import Doc

    nlp = pipeline()
    parsed = nlp(Doc(nlp.vocab, words=list(text.words), sent_starts=text.sentence_starts))
    heads = tuple(token.head.i if token.head.i != token.i else -1 for token in parsed)
    return heads, tuple(token.pos_ for token in parsed)


def head_word(start: int, end: int, heads: Sequence[int], tags: Sequence[str] | None = None) -> int:
    """Return the head word of a span: the word whose head lies outside it.

    Of several, the one nearest its sentence root, then the first.  With ``tags``, nouns and names
    go before pronouns and numerals, and those before other words: a parser that breaks a span
    apart then does not make "behind" the head of "a tree behind the church".  ``heads`` are
    indices into the document, -1 for a root.
    """

    def rank(word: int) -> tuple[int, int]:
        depth, above = 0, word
        while heads[above] >= 0:
            above, depth = heads[above], depth + 1
        return (_HEAD_RANKS.get(tags[word], 2) if tags else 0), depth

    return min(_head_candidates(start, end, heads), key=rank)


def _head_candidates(start: int, end: int, heads: Sequence[int]) -> list[int]:
    return [word for word in range(start, end) if not start <= heads[word] < end]


def read_brackets(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a file in bracket notation; invisible characters are counted."""
    documents: dict[str, tuple[str, list[tuple[int, str]]]] = {}  # genre, lines of text
    text = None
    for number, line in lines(path):
        if line.startswith("##") or not line.strip():
            continue
        if line.startswith("#"):
            if not (header := _HEADER.fullmatch(line.rstrip())):
                raise CorpusError(path, "expected '# name genre' (or '##', a comment)", number)
            name, text = header["name"], []
            if name in documents:
                raise CorpusError(path, f"a second document named {quoted(name)}", number)
            documents[name] = (header["genre"], text)
        elif text is None:
            message = "text before the first header, a line '# name genre' such as '# a story'"
            raise CorpusError(path, message, number)
        else:
            text.append((number, one_line(line)))
    for name, (genre, text) in documents.items():
        words, spans = _words_and_spans(path, text, counts)
        yield AnnotatedText(name, f"{name} ({genre})", words, spans)


def _words_and_spans(
    path: Path, text: list[tuple[int, str]], counts: Counter[str]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    words: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[int, int]] = []  # first word and line
    for number, line in text:
        for opening, _, chain, word in _PIECE.findall(line):
            if opening:
                opened.append((len(words), number))
            elif word and visible(word):
                words.append(word)
            elif word:
                counts["invisible characters left out"] += 1
            elif not opened:
                raise CorpusError(path, "']' closes no mention; remove it", line=number)
            else:
                start, _ = opened.pop()
                if start == len(words):
                    raise CorpusError(path, "a mention without words", line=number)
                spans.append((start, len(words), int(chain) if chain else None))
    if opened:
        raise CorpusError(path, "'[' is never closed in this document", line=opened[-1][1])
    return tuple(words), tuple(sorted(spans, key=itemgetter(0, 1)))
