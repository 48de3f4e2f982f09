"""Readers of column formats, which have one word per line: rows of words, and dependency trees.

The formats are CoNLL-U, CoNLL-X, the plain format of the paper's repository (``word
head-relation``) and CoNLL-2012, whose coreference `helpers.data.coreference_files` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from helpers.data.other_formats import EXPECTED, refuse_other_formats
from helpers.data.records import Sentence
from helpers.data.text_files import lines, plain_name, quoted, word
from helpers.errors import CorpusError

Format = Literal["conllu", "conllx", "plain", "conll2012"]


class _Columns(NamedTuple):
    """The columns of a format: how many it allows, which has the word (from 0), and a name."""

    counts: Container[int]
    word: int
    expected: str


_COLUMNS: dict[Format, _Columns] = {
    "conllu": _Columns((10,), 1, "10 columns"),
    "conllx": _Columns((8, 10), 1, EXPECTED["treebank"]),
    "plain": _Columns((2,), 0, "'word head-relation'"),
    # Predicate arguments add columns.
    "conll2012": _Columns(range(12, 1 << 20), 3, "at least 12 columns (CoNLL-2012)"),
}
# The beginning of a line in CoNLL-U that is a multi-word range, or an empty node.
_RANGE = re.compile(r"\d+-\d+\s")
_EMPTY_NODE = re.compile(r"\d+\.\d+\s")
_NUMBER = re.compile(r"[0-9]{1,9}")
# The label of a comment that names something, and the value or name after it.
_MARK = re.compile(
    r"#\s*(sent_id(?=\s*=)|global\.Entity(?=\s*=)|newdoc\b|begin document\b)[^=(]*=?\s*(.*)"
)


class Row(NamedTuple):
    """A line with a word: its number in the file, the word as it is and cleaned, all columns."""

    line: int
    form: str
    word: str
    cells: list[str]

    @property
    def is_empty_node(self) -> bool:
        """Whether this row is an empty node of CoNLL-U; the text has no word for it."""
        return "." in self.cells[0]


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
    origin = plain_name(path)
    number = 0
    for number, (marks, rows) in enumerate(read_blocks(path, format, counts), 1):
        if "newdoc" in marks:
            origin = f"{plain_name(path)}, document {marks['newdoc'] or number}"
        heads, relations = read_tree(path, rows, format)
        yield Sentence(
            words=tuple(row.word for row in rows),
            heads=heads,
            relations=relations,
            split="",
            source=f"{origin}, sentence {marks.get('sent_id', number)}",
            tags=_universal_tags(rows) if format == "conllu" else (),
        )
    if not number:
        raise CorpusError(path, f"has no sentence; expected {EXPECTED['treebank']}")


def read_blocks(
    path: Path, format: Format, counts: Counter[str], *, keep_empty_nodes: bool = False
) -> Iterator[tuple[dict[str, str], list[Row]]]:
    """Yield the rows of each sentence, with the values of the marks before it by their labels."""
    columns = _COLUMNS[format]
    marks: dict[str, str] = {}
    rows: list[Row] = []
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
        if format in ("conllu", "conllx"):
            is_empty_node = _EMPTY_NODE.match(text)
            if _RANGE.match(text) or (is_empty_node and not keep_empty_nodes):
                continue
        cells = text.split("\t") if "\t" in text else re.findall("[^ ]+", text)
        if len(cells) not in columns.counts:
            problem = f"expected {columns.expected}, found {len(cells)} columns"
            raise CorpusError(path, problem, line)
        form = cells[columns.word]
        rows.append(Row(line, form, word(form, counts), cells))


def _check_words(path: Path, rows: Sequence[Row]) -> None:
    """Refuse a sentence whose words the corpus leaves out; a single "_" can be a word."""
    forms = {row.form for row in rows}
    if forms <= {"_", "[WORD]"} and (len(rows) > 1 or forms == {"[WORD]"}):
        problem = (
            f"the words of this corpus are left out (each is {quoted(rows[0].form)}); put them in "
            "as its README says (CoNLL-2012: skeleton2conll), or use another corpus"
        )
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
        if not (_NUMBER.fullmatch(head) and int(head) <= len(rows) and relation):
            problem = (
                f"{quoted(row.word)} has the head {quoted(head)} and relation {quoted(relation)}; "
                f"expected a whole number (0: root, at most {len(rows)}) and a relation"
            )
            raise CorpusError(path, problem, row.line)
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


def _universal_tags(rows: Sequence[Row]) -> tuple[str | None, ...]:
    """Read the universal tags of a sentence's words in CoNLL-U; empty if it has none."""
    tags = tuple(None if row.cells[3] == "_" else row.cells[3] for row in rows)
    return tags if any(tags) else ()
