"""Readers of column formats, which have one word per line: dependency trees and coreference.

The formats are CoNLL-U (with ``Entity=`` in MISC: CorefUD, GUM, OntoGUM), CoNLL-X, the plain format
of the paper's repository (``word head-relation``) and CoNLL-2012.  `_blocks` reads the lines of
all.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

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
# The beginning of a line in CoNLL-U that is a multi-word range, or an empty node.
_RANGE = re.compile(r"\d+-\d+\s")
_EMPTY_NODE = re.compile(r"\d+\.\d+\s")
# A cell of a line without tabs.
_CELL = re.compile("[^ ]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
# The label of a comment that names something, and the value or name after it.
_MARK = re.compile(
    r"#\s*(sent_id(?=\s*=)|global\.Entity(?=\s*=)|newdoc\b|begin document\b)[^=(]*=?\s*(.*)"
)
_ENTITY = re.compile(r"(?:^|\|)Entity=([^|]*)")
# A mention begins with a bracket, the name of its chain and, in CoNLL-U, a part of a mention with
# gaps ("[1/2]") and attributes; it ends with the name, the part and a bracket.
_BRACKETS = {
    "conllu": re.compile(
        r"\((?P<opened>[^-()|\[\]]+(?:\[\d+/\d+\])?)(?P<attributes>(?:-[^()|]*)?)(?P<single>\)?)"
        r"|(?P<closed>[^-()|\[\]]+(?:\[\d+/\d+\])?)\)"
    ),
    "conll2012": re.compile(
        r"\((?P<opened>[0-9]{1,9})(?P<attributes>)(?P<single>\)?)|(?P<closed>[0-9]{1,9})\)"
    ),
}
_CHAIN_NUMBER = re.compile(r"e?([0-9]{1,9})")
# The first field of ``# global.Entity``: the name of the chain, in CorefUD and in GUM.
_CHAIN_FIELDS = ("eid", "GRP")


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

    @property
    def is_empty_node(self) -> bool:
        """Whether this row is an empty node of CoNLL-U; the text has no word for it."""
        return "." in self.cells[0]


class _Part(NamedTuple):
    """A mention, or a part of one with gaps: rows, name of the chain and part, attributes."""

    start: int
    end: int
    name: str
    attributes: str


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
        (Pradhan et al. 2012).  In CoNLL-U, ``Entity=`` is read as in CorefUD (Nedoluzhko et al.
        2022).  A mention keeps its words and loses its empty nodes, which are not in the text; one
        of empty nodes only is dropped.  Of a mention with gaps, the part is kept that has its head.
    counts : Counter
        Receives the number of words and mentions that were changed or dropped, by reason.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.
    """
    format = "conllu" if path.suffix == ".conllu" else "conll2012"
    document = ""
    fields: list[str] = []  # of Entity, the name of the chain first
    sentences: list[list[_Row]] = []
    for marks, rows in _blocks(path, format, counts, keep_empty_nodes=True):
        mark = marks.get("newdoc", marks.get("begin document"))
        if mark is not None:
            if sentences:
                yield _document(path, format, document, sentences, fields, counts)
                sentences = []
            document = mark
        if "global.Entity" in marks:
            fields = marks["global.Entity"].split("-")
            if fields[0] not in _CHAIN_FIELDS:
                problem = f"# global.Entity begins with {quoted(fields[0])}; expected eid or GRP"
                raise CorpusError(path, f"{problem}, as in CorefUD or GUM", rows[0].line)
        sentences.append(rows)
    if sentences:
        yield _document(path, format, document, sentences, fields, counts)


def _blocks(
    path: Path, format: str, counts: Counter[str], *, keep_empty_nodes: bool = False
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
        if format in ("conllu", "conllx"):
            is_empty_node = _EMPTY_NODE.match(text)
            if _RANGE.match(text) or (is_empty_node and not keep_empty_nodes):
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


def _document(
    path: Path,
    format: str,
    mark: str,
    sentences: Sequence[list[_Row]],
    fields: Sequence[str],
    counts: Counter[str],
) -> AnnotatedText:
    """Make a document of its sentences; ``fields`` are those of ``Entity`` in CoNLL-U.

    The trees of CoNLL-U give the heads of words; CoNLL-2012 has phrase structure instead.
    """
    name, _, part = mark.removeprefix("(").partition(");")  # (name); part 000
    name = name or path.stem
    nodes: list[_Row] = []  # words, and empty nodes between them
    rows: list[_Row] = []
    sentence_starts: list[bool] = []
    heads: list[int] = []  # their indices in the document, -1 for a root
    for sentence in sentences:
        words = [row for row in sentence if format != "conllu" or not row.is_empty_node]
        if format == "conllu":
            sentence_heads, _ = _tree(path, words, format)
            heads += [len(rows) + head - 1 if head else -1 for head in sentence_heads]
        sentence_starts += [row is words[0] for row in words]
        nodes += sentence
        rows += words
    if format == "conllu":
        brackets = ["".join(_ENTITY.findall(row.cells[9])) for row in nodes]
        tags = [row.cells[3] for row in rows]
        is_word = np.array([not row.is_empty_node for row in nodes])
    else:
        brackets = [row.cells[-1].strip("-_") for row in nodes]
        tags = [universal_tags().get(row.cells[4]) for row in rows]
        is_word = np.ones(len(nodes), dtype=bool)
    parts = _mention_parts(path, nodes, brackets, _BRACKETS[format])
    mentions = _whole_mentions(path, nodes, parts, fields, counts)
    return AnnotatedText(
        name=name,
        source=name + part,
        words=tuple(row.word for row in rows),
        spans=_word_spans(mentions, is_word, counts),
        tags=tuple(tags),
        heads=tuple(heads) or None,
        sentence_starts=tuple(sentence_starts),
    )


def _mention_parts(
    path: Path, nodes: Sequence[_Row], brackets: Sequence[str], pattern: re.Pattern[str]
) -> list[_Part]:
    """Read a document's mentions from the brackets of each node, in order; chains may cross."""
    parts: list[_Part] = []
    open_parts: dict[str, list[tuple[int, str]]] = defaultdict(list)  # the innermost one last
    for index, cell in enumerate(brackets):
        if pattern.sub("", cell).replace("|", ""):
            problem = "expected brackets with names of chains such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {problem}", nodes[index].line)
        for bracket in pattern.finditer(cell):
            name = bracket["opened"] or bracket["closed"]
            if bracket["opened"]:
                open_parts[name].append((index, bracket["attributes"]))
                if not bracket["single"]:
                    continue
            if not open_parts[name]:
                problem = f"{name}) closes no mention; remove it, or open the mention"
                raise CorpusError(path, problem, nodes[index].line)
            start, attributes = open_parts[name].pop()
            parts.append(_Part(start, index + 1, name, attributes))
    for name, starts in open_parts.items():
        if starts:
            problem = f"({name} is never closed in this document; close the mention"
            raise CorpusError(path, problem, nodes[starts[0][0]].line)
    return sorted(parts, key=itemgetter(0, 1))


def _whole_mentions(
    path: Path,
    nodes: Sequence[_Row],
    parts: Sequence[_Part],
    fields: Sequence[str],
    counts: Counter[str],
) -> Iterator[tuple[int, int, str]]:
    """Yield the nodes and the chain of each mention; one with gaps is the part with its head."""
    unfinished: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        chain_name, _, place = part.name.rstrip("]").partition("[")
        if not place:
            yield part.start, part.end, chain_name
            continue
        unfinished[chain_name].append(part)
        number, last = place.split("/")
        if number == last:
            counts["mentions with gaps, read as the part with their head"] += 1
            start, end = _part_with_head(unfinished.pop(chain_name), fields)
            yield start, end, chain_name
    for chain_name, rest in unfinished.items():
        problem = f"the last part of {rest[0].name} is missing; add it, or remove {chain_name}"
        raise CorpusError(path, problem, nodes[rest[0].start].line)


def _part_with_head(parts: Sequence[_Part], fields: Sequence[str]) -> tuple[int, int]:
    """Choose the part that has the head by the first part's attributes, or else the first part."""
    attributes = parts[0].attributes.split("-")
    place = fields.index("head") if "head" in fields else len(attributes)
    head = attributes[place].partition(",")[0] if place < len(attributes) else ""
    remaining = int(head) if _NUMBER.fullmatch(head) else 1  # nodes up to the head
    for part in parts:
        if remaining <= part.end - part.start:
            return part.start, part.end
        remaining -= part.end - part.start
    return parts[0].start, parts[0].end


def _word_spans(
    mentions: Iterable[tuple[int, int, str]],
    is_word: Bool[np.ndarray, " node"],
    counts: Counter[str],
) -> tuple[Span, ...]:
    """Count the words of mentions instead of nodes, and number their chains."""
    words_before = np.concatenate([[0], np.cumsum(is_word)]).tolist()
    named_spans = []
    for start_node, end_node, chain_name in mentions:
        start = words_before[start_node]
        end = words_before[end_node]
        if start == end:
            counts["mentions dropped: of empty nodes only"] += 1
        else:
            named_spans.append((start, end, chain_name))
    numbers = _chain_numbers([chain_name for *_, chain_name in named_spans])
    spans = [(start, end, numbers[chain_name]) for start, end, chain_name in named_spans]
    return tuple(sorted(spans, key=itemgetter(0, 1)))


def _chain_numbers(names: Iterable[str]) -> dict[str, int]:
    """Number chains: by the numbers in their names (3, e3) if these differ, else in order."""
    numbers: dict[str, int] = {}
    for name in dict.fromkeys(names):
        match = _CHAIN_NUMBER.fullmatch(name)
        number = int(match[1]) if match else None
        if number is None or number in numbers.values():
            return {name: index for index, name in enumerate(dict.fromkeys(names), 1)}
        numbers[name] = number
    return numbers
