"""Column formats, a word a line: dependency trees and coreference.

CoNLL-U (with ``Entity=`` in MISC: OntoGUM), CoNLL-X, the plain format of the paper's
repository (``word head-relation``), CoNLL-2012 and OntoGUM's three columns.  One parser reads a
line of any of them, and `text_files.word` says what a word is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from helpers.data.mention_column import column_spans
from helpers.data.records import AnnotatedText
from helpers.data.text_files import lines, quoted, word
from helpers.errors import CorpusError

TreeFormat = Literal["conllu", "conllx", "plain"]
DocumentFormat = Literal["conllu", "conll2012", "ontogum"]


class _Layout(NamedTuple):
    """Where a format has what (columns from 0, None where it has none)."""

    columns: range
    expected: str
    word: int
    index: int | None = None  # what the numbers of words start with; they are in column 0
    tag: int | None = None
    tree: bool = False  # head and relation are columns 6 and 7
    marks: tuple[str, ...] = ()  # comments that start or end a document


_LAYOUTS = {
    "conllu": _Layout(range(10, 11), "10 columns", 1, 1, 3, True, ("newdoc",)),
    "conllx": _Layout(range(8, 11, 2), "8 or 10 columns", 1, 1, 3, True),
    "plain": _Layout(range(2, 3), "'word head-relation'", 0),
    # Predicate arguments add columns before the last one.
    "conll2012": _Layout(
        range(12, 1 << 20), "at least 12 columns", 3, None, 4, marks=("begin", "end")
    ),
    "ontogum": _Layout(
        range(3, 4), "'index<TAB>word<TAB>coreference'", 1, 0, marks=("begin", "end")
    ),
}
SKELETON = "a skeleton without words; run the shared task's skeleton2conll on it first"
EXPECTED = "expected CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'"
_NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")  # of CoNLL-U: a multi-word range, an empty node
# int() alone would take "1_0", "٣" and " 3", and raise its own error over 4,300 digits.
_NUMBER = re.compile(r"[0-9]{1,9}")
_COMMENT = re.compile(r"#+\s*(sent_id(?=\s*=)|newdoc\b|(?:begin|end)(?= document\b))")
_PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
_NAME_2012 = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>\d+))?\s*")

# Penn Treebank tags (Marcus et al. 1993) as universal tags; the rest is left to the tagger.
PENN_TO_UNIVERSAL = {
    **dict.fromkeys(("PRP", "PRP$", "WP", "WP$", "EX"), "PRON"),
    **dict.fromkeys(("NNP", "NNPS"), "PROPN"),
    **dict.fromkeys(("NN", "NNS"), "NOUN"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "VERB"),
    **dict.fromkeys(("JJ", "JJR", "JJS", "AFX"), "ADJ"),
    **dict.fromkeys(("RB", "RBR", "RBS", "WRB"), "ADV"),
    **dict.fromkeys(("DT", "PDT", "WDT"), "DET"),
    **dict.fromkeys(("TO", "RP", "POS"), "PART"),
    **dict.fromkeys((".", ",", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"), "PUNCT"),
    **{"IN": "ADP", "CC": "CCONJ", "CD": "NUM", "MD": "AUX", "UH": "INTJ", "$": "SYM"},
}


class Tree(NamedTuple):
    """One sentence of a file; heads as in `records.Sentence`.

    ``document`` numbers the file's documents from 0 (`# newdoc`); ``name`` is the sentence's
    ``sent_id``, or its number in the file.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    name: str
    document: int


# A line's number, word, tag, head (1: the sentence's first word, 0: root), relation, and the last
# column as it is.  A tuple with names would take longer to make than the line to split.
_Row = tuple[int, str, str | None, int, str, str]


class _Comment(NamedTuple):
    line: int
    kind: str  # sent_id, newdoc, begin or end; others are not kept
    text: str

    @property
    def value(self) -> str:
        return self.text.partition("=")[2].strip()


class _Block(NamedTuple):
    """The lines up to a blank one, or to the mark of a document."""

    comments: list[_Comment]
    rows: list[_Row]


def detect_format(path: Path) -> TreeFormat:
    """Tell a treebank's format from its suffix and its first line that is not blank.

    Raises:
        CorpusError: the file is empty, or its first line fits no format.
    """
    suffixes = {suffix.lower() for suffix in path.suffixes}
    for line, text in lines(path):
        if not text.strip():
            continue
        cells = _cells(text, "conllu")
        if _PLAIN_LINE.fullmatch(text.strip(" \t")):
            return "plain"
        if ".conllu" in suffixes or text.startswith("#") or _NOT_A_WORD.fullmatch(cells[0]):
            return "conllu"
        if ".conllx" in suffixes or len(cells) in _LAYOUTS["conllx"].columns:
            return "conllx"
        raise CorpusError(path, f"unknown format; {EXPECTED}", line=line)
    raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_trees(
    path: Path, format: TreeFormat | None = None, counts: Counter[str] | None = None
) -> Iterator[Tree]:
    """Yield the trees of a treebank file in order, one sentence in memory at a time.

    Multi-word ranges and empty nodes of CoNLL-U are skipped.  A tree of CoNLL-U has exactly one
    root; the other formats may have several, since converted treebanks do.  Relation names stay
    as they are, subtypes included.  ``counts`` receives what was changed in the words.

    Raises:
        CorpusError: with file and line, for a file or a tree that breaks the format.
    """
    format = format or detect_format(path)
    document, ordinal = -1, 0
    for comments, rows in _blocks(path, format, Counter() if counts is None else counts):
        kinds = [comment.kind for comment in comments]
        document += "newdoc" in kinds
        if not rows:
            continue
        ordinal += 1
        _, words, _, heads, relations, _ = zip(*rows, strict=True)
        _check_tree(path, rows, heads, single_root=format == "conllu")
        name = comments[kinds.index("sent_id")].value if "sent_id" in kinds else str(ordinal)
        yield Tree(words, heads, relations, name, max(document, 0))
    if not ordinal:
        raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_documents(
    path: Path, format: DocumentFormat, counts: Counter[str] | None = None
) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file, every part of one (Pradhan et al. 2012) apart.

    CoNLL-2012 has words, tags and sentences, OntoGUM's CoNLL-U trees too, and OntoGUM's three
    columns words alone (and no name: the file's is taken).  ``counts`` as in `read_trees`.

    Raises:
        CorpusError: with the line: a row, a tree, brackets or marks of documents that break the
            format.
    """
    name = source = path.stem
    begun, ended = None, 0  # line of the beginning, documents that have ended
    sentences: list[list[_Row]] = []
    for comments, rows in _blocks(path, format, Counter() if counts is None else counts):
        for mark in (comment for comment in comments if comment.kind in _LAYOUTS[format].marks):
            if mark.kind == "newdoc":
                if sentences:
                    yield _annotated_text(path, format, name, source, sentences)
                name, sentences = mark.value or path.stem, []
                source = name
            elif mark.kind == "begin":
                if begun:
                    message = f"no '#end document' since line {begun}"
                    raise CorpusError(path, message, line=mark.line)
                name, source = _document_name(path, mark, format, ended)
                begun = mark.line
            else:
                if not begun:
                    raise CorpusError(path, "'#end document' without a beginning", line=mark.line)
                yield _annotated_text(path, format, name, source, sentences)
                begun, ended, sentences = None, ended + 1, []
        if rows and format != "conllu" and not begun:
            raise CorpusError(path, "a word outside of '#begin document'", line=rows[0][0])
        if rows:
            sentences.append(rows)
    if begun:
        raise CorpusError(path, "the document has no '#end document'; cut off?", line=begun)
    if sentences:
        yield _annotated_text(path, format, name, source, sentences)


def _document_name(path: Path, mark: _Comment, format: str, ended: int) -> tuple[str, str]:
    """Return a document's name, and the name with its part."""
    if format == "ontogum":
        name = f"{path.stem} {ended + 1}" if ended else path.stem
        return name, name
    begin = _NAME_2012.fullmatch(mark.text)
    if not begin:
        raise CorpusError(path, "expected '#begin document (name); part 000'", line=mark.line)
    return begin["name"], begin["name"] + (f" part {begin['part']}" if begin["part"] else "")


def _annotated_text(
    path: Path, format: DocumentFormat, name: str, source: str, sentences: list[list[_Row]]
) -> AnnotatedText:
    rows = [row for sentence in sentences for row in sentence]
    lines, words, tags, _, _, cells = zip(*rows, strict=True) if rows else ((),) * 6
    heads = starts = None
    if format == "conllu":
        cells = [dict(item.partition("=")[::2] for item in c.split("|")) for c in cells]
        cells = [misc.get("Entity", "_") for misc in cells]
        heads = []
        for sentence in sentences:
            own, first = [row[3] for row in sentence], len(heads)
            _check_tree(path, sentence, own)
            heads.extend(first + head - 1 if head else -1 for head in own)
        heads = tuple(heads)
    if format != "ontogum":
        starts = tuple(row is sentence[0] for sentence in sentences for row in sentence)
    spans = column_spans(path, lines, cells)
    tags = None if format == "ontogum" else tags
    return AnnotatedText(name, source, words, spans, tags, heads, starts)


def _blocks(path: Path, format: str, counts: Counter[str]) -> Iterator[_Block]:
    """Yield the comments and rows between blank lines; a mark of a document ends a block too."""
    layout = _LAYOUTS[format]
    parse = _row_parser(path, format, counts)
    block, index = _Block([], []), 0
    for line, text in lines(path):
        comment = text[:1] == "#" and format != "plain"  # there "#" is a word
        if not comment and text and not text.isspace():
            if row := parse(line, text, index):
                block.rows.append(row)
                index += 1
            continue
        kind = match[1] if comment and (match := _COMMENT.match(text)) else ""
        if not comment or kind in layout.marks:
            if block.rows or block.comments:
                yield block
                block = _Block([], [])
            if comment or format != "ontogum":  # its numbers run on through a document
                index = 0
        if kind:
            block.comments.append(_Comment(line, kind, text))
    yield block


def _cells(text: str, format: str) -> list[str]:
    if "\t" in text and format in ("conllu", "conllx", "ontogum"):
        return text.split("\t")
    return list(filter(None, text.replace("\t", " ").split(" ")))


def _row_parser(
    path: Path, format: str, counts: Counter[str]
) -> Callable[[int, str, int], _Row | None]:
    """Return what reads a line (number, text, words before it); it gives None for no word."""
    columns, expected, word_column, first, tag_column, tree, _ = _LAYOUTS[format]

    def wrong(line: int, message: str) -> CorpusError:
        return CorpusError(path, message, line=line)

    def parse(line: int, text: str, index: int) -> _Row | None:
        cells = _cells(text, format)
        if len(cells) not in columns:
            raise wrong(line, f"expected {expected}, found {len(cells)} columns")
        if first is not None and cells[0] != str(index + first):
            if format == "conllu" and _NOT_A_WORD.fullmatch(cells[0]):
                return None
            raise wrong(line, f"expected word {index + first}, found {quoted(cells[0])}")
        tag = None if tag_column is None else cells[tag_column]
        head, relation = 0, "-"
        if tree or format == "plain":
            if tree:
                number, relation = cells[6], cells[7].strip()
            else:
                number, _, relation = cells[1].partition("-")
            if not relation:
                raise wrong(line, f"no relation in {quoted(text)}")
            if not _NUMBER.fullmatch(number):
                raise wrong(
                    line, f"the head is {quoted(number)}; expected a whole number (0: root)"
                )
            head = int(number)
        elif format == "conll2012":
            if cells[3] == "[WORD]":
                raise wrong(line, SKELETON)
            tag = PENN_TO_UNIVERSAL.get(tag)
        form = cells[word_column]
        form = form if form.isalnum() else word(form, counts)
        return line, form, tag, head, relation, cells[-1]

    return parse


def _check_tree(
    path: Path, rows: Sequence[_Row], heads: Sequence[int], *, single_root: bool = False
) -> None:
    place, problem = None, ""
    if max(heads) > len(heads):
        place = next(place for place, head in enumerate(heads) if head > len(heads))
        problem = f"the head of {{}} is {heads[place]}, but the sentence has {len(heads)} words"
    elif 0 not in heads:
        place, problem = 0, "the sentence that starts here has no root (a word with head 0)"
    elif single_root and heads.count(0) > 1:
        place = heads.index(0, heads.index(0) + 1)
        problem = "a second root, {}; a tree of CoNLL-U has one"
    elif (place := _find_cycle(heads)) is not None:
        problem = "the heads of {} run in a cycle and never reach the root"
    if place is not None:
        line, form, *_ = rows[place]
        raise CorpusError(path, problem.format(quoted(form)), line=line)


def _find_cycle(heads: Sequence[int]) -> int | None:
    """Return the index of a word on a cycle, or None for a forest; heads as in `Tree`."""
    walks = [0] * len(heads)  # the walk to the root that first came through a word, from 1
    for walk in range(1, len(heads) + 1):
        place = walk - 1
        while place >= 0 and not walks[place]:
            walks[place] = walk
            place = heads[place] - 1
        if place >= 0 and walks[place] == walk:
            return place
    return None
