"""Readers of column formats, which have one word per line: dependency trees and coreference.

The formats are CoNLL-U (with ``Entity=`` in MISC: OntoGUM), CoNLL-X, the plain format of the
paper's repository (``word head-relation``) and CoNLL-2012.  `_blocks` reads the lines of all.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from helpers.data.other_formats import EXPECTED, refuse_other_formats
from helpers.data.records import AnnotatedText, Sentence, Span
from helpers.data.text_files import lines, quoted, word
from helpers.errors import CorpusError

TreeFormat = Literal["conllu", "conllx", "plain"]

# The numbers of columns that a format allows; predicate arguments add some to CoNLL-2012.
COLUMN_COUNTS = {"conllu": (10,), "conllx": (8, 10), "plain": (2,), "conll2012": range(12, 1 << 20)}
# The column of the word, counted from 0.
WORD_COLUMNS = {"conllu": 1, "conllx": 1, "plain": 0, "conll2012": 3}
EXPECTED_COLUMNS = {
    "conllu": "10 columns",
    "conllx": EXPECTED["treebank"],
    "plain": "'word head-relation'",
    "conll2012": "at least 12 columns (CoNLL-2012)",
}
# What stands in for words that a corpus leaves out, mostly for reasons of licence.
_LEFT_OUT = {"_", "[WORD]"}
# The beginning of a line in CoNLL-U that is a multi-word range or an empty node.
_NOT_A_WORD = re.compile(r"\d+[-.]\d+\s")
# A cell of a line without tabs.
_CELL = re.compile("[^ ]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
# The label of a comment that names something, and the value or name after it.
_MARK = re.compile(r"#\s*(sent_id(?=\s*=)|newdoc\b|begin document\b)[^=(]*=?\s*(.*)")
_ENTITY = re.compile(r"(?:^|\|)Entity=([^|]*)")
# An opening bracket, a chain and a closing one; either bracket may be missing.
_BRACKET = re.compile(r"(?=\(|[0-9]{1,9}\))(\(?)([0-9]{1,9})(?![0-9])(\)?)")


@cache
def universal_tags() -> dict[str, str]:
    """Read the universal tags of Penn Treebank tags (Marcus et al. 1993).

    Tags that are not in the list are left to the tagger.
    """
    path = Path(__file__).with_name("penn_tags.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return {row["penn"]: row["universal"] for row in csv.DictReader(file)}


class _Row(NamedTuple):
    """A line with a word: its number in the file, the word as it is and cleaned, all columns."""

    line: int
    form: str
    word: str
    cells: list[str]


def detect_format(path: Path) -> TreeFormat:
    """Detect the format of a treebank.

    Only the name tells CoNLL-U from CoNLL-X, because files of both have comments.

    Raises
    ------
    CorpusError
        For a file that begins as one in another format.
    """
    refuse_other_formats(path, "treebank")
    first = next((text for _, text in lines(path) if text.strip()), "")
    if _PLAIN_LINE.fullmatch(first.strip(" \t")):
        return "plain"
    return "conllu" if ".conllu" in path.suffixes else "conllx"


def read_trees(path: Path, counts: Counter[str]) -> Iterator[Sentence]:
    """Yield the tree of each sentence of a treebank file, in order.

    Multi-word ranges and empty nodes are skipped.

    Parameters
    ----------
    path : Path
        The file.
    counts : Counter
        Receives the number of words that were changed, by reason.

    Yields
    ------
    Sentence
        Without a split.  Its document is the id in the last ``# newdoc``, or, if that has no id,
        the number of the sentence after it; its id is the ``sent_id``, or its number in the file.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format, and for a sentence whose words are left out.  A
        tree in a ``.conllu`` file has exactly one root; converted treebanks may have several.
    """
    format = detect_format(path)
    file_name = path.name.removesuffix(".gz").removesuffix(".bz2")
    origin = file_name
    number = 0
    for number, (marks, rows) in enumerate(_blocks(path, format, counts), 1):
        if "newdoc" in marks:
            origin = f"{file_name}, document {marks['newdoc'] or number}"
        words = tuple(row.word for row in rows)
        heads, relations = _tree(path, rows, format)
        source = f"{origin}, sentence {marks.get('sent_id', number)}"
        tags = _sentence_tags(rows) if format == "conllu" else ()
        yield Sentence(words, heads, relations, "", source, tags)
    if not number:
        raise CorpusError(path, f"has no sentence; expected {EXPECTED['treebank']}")


def read_documents(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file; each part of a document is one (CoNLL-2012).

    Parameters
    ----------
    path : Path
        A file of CoNLL-U, with trees, if its suffix is ``.conllu``; otherwise of CoNLL-2012
        (Pradhan et al. 2012).
    counts : Counter
        Receives the number of words that were changed, by reason.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.
    """
    format = "conllu" if path.suffix == ".conllu" else "conll2012"
    document = ""
    sentences: list[list[_Row]] = []
    for marks, rows in _blocks(path, format, counts):
        mark = marks.get("newdoc", marks.get("begin document"))
        if mark is not None:
            if sentences:
                yield _document(path, format, document, sentences)
                sentences = []
            document = mark
        sentences.append(rows)
    if sentences:
        yield _document(path, format, document, sentences)


def _blocks(
    path: Path, format: str, counts: Counter[str]
) -> Iterator[tuple[dict[str, str], list[_Row]]]:
    """Yield the rows of each sentence, with the values of the marks before it by their labels."""
    marks: dict[str, str] = {}
    rows: list[_Row] = []
    for line, text in chain(lines(path), [(0, "")]):
        is_comment = text[:1] == "#" and format != "plain"  # in the plain format "#" is a word
        if is_comment or not text.strip():
            if rows:
                _check_words(path, rows)
                yield marks, rows
                marks = {}
                rows = []
            mark = _MARK.match(text) if is_comment else None
            if mark:
                marks[mark[1]] = mark[2].strip()
            continue
        if format in ("conllu", "conllx") and _NOT_A_WORD.match(text):
            continue
        cells = text.split("\t") if "\t" in text else _CELL.findall(text)
        if len(cells) not in COLUMN_COUNTS[format]:
            raise CorpusError(
                path, f"expected {EXPECTED_COLUMNS[format]}, found {len(cells)} columns", line
            )
        form = cells[WORD_COLUMNS[format]]
        rows.append(_Row(line, form, word(form, counts), cells))


def _check_words(path: Path, rows: Sequence[_Row]) -> None:
    """Refuse a sentence whose words the corpus leaves out; a single "_" can be a word."""
    forms = {row.form for row in rows}
    if forms <= _LEFT_OUT and (len(rows) > 1 or forms == {"[WORD]"}):
        raise CorpusError(
            path,
            f"the words of this corpus are left out (each is {quoted(rows[0].form)}); put them in "
            "as its README says (CoNLL-2012: skeleton2conll), or use another corpus",
            rows[0].line,
        )


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
                raise CorpusError(
                    path, f"expected word {number}, found {quoted(row.cells[0])}", row.line
                )
        if not (_NUMBER.fullmatch(head) and int(head) <= len(rows) and relation):
            raise CorpusError(
                path,
                f"{quoted(row.word)} has the head {quoted(head)} and relation {quoted(relation)}; "
                f"expected a whole number (0: root, at most {len(rows)}) and a relation",
                row.line,
            )
        heads.append(int(head))
        relations.append(relation)
    if format == "conllu" and heads.count(0) > 1:
        row = rows[heads.index(0, heads.index(0) + 1)]
        problem = (
            f"a second root, {quoted(row.word)}; give it a parent, since CoNLL-U has one root, or "
            "name the file .conllx if its trees have several"
        )
        raise CorpusError(path, problem, row.line)
    ancestors = np.array([0, *heads])
    for _ in range(len(heads).bit_length()):
        ancestors = ancestors[ancestors]  # twice as many steps up; all reach 0 in a tree
    if ancestors.any():
        row = rows[np.flatnonzero(ancestors)[0] - 1]
        problem = f"the heads of {quoted(row.word)} form a circle; lead them to a word with head 0"
        raise CorpusError(path, problem, row.line)
    return tuple(heads), tuple(relations)


def _sentence_tags(rows: Sequence[_Row]) -> tuple[str | None, ...]:
    """Read the universal tags of a sentence's words in CoNLL-U; empty if it has none."""
    tags = tuple(None if row.cells[3] == "_" else row.cells[3] for row in rows)
    return tags if any(tags) else ()


def _document(path: Path, format: str, mark: str, sentences: Sequence[list[_Row]]) -> AnnotatedText:
    """Make a document of its sentences.

    The trees of CoNLL-U give the heads of words; CoNLL-2012 has phrase structure instead.
    """
    name, _, part = mark.removeprefix("(").partition(");")  # (name); part 000
    name = name or path.stem
    rows: list[_Row] = []
    sentence_starts: list[bool] = []
    heads: list[int] = []  # their indices in the document, -1 for a root
    for sentence in sentences:
        if format == "conllu":
            sentence_heads, _ = _tree(path, sentence, format)
            heads += [len(rows) + head - 1 if head else -1 for head in sentence_heads]
        sentence_starts += [row is sentence[0] for row in sentence]
        rows += sentence
    if format == "conllu":
        brackets = ["".join(_ENTITY.findall(row.cells[9])) for row in rows]
        tags = [row.cells[3] for row in rows]
    else:
        brackets = [row.cells[-1].strip("-_") for row in rows]
        tags = [universal_tags().get(row.cells[4]) for row in rows]
    return AnnotatedText(
        name=name,
        source=name + part,
        words=tuple(row.word for row in rows),
        spans=_spans(path, rows, brackets),
        tags=tuple(tags),
        heads=tuple(heads) or None,
        sentence_starts=tuple(sentence_starts),
    )


def _spans(path: Path, rows: Sequence[_Row], brackets: Sequence[str]) -> tuple[Span, ...]:
    """Read a document's mentions, in order, from the brackets of each word; chains may cross."""
    spans: list[Span] = []
    open_starts: dict[int, list[int]] = defaultdict(list)  # by chain, the innermost mention last
    for index, cell in enumerate(brackets):
        if _BRACKET.sub("", cell).replace("|", ""):
            problem = "expected brackets with chain numbers such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {problem}", rows[index].line)
        for opening, number, closing in _BRACKET.findall(cell):
            starts = open_starts[int(number)]
            if opening:
                starts.append(index)
            if not closing:
                continue
            if not starts:
                problem = f"{number}) closes no mention; remove it, or open the mention"
                raise CorpusError(path, problem, rows[index].line)
            spans.append((starts.pop(), index + 1, int(number)))
    for chain_number, starts in open_starts.items():
        if starts:
            problem = f"({chain_number} is never closed in this document; close the mention"
            raise CorpusError(path, problem, rows[starts[0]].line)
    return tuple(sorted(spans, key=itemgetter(0, 1)))
