"""Readers of column formats, which have one word per line: dependency trees and coreference.

The formats are CoNLL-U (with ``Entity=`` in MISC: OntoGUM), CoNLL-X, the plain format of the
paper's repository (``word head-relation``) and CoNLL-2012.  `_blocks` reads the lines of all.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

from helpers.data.records import AnnotatedText, Sentence, Span
from helpers.data.text_files import lines, quoted, word
from helpers.errors import CorpusError

TreeFormat = Literal["conllu", "conllx", "plain"]

MAX_COLUMNS = 1 << 20  # more in a line are no table


class _Layout(NamedTuple):
    """The numbers of columns that a format allows, in words too, and the word's column (from 0)."""

    column_counts: Container[int]
    expected: str
    word_column: int


_LAYOUTS = {
    "conllu": _Layout({10}, "10 columns", 1),
    "conllx": _Layout({8, 10}, "8 or 10 columns", 1),
    "plain": _Layout({2}, "'word head-relation'", 0),
    # Predicate arguments add columns before the last one.
    "conll2012": _Layout(range(12, MAX_COLUMNS), "at least 12 columns", 3),
}
EXPECTED = "expected CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'"
NO_END = "the document that begins here has no '#end document'; is the file cut off?"
_NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")  # in CoNLL-U: a multi-word range, an empty node
_NUMBER = re.compile(r"[0-9]{1,9}")
_PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
# The label of a comment that names something, and the value or name after it.
_MARK = re.compile(r"#\s*(sent_id(?=\s*=)|newdoc\b|begin document\b|end document\b)[^=(]*=?\s*(.*)")
_NAME_2012 = re.compile(r"\((?P<name>.*)\);(?: part (?P<part>\d+))?")
_ENTITY = re.compile(r"(?:^|\|)Entity=([^|]*)")
_BRACKET = re.compile(r"\(([0-9]{1,9})\)|\(([0-9]{1,9})(?![0-9])|([0-9]{1,9})\)")


def _penn_to_universal() -> dict[str, str]:
    """Read the universal tags of Penn Treebank tags (Marcus et al. 1993)."""
    with Path(__file__).with_name("penn_tags.csv").open(newline="", encoding="utf-8") as file:
        return {row["penn"]: row["universal"] for row in csv.DictReader(file)}


PENN_TO_UNIVERSAL = _penn_to_universal()  # other tags are left to the tagger


class _Row(NamedTuple):
    """A line with a word: its number in the file, the word, and all columns."""

    line: int
    word: str
    cells: list[str]


class _Mark(NamedTuple):
    """A comment that names a sentence or a document: its line, label (see `_MARK`) and value."""

    line: int
    label: str
    value: str


def detect_format(path: Path) -> TreeFormat:
    """Detect the format of a treebank from its suffix and its first line that is not blank."""
    for line, text in lines(path):
        if not text.strip():
            continue
        cells = _cells(text)
        if _PLAIN_LINE.fullmatch(text.strip(" \t")):
            return "plain"
        if ".conllu" in path.suffixes or text[0] == "#" or _NOT_A_WORD.fullmatch(cells[0]):
            return "conllu"
        if ".conllx" in path.suffixes or len(cells) in _LAYOUTS["conllx"].column_counts:
            return "conllx"
        raise CorpusError(path, f"unknown format; {EXPECTED}", line=line)
    raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_trees(
    path: Path, format: TreeFormat | None = None, counts: Counter[str] | None = None
) -> Iterator[tuple[str | None, Sentence]]:
    """Yield the document and the tree of each sentence of a treebank file, in order.

    Multi-word ranges and empty nodes of CoNLL-U are skipped.

    Parameters
    ----------
    path : Path
        The file.
    format : {"conllu", "conllx", "plain"}, optional
        Its format; `detect_format` finds it by default.
    counts : Counter, optional
        Receives the number of words that were changed, by reason.

    Yields
    ------
    document : str or None
        The id in the last ``# newdoc``, or that mark's number in the file if it has no id; None
        before the first mark.
    sentence : Sentence
        The tree.  Its source is the ``sent_id``, or its number in the file.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.  A tree of CoNLL-U has exactly one root;
        converted treebanks may have several.
    """
    format = format or detect_format(path)
    document = None
    documents_begun = 0
    number = 0
    for marks, rows in _blocks(path, format, counts):
        for mark in marks:
            if mark.label == "newdoc":
                documents_begun += 1
                document = mark.value or str(documents_begun)
        if rows:
            number += 1
            ids = [mark.value for mark in marks if mark.label == "sent_id"]
            words = tuple(row.word for row in rows)
            heads, relations = _tree(path, rows, format)
            source = ids[0] if ids else str(number)
            yield document, Sentence(words, heads, relations, "", source)
    if not number:
        raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_documents(path: Path, counts: Counter[str] | None = None) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file; each part of a document is one (CoNLL-2012).

    Parameters
    ----------
    path : Path
        A file of CoNLL-U, with trees, if its suffix is ``.conllu``; otherwise of CoNLL-2012
        (Pradhan et al. 2012).
    counts : Counter, optional
        Receives the number of words that were changed, by reason.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.
    """
    if path.suffix == ".conllu":
        yield from _conllu_documents(path, counts)
    else:
        yield from _conll2012_documents(path, counts)


def _conllu_documents(path: Path, counts: Counter[str] | None) -> Iterator[AnnotatedText]:
    """Yield the documents of a CoNLL-U file, which begin at ``# newdoc``."""
    name = path.stem
    sentences: list[list[_Row]] = []
    for marks, rows in _blocks(path, "conllu", counts):
        for mark in marks:
            if mark.label != "newdoc":
                continue
            if sentences:
                yield _conllu_document(path, name, sentences)
                sentences = []
            name = mark.value or path.stem
        if rows:
            sentences.append(rows)
    if sentences:
        yield _conllu_document(path, name, sentences)


def _conll2012_documents(path: Path, counts: Counter[str] | None) -> Iterator[AnnotatedText]:
    """Yield the documents of a CoNLL-2012 file, each between its two marks."""
    name = path.stem
    source = path.stem
    open_document_line = None
    sentences: list[list[_Row]] = []
    for marks, rows in _blocks(path, "conll2012", counts):
        for mark in marks:
            if mark.label not in ("begin document", "end document"):
                continue
            if sentences:
                yield _conll2012_document(path, name, source, sentences)
                sentences = []
            if mark.label == "end document":
                open_document_line = None
                continue
            if open_document_line is not None:
                raise CorpusError(path, NO_END, line=open_document_line)
            open_document_line = mark.line
            name, source = _name_and_source(path, mark)
        if rows:
            sentences.append(rows)
    if open_document_line is not None:
        raise CorpusError(path, NO_END, line=open_document_line)
    if sentences:
        yield _conll2012_document(path, name, source, sentences)


def _name_and_source(path: Path, mark: _Mark) -> tuple[str, str]:
    """Read the name of a document off its first line, and the name with the part."""
    match = _NAME_2012.fullmatch(mark.value)
    if not match:
        raise CorpusError(path, "expected '#begin document (name); part 000'", mark.line)
    name = match["name"]
    source = f"{name} part {match['part']}" if match["part"] else name
    return name, source


def _blocks(
    path: Path, format: str, counts: Counter[str] | None
) -> Iterator[tuple[list[_Mark], list[_Row]]]:
    """Yield the rows of each sentence, with the marks that stand before it."""
    layout = _LAYOUTS[format]
    counts = Counter() if counts is None else counts
    marks: list[_Mark] = []
    rows: list[_Row] = []
    for line, text in lines(path):
        is_comment = text[:1] == "#" and format != "plain"  # in the plain format "#" is a word
        if is_comment or not text or text.isspace():
            match = _MARK.match(text) if is_comment else None
            ends_sentence = match or not is_comment
            if rows and ends_sentence:
                yield marks, rows
                marks = []
                rows = []
            if match:
                marks.append(_Mark(line, match[1], match[2].strip()))
            continue
        cells = _cells(text)
        if len(cells) not in layout.column_counts:
            raise CorpusError(path, f"expected {layout.expected}, found {len(cells)} columns", line)
        if format == "conllu" and _NOT_A_WORD.fullmatch(cells[0]):
            continue
        rows.append(_Row(line, word(cells[layout.word_column], counts), cells))
    if rows or marks:
        yield marks, rows


def _cells(text: str) -> list[str]:
    """Split a line at its tabs, or at its spaces if it has no tab."""
    if "\t" in text:
        return text.split("\t")
    return [cell for cell in text.split(" ") if cell]


def _tree(path: Path, rows: Sequence[_Row], format: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Read the heads of a sentence's words (as in `records.Sentence`) and their relations."""
    heads = []
    relations = []
    for number, row in enumerate(rows, 1):
        if format == "plain":
            head, _, relation = row.cells[1].partition("-")
        else:
            head = row.cells[6]
            relation = row.cells[7].strip()
            if row.cells[0] != str(number):
                problem = f"expected word {number}, found {quoted(row.cells[0])}"
                raise CorpusError(path, problem, row.line)
        if not _NUMBER.fullmatch(head):
            problem = f"the head is {quoted(head)}; expected a whole number (0: root)"
            raise CorpusError(path, problem, row.line)
        if not relation:
            raise CorpusError(
                path, "the word has no relation; expected one in its column", row.line
            )
        heads.append(int(head))
        relations.append(relation)
    error = _tree_error(heads, single_root=format == "conllu")
    if error is not None:
        index, problem = error
        raise CorpusError(path, problem.format(quoted(rows[index].word)), rows[index].line)
    return tuple(heads), tuple(relations)


def _tree_error(heads: Sequence[int], *, single_root: bool) -> tuple[int, str] | None:
    """Find the index of the first word that breaks a tree, and the reason; None for a tree."""
    for index, head in enumerate(heads):
        if head > len(heads):
            return index, f"the head of {{}} is {head}; the sentence has {len(heads)} words"
    if 0 not in heads:
        return 0, "the sentence that starts with {} has no root (a word with head 0)"
    if single_root and heads.count(0) > 1:
        second_root = heads.index(0, heads.index(0) + 1)
        return second_root, "a second root, {}; a tree of CoNLL-U has one"
    visited_by = [0] * len(heads)  # the start (from 1) of the walk to the root that came first
    for start in range(1, len(heads) + 1):
        index = start - 1
        while index >= 0 and not visited_by[index]:
            visited_by[index] = start
            index = heads[index] - 1
        if index >= 0 and visited_by[index] == start:
            return index, "the heads of {} run in a cycle and never reach the root"
    return None


def _conllu_document(path: Path, name: str, sentences: Sequence[list[_Row]]) -> AnnotatedText:
    """Make a document of CoNLL-U sentences; their trees give the heads of its words."""
    rows = list(chain(*sentences))
    brackets = []
    for row in rows:
        entity = _ENTITY.search(row.cells[9])
        brackets.append(entity[1] if entity else "_")
    heads: list[int] = []  # the index of each word's head in the document, -1 for a root
    for sentence in sentences:
        offset = len(heads)
        sentence_heads, _ = _tree(path, sentence, "conllu")
        heads += [offset + head - 1 if head else -1 for head in sentence_heads]
    return AnnotatedText(
        name=name,
        source=name,
        words=tuple(row.word for row in rows),
        spans=_spans(path, rows, brackets),
        tags=tuple(row.cells[3] for row in rows),
        heads=tuple(heads),
        sentence_starts=_sentence_starts(sentences),
    )


def _conll2012_document(
    path: Path, name: str, source: str, sentences: Sequence[list[_Row]]
) -> AnnotatedText:
    """Make a document of CoNLL-2012 sentences, which have phrase structure and no heads."""
    rows = list(chain(*sentences))
    for row in rows:
        if row.word == "[WORD]":
            problem = "a skeleton without words; run the shared task's skeleton2conll on it first"
            raise CorpusError(path, problem, row.line)
    return AnnotatedText(
        name=name,
        source=source,
        words=tuple(row.word for row in rows),
        spans=_spans(path, rows, [row.cells[-1] for row in rows]),
        tags=tuple(PENN_TO_UNIVERSAL.get(row.cells[4]) for row in rows),
        sentence_starts=_sentence_starts(sentences),
    )


def _sentence_starts(sentences: Sequence[Sequence[_Row]]) -> tuple[bool, ...]:
    """Mark the first word of each sentence among the words of a document."""
    starts: list[bool] = []
    for sentence in sentences:
        starts += [True] + [False] * (len(sentence) - 1)
    return tuple(starts)


def _spans(path: Path, rows: Sequence[_Row], brackets: Sequence[str]) -> tuple[Span, ...]:
    """Read a document's mentions, in order, from the brackets of each word; chains may cross."""
    spans: list[Span] = []
    open_starts: dict[int, list[int]] = defaultdict(list)  # by chain, the innermost mention last
    for index, cell in enumerate(brackets):
        if cell in ("-", "_"):
            continue
        if _BRACKET.sub("", cell).replace("|", ""):
            expected = "expected brackets with chain numbers such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {expected}", rows[index].line)
        for single, opening, closing in _BRACKET.findall(cell):
            chain_number = int(single or opening or closing)
            if single:
                spans.append((index, index + 1, chain_number))
            elif opening:
                open_starts[chain_number].append(index)
            elif open_starts[chain_number]:
                spans.append((open_starts[chain_number].pop(), index + 1, chain_number))
            else:
                problem = f"{chain_number}) closes no mention; remove it, or open the mention"
                raise CorpusError(path, problem, rows[index].line)
    for chain_number, starts in open_starts.items():
        if starts:
            problem = f"({chain_number} is never closed in this document; close the mention"
            raise CorpusError(path, problem, rows[starts[0]].line)
    return tuple(sorted(spans, key=itemgetter(0, 1)))
