"""Dependency trees from CoNLL-U, CoNLL-X and the paper repository's plain format.

Coreference in columns: CoNLL-2012 and the two files of OntoGUM.

All three write mentions as brackets on the first and last word: ``(7`` opens a mention of chain
7, ``7)`` closes it, ``(7)`` is a mention of one word.  Mentions of different chains may cross.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from helpers.data import text_files
from helpers.data.records import AnnotatedText, Span
from helpers.data.text_files import lines, quoted
from helpers.errors import CorpusError, InputError

Format = Literal["conllu", "conllx", "plain"]

COLUMNS = {"conllu": (10,), "conllx": (8, 10)}
FORM, HEAD, RELATION = 1, 6, 7  # columns that CoNLL-U and CoNLL-X share
NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")  # multi-word range, empty node
PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
EXPECTED = "expected CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'"


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


class _Row(NamedTuple):
    line: int
    word: str
    head: int
    relation: str


def detect_format(path: Path) -> Format:
    """Tell a treebank's format from its suffix and its first line that is not blank.

    Raises:
        CorpusError: the file is empty, or its first line fits no format.
    """
    suffixes = {suffix.lower() for suffix in path.suffixes}
    for line, text in lines(path):
        if not text.strip():
            continue
        cells = _cells(text)
        if PLAIN_LINE.fullmatch(text.strip(" \t")):
            return "plain"
        if ".conllu" in suffixes or text.startswith("#") or NOT_A_WORD.fullmatch(cells[0]):
            return "conllu"
        if ".conllx" in suffixes or len(cells) in COLUMNS["conllx"]:
            return "conllx"
        raise CorpusError(path, f"unknown format; {EXPECTED}, or name one with format=", line=line)
    raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_trees(path: Path, format: Format | Literal["auto"] = "auto") -> Iterator[Tree]:
    """Yield the trees of a treebank file in order, one sentence in memory at a time.

    Multi-word ranges and empty nodes of CoNLL-U are skipped.  A tree of CoNLL-U has exactly one
    root; the other formats may have several, since converted treebanks do.  Relation names stay
    as they are, subtypes included.

    Raises:
        CorpusError: with file and line, for a file or a tree that breaks the format.
        InputError: an unknown format name.
    """
    if format == "auto":
        format = detect_format(path)
    if format not in get_args(Format):
        raise InputError(
            f"unknown treebank format {format!r}; one of {', '.join(get_args(Format))}"
        )
    document, ordinal = -1, 0
    for comments, rows in _blocks(path, format):
        keys = [comment.lstrip("#").strip() for comment in comments]
        document += any(re.match(r"newdoc\b", key) is not None for key in keys)
        if not rows:
            continue
        ordinal += 1
        _check_tree(path, rows, single_root=format == "conllu")
        names = [key.partition("=")[2].strip() for key in keys if re.match(r"sent_id\s*=", key)]
        yield Tree(
            tuple(row.word for row in rows),
            tuple(row.head for row in rows),
            tuple(row.relation for row in rows),
            names[0] if names else str(ordinal),
            max(document, 0),
        )
    if not ordinal:
        raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def _blocks(path: Path, format: Format) -> Iterator[tuple[list[str], list[_Row]]]:
    """Yield the comments and rows between blank lines."""
    comments: list[str] = []
    rows: list[_Row] = []
    for line, text in lines(path):
        if not text.strip():
            yield comments, rows
            comments, rows = [], []
        elif format == "plain":
            rows.append(_plain_row(path, line, text))
        elif text.startswith("#"):
            comments.append(text)
        else:
            row = _conll_row(path, line, text, format, expected_id=len(rows) + 1)
            if row is not None:
                rows.append(row)
    yield comments, rows


def _cells(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else text.split()


def _plain_row(path: Path, line: int, text: str) -> _Row:
    cells = re.split(r"[ \t]+", text.strip(" \t"))
    head, dash, relation = cells[-1].partition("-")
    if len(cells) != 2 or not dash or not relation:
        raise CorpusError(path, f"expected 'word head-relation', found {quoted(text)}", line=line)
    return _Row(line, cells[0], head_number(path, line, head), relation)


def _conll_row(path: Path, line: int, text: str, format: Format, expected_id: int) -> _Row | None:
    cells = _cells(text)
    if len(cells) not in COLUMNS[format]:
        wanted = " or ".join(map(str, COLUMNS[format]))
        raise CorpusError(path, f"expected {wanted} columns, found {len(cells)}", line=line)
    if format == "conllu" and NOT_A_WORD.fullmatch(cells[0]):
        return None
    if cells[0] != str(expected_id):
        raise CorpusError(
            path, f"expected word ID {expected_id}, found {quoted(cells[0])}", line=line
        )
    if not cells[FORM].strip() or not cells[RELATION].strip():
        raise CorpusError(path, "the word or its relation is empty", line=line)
    return _Row(line, cells[FORM], head_number(path, line, cells[HEAD]), cells[RELATION].strip())


def head_number(path: Path, line: int, cell: str) -> int:
    """Return the number in a head column; :class:`CorpusError` where it holds anything else."""
    # int() alone would take "1_0", "٣" and " 3", and raise its own error over 4,300 digits.
    if not re.fullmatch(r"[0-9]{1,9}", cell):
        raise CorpusError(
            path, f"the head is {quoted(cell)}; expected a whole number (0: root)", line=line
        )
    return int(cell)


def _check_tree(path: Path, rows: Sequence[_Row], *, single_root: bool) -> None:
    for row in rows:
        if row.head > len(rows):
            raise CorpusError(
                path,
                f"the head of {quoted(row.word)} is {row.head}, but the sentence has "
                f"{len(rows)} words",
                line=row.line,
            )
    roots = [row for row in rows if row.head == 0]
    if not roots:
        raise CorpusError(
            path, "the sentence that starts here has no root (a word with head 0)", rows[0].line
        )
    if single_root and len(roots) > 1:
        raise CorpusError(
            path,
            f"a second root, {quoted(roots[1].word)}; a tree of CoNLL-U has one",
            line=roots[1].line,
        )
    on_cycle = find_cycle([row.head for row in rows])
    if on_cycle is not None:
        row = rows[on_cycle]
        raise CorpusError(
            path,
            f"the heads of {quoted(row.word)} run in a cycle and never reach the root",
            line=row.line,
        )


def find_cycle(heads: Sequence[int]) -> int | None:
    """Return the index of a word on a cycle, or None for a forest; heads as in `Tree`."""
    reaches_root = [False] * len(heads)
    for start in range(len(heads)):
        path: set[int] = set()
        word = start
        while word >= 0 and not reaches_root[word]:
            if word in path:
                return word
            path.add(word)
            word = heads[word] - 1
        for visited in path:
            reaches_root[visited] = True
    return None


# Nine digits at most: no chain has more, int() fails over 4,300, and a search for the bracket
# after a million digits would start again at each of them.
_BRACKET = re.compile(
    r"\((?P<single>[0-9]{1,9})\)|\((?P<open>[0-9]{1,9})(?![0-9])|(?P<close>[0-9]{1,9})\)"
)
_BEGIN_2012 = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>\d+))?\s*")
_BEGIN_ONTOGUM = re.compile(r"#\s*begin document\b.*")
CONLL_2012_COLUMNS = 12  # at least: predicate arguments add columns before the last one

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


def read_conll_2012(path: Path) -> Iterator[AnnotatedText]:
    """Yield every part of every document of a CoNLL-2012 file (Pradhan et al. 2012).

    Word, tag and coreference are columns 4, 5 and the last; a blank line ends a sentence.
    Raises :class:`CorpusError` with the line.
    """
    begin: re.Match[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    starts: list[bool] = []
    new_sentence, begun_at = True, 0
    for number, line in text_files.lines(path):
        if line.startswith("#begin document"):
            if begin:
                raise CorpusError(path, f"no '#end document' since line {begun_at}", line=number)
            begin, begun_at = _BEGIN_2012.fullmatch(line), number
            if not begin:
                raise CorpusError(path, "expected '#begin document (name); part 000'", line=number)
            rows, lines, starts, new_sentence = [], [], [], True
        elif line.startswith("#end document"):
            if not begin:
                raise CorpusError(path, "'#end document' without a beginning", line=number)
            spans = _spans(path, [row[-1] for row in rows], lines)
            part = f" part {begin['part']}" if begin["part"] else ""
            tags = tuple(PENN_TO_UNIVERSAL.get(row[4]) for row in rows)
            words = tuple(row[3] for row in rows)
            name = begin["name"]
            yield AnnotatedText(
                name, name + part, words, spans, tags=tags, sentence_starts=tuple(starts)
            )
            begin = None
        elif not line.strip():
            new_sentence = True
        elif not line.startswith("#"):
            if not begin:
                raise CorpusError(path, "a word outside of '#begin document'", line=number)
            rows.append(_conll_2012_row(path, line, number))
            lines.append(number)
            starts.append(new_sentence)
            new_sentence = False
    if begin:
        raise CorpusError(path, "the document has no '#end document'; cut off?", line=begun_at)


def _conll_2012_row(path: Path, line: str, number: int) -> list[str]:
    row = line.split()
    if len(row) < CONLL_2012_COLUMNS:
        found = f"{len(row)} columns, expected at least {CONLL_2012_COLUMNS} (CoNLL-2012)"
        raise CorpusError(path, found, line=number)
    if row[3] == "[WORD]":
        advice = "a skeleton without words; run the shared task's skeleton2conll on it first"
        raise CorpusError(path, advice, line=number)
    return row


def read_ontogum_conllu(path: Path) -> Iterator[AnnotatedText]:
    """Yield the documents of a CoNLL-U file with ``Entity=`` in MISC (OntoGUM).

    Multi-word ranges and empty nodes are skipped.  Raises :class:`CorpusError` with the line:
    not ten columns, word numbers out of order, a head that is not in the sentence, brackets.
    """
    name, found = path.stem, False
    block = _ConlluBlock(path)
    for number, line in text_files.lines(path):
        if line.startswith("# newdoc"):
            if block.words:
                found = True
                yield block.text(name)
            name, block = line.partition("=")[2].strip() or path.stem, _ConlluBlock(path)
        elif not line.strip():
            block.end_sentence()
        elif not line.startswith("#"):
            block.add(line, number)
    if block.words or not found:
        yield block.text(name)


class _ConlluBlock:
    """The rows of one document, sentence by sentence."""

    def __init__(self, path: Path) -> None:
        self.path, self.first = path, 0  # first: index of the sentence's first word
        self.words: list[str] = []
        self.tags: list[str] = []
        self.heads: list[int] = []
        self.starts: list[bool] = []
        self.cells: list[str] = []
        self.lines: list[int] = []

    def add(self, line: str, number: int) -> None:
        row = line.split("\t")
        if len(row) != 10:
            raise CorpusError(self.path, f"{len(row)} columns, expected 10 (CoNLL-U)", line=number)
        if NOT_A_WORD.fullmatch(row[0]):
            return
        expected = len(self.words) - self.first + 1
        if row[0] != str(expected):
            found = f"word {text_files.quoted(row[0])}, expected {expected}"
            raise CorpusError(self.path, found, line=number)
        if not row[1].strip():
            raise CorpusError(self.path, "the word is empty", line=number)
        head = head_number(self.path, number, row[6])
        misc = dict(item.partition("=")[::2] for item in row[9].split("|"))
        self.words.append(row[1])
        self.tags.append(row[3])
        self.heads.append(head + self.first - 1 if head else -1)
        self.starts.append(expected == 1)
        self.cells.append(misc.get("Entity", "_"))
        self.lines.append(number)

    def end_sentence(self) -> None:
        for word in range(self.first, len(self.words)):
            if self.heads[word] >= len(self.words):
                head = self.heads[word] - self.first + 1
                message = f"head {head} is outside the sentence"
                raise CorpusError(self.path, message, line=self.lines[word])
        heads = [head - self.first + 1 if head >= 0 else 0 for head in self.heads[self.first :]]
        if (word := find_cycle(heads)) is not None:
            message = "the heads from here run in a cycle and never reach the root"
            raise CorpusError(self.path, message, line=self.lines[self.first + word])
        self.first = len(self.words)

    def text(self, name: str) -> AnnotatedText:
        self.end_sentence()
        return AnnotatedText(
            name,
            name,
            tuple(self.words),
            _spans(self.path, self.cells, self.lines),
            tags=tuple(self.tags),
            heads=tuple(self.heads),
            sentence_starts=tuple(self.starts),
        )


def read_ontogum_conll(path: Path) -> Iterator[AnnotatedText]:
    """Yield the documents of a three-column OntoGUM file: index, word, coreference.

    It has neither tags nor sentences nor a document name (the file's is taken).  Raises
    :class:`CorpusError` with the line.
    """
    documents = 0
    words: list[str] = []
    cells: list[str] = []
    lines: list[int] = []
    for number, line in text_files.lines(path):
        if line.startswith("# end document"):
            documents += 1
            name = path.stem if documents == 1 else f"{path.stem} {documents}"
            yield AnnotatedText(name, name, tuple(words), _spans(path, cells, lines))
            words, cells, lines = [], [], []
        elif line.strip() and not _BEGIN_ONTOGUM.fullmatch(line):
            row = line.split("\t")
            if len(row) != 3 or row[0] != str(len(words)) or not row[1].strip():
                expected = f"expected '{len(words)}<TAB>word<TAB>coreference' (OntoGUM)"
                raise CorpusError(path, expected, line=number)
            words.append(row[1])
            cells.append(row[2])
            lines.append(number)
    if words or not documents:
        message = "the last document has no '# end document'; cut off?"
        raise CorpusError(path, message, line=lines[0] if lines else 1)


def _spans(path: Path, cells: list[str], lines: list[int]) -> tuple[Span, ...]:
    """Return the mentions of one document's bracket column, in order."""
    spans: list[Span] = []
    opened: dict[int, list[int]] = defaultdict(list)  # chain: first words, innermost last
    for word, (cell, line) in enumerate(zip(cells, lines, strict=True)):
        if cell in ("-", "_"):
            continue
        if _BRACKET.sub("", cell).replace("|", ""):
            advice = "expected brackets with chain numbers such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {text_files.quoted(cell)}; {advice}", line=line)
        for bracket in _BRACKET.finditer(cell):
            if bracket["single"]:
                spans.append(Span(word, word + 1, int(bracket["single"])))
            elif bracket["open"]:
                opened[int(bracket["open"])].append(word)
            else:
                chain = int(bracket["close"])
                if not opened[chain]:
                    raise CorpusError(path, f"{chain}) closes no mention", line=line)
                spans.append(Span(opened[chain].pop(), word + 1, chain))
    for chain, starts in opened.items():
        if starts:
            raise CorpusError(path, f"({chain} is never closed", line=lines[starts[0]])
    return tuple(sorted(spans, key=lambda span: (span.start, span.end)))
