"""Readers of column formats, which have one word per line: rows of words, and dependency trees.

The formats are CoNLL-U, CoNLL-X, the plain format of the paper's repository (``word
head-relation``) and CoNLL-2012, whose coreference `helpers.data.coreference` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from helpers.data.records import Sentence
from helpers.data.text_files import (
    EXPECTED,
    clean_word,
    lines,
    plain_name,
    quoted,
    refuse_other_formats,
)
from helpers.errors import CorpusError

Format = Literal["conllu", "conllx", "plain", "conll2012"]

# How many columns a format allows, which of them has the word (from 0), and what is expected.
_COLUMNS: dict[Format, tuple[Container[int], int, str]] = {
    "conllu": ({10}, 1, "10 columns"),
    "conllx": ({8, 10}, 1, EXPECTED["treebank"]),
    "plain": ({2}, 0, "'word head-relation'"),
    # Predicate arguments add columns.
    "conll2012": (range(12, 1 << 20), 3, "at least 12 columns (CoNLL-2012)"),
}
# The beginning of a line that has no word of the text: a multi-word range, or an empty node.
_NO_WORD = re.compile(r"[0-9]{1,9}([-.])[0-9]{1,9}\s")
NO_SPACE = "SpaceAfter=No"  # in the last column of CoNLL-U
# The label of a comment that names something, and the value or name after it.
_MARK = re.compile(
    r"#\s*(sent_id(?=\s*=)|global\.Entity(?=\s*=)|newdoc\b|begin document\b)[^=(]*=?\s*(.*)"
)


class Row(NamedTuple):
    """A line of a sentence: its number, its word, cleaned, and all columns.

    ``mark`` is empty for a word.  It is "-" for a multiword token of CoNLL-U, whose words follow,
    and "." for an empty node, which is not in the text.
    """

    line: int
    word: str
    cells: list[str]
    mark: str


def detect_format(path: Path) -> Format:
    """Detect the format of a treebank; CorpusError for a file that begins as one in another format.

    Only the name tells CoNLL-U from CoNLL-X, because files of both have comments.
    """
    refuse_other_formats(path, "treebank")
    first = next((text.strip(" \t") for _, text in lines(path) if text.strip()), "")
    if re.fullmatch(r"[^ \t]+[ \t]+\d+-\S+", first):
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
    has_spaces = format == "conllu" and any(NO_SPACE in text for _, text in lines(path))
    origin = plain_name(path)
    number = 0
    for number, (marks, nodes) in enumerate(read_blocks(path, format, counts), 1):
        rows = rows_of_words(nodes)
        if not rows:
            continue
        if "newdoc" in marks:
            origin = f"{plain_name(path)}, document {marks['newdoc'] or number}"
        words = tuple(row.word for row in rows)
        heads, relations = read_tree(path, rows, format)
        source = f"{origin}, sentence {marks.get('sent_id', number)}"
        tags: tuple[str | None, ...] = ()
        if format == "conllu":
            tags = tuple(None if row.cells[3] == "_" else row.cells[3] for row in rows)
        spaces = spaces_before(nodes) if has_spaces else ()
        yield Sentence(words, heads, relations, "", source, tags if any(tags) else (), spaces)
    if not number:
        raise CorpusError(path, f"has no sentence; expected {EXPECTED['treebank']}")


def rows_of_words(nodes: Sequence[Row]) -> list[Row]:
    """Leave out what is no word: multiword tokens and empty nodes of CoNLL-U."""
    return [node for node in nodes if not node.mark]


def spaces_before(nodes: Sequence[Row]) -> tuple[bool, ...]:
    """Tell for each word of a sentence in CoNLL-U whether a space stands before it in the text.

    Inside a multiword token there is none if its words make up the token, as "do" and "n't" do.
    """
    rows = rows_of_words(nodes)
    is_followed = [NO_SPACE not in row.cells[9].split("|") for row in rows]
    for token in nodes:
        if token.mark == "-":
            first, last = map(int, token.cells[0].split("-"))
            has_other_form = token.word != "".join(row.word for row in rows[first - 1 : last])
            for index in range(first - 1, min(last, len(rows))):
                is_last = index == last - 1
                is_followed[index] = NO_SPACE not in token.cells[9] if is_last else has_other_form
    return (True, *is_followed)[: len(rows)]


def read_blocks(
    path: Path, format: Format, counts: Counter[str]
) -> Iterator[tuple[dict[str, str], list[Row]]]:
    """Yield the rows of each sentence, with the values of the marks before it by their labels."""
    n_columns, word_column, expected = _COLUMNS[format]
    marks: dict[str, str] = {}
    rows: list[Row] = []
    for line, text in chain(lines(path), [(0, "")]):
        is_comment = text[:1] == "#" and format != "plain"  # in the plain format "#" is a word
        if is_comment or not text.strip():
            if rows:
                _check_words(path, rows_of_words(rows), word_column)
                yield marks, rows
                marks = {}
                rows = []
            mark = _MARK.match(text)
            if mark:
                marks[mark[1]] = mark[2].strip()
            continue
        no_word = _NO_WORD.match(text) if format in ("conllu", "conllx") else None
        cells = text.split("\t") if "\t" in text else re.findall("[^ ]+", text)
        if len(cells) not in n_columns:
            raise CorpusError(path, f"expected {expected}, found {len(cells)} columns", line)
        word = clean_word(cells[word_column], Counter() if no_word else counts)
        rows.append(Row(line, word, cells, no_word[1] if no_word else ""))


def _check_words(path: Path, rows: Sequence[Row], word_column: int) -> None:
    """Refuse a sentence whose words the corpus leaves out; a single "_" can be a word."""
    forms = {row.cells[word_column] for row in rows}
    if forms <= {"_", "[WORD]"} and (len(rows) > 1 or "[WORD]" in forms):
        problem = "the words of this corpus are left out; put them in as its README says"
        raise CorpusError(path, problem, rows[0].line)


def read_tree(
    path: Path, rows: Sequence[Row], format: Format
) -> tuple[tuple[int, ...], tuple[str, ...]]:
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
        if not (re.fullmatch("[0-9]{1,9}", head) and int(head) <= len(rows) and relation):
            problem = f"{quoted(row.word)} has the head {quoted(head)}, relation {quoted(relation)}"
            expected = f"expected a whole number (0: root, at most {len(rows)}) and a relation"
            raise CorpusError(path, f"{problem}; {expected}", row.line)
        heads.append(int(head))
        relations.append(relation)
    if format == "conllu" and heads.count(0) > 1:
        row = rows[heads.index(0, heads.index(0) + 1)]
        problem = f"a second root, {quoted(row.word)}; if trees have several, name the file .conllx"
        raise CorpusError(path, problem, row.line)
    ancestors = np.array([0, *heads])
    for _ in range(len(heads).bit_length()):
        ancestors = ancestors[ancestors]  # twice as many steps up; all reach 0 in a tree
    if ancestors.any():
        row = rows[np.flatnonzero(ancestors)[0] - 1]
        problem = f"the heads of {quoted(row.word)} form a circle; lead them to a word with head 0"
        raise CorpusError(path, problem, row.line)
    return tuple(heads), tuple(relations)
