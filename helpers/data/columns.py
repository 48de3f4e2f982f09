"""Column formats, a word a line: dependency trees and coreference.

CoNLL-U (with ``Entity=`` in MISC: OntoGUM), CoNLL-X, the plain format of the paper's repository
(``word head-relation``) and CoNLL-2012.  One reader of rows and columns serves them all, and
`text_files.word` says what a word is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

from helpers.data.records import AnnotatedText, Sentence, Span
from helpers.data.text_files import lines, quoted, word
from helpers.errors import CorpusError

TreeFormat = Literal["conllu", "conllx", "plain"]

# The columns that a format may have, in words too, and which one has the word (from 0).
_LAYOUTS = {
    "conllu": (range(10, 11), "10 columns", 1),
    "conllx": (range(8, 11, 2), "8 or 10 columns", 1),
    "plain": (range(2, 3), "'word head-relation'", 0),
    # Predicate arguments add columns before the last one.
    "conll2012": (range(12, 1 << 20), "at least 12 columns", 3),
}
EXPECTED = "expected CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'"
NO_END = "the document that begins here has no '#end document'; cut off?"
_NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")  # of CoNLL-U: a multi-word range, an empty node
_NUMBER = re.compile(r"[0-9]{1,9}")
_PLAIN_LINE = re.compile(r"[^ \t]+[ \t]+\d+-\S+")
# What a comment is of, and the value or name behind it.
_MARK = re.compile(r"#\s*(sent_id(?=\s*=)|newdoc\b|begin document\b|end document\b)[^=(]*=?\s*(.*)")
_NAME_2012 = re.compile(r"\((?P<name>.*)\);(?: part (?P<part>\d+))?")
_ENTITY = re.compile(r"(?:^|\|)Entity=([^|]*)")
_BRACKET = re.compile(r"\(([0-9]{1,9})\)|\(([0-9]{1,9})(?![0-9])|([0-9]{1,9})\)")

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


class _Row(NamedTuple):
    line: int
    word: str
    cells: list[str]


def detect_format(path: Path) -> TreeFormat:
    """Tell a treebank's format from its suffix and its first line that is not blank."""
    for line, text in lines(path):
        if not text.strip():
            continue
        cells = _cells(text)
        if _PLAIN_LINE.fullmatch(text.strip(" \t")):
            return "plain"
        if ".conllu" in path.suffixes or text[0] == "#" or _NOT_A_WORD.fullmatch(cells[0]):
            return "conllu"
        if ".conllx" in path.suffixes or len(cells) in _LAYOUTS["conllx"][0]:
            return "conllx"
        raise CorpusError(path, f"unknown format; {EXPECTED}", line=line)
    raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_trees(
    path: Path, format: TreeFormat | None = None, counts: Counter[str] | None = None
) -> Iterator[tuple[str | None, Sentence]]:
    """Yield the document and the tree of each sentence, in order.

    The document is what the last `# newdoc` calls it, or that mark's number in the file where it
    gives no name; None before the first mark.  Multi-word ranges and empty nodes of CoNLL-U are
    skipped, and its trees have exactly one root; converted treebanks may have several.  The source
    is the ``sent_id``, or its number.  ``counts`` receives what was changed in the words.
    CorpusError, with the line, for what breaks the format.
    """
    format = format or detect_format(path)
    document = None
    documents_begun = 0
    number = 0
    for marks, rows in _blocks(path, format, counts):
        for _, mark, value in marks:
            if mark == "newdoc":
                documents_begun += 1
                document = value or str(documents_begun)
        if rows:
            number += 1
            names = [name for _, kind, name in marks if kind == "sent_id"]
            words = tuple(row.word for row in rows)
            source = names[0] if names else str(number)
            yield document, Sentence(words, *_tree(path, rows, format), "", source)
    if not number:
        raise CorpusError(path, f"holds no sentence; {EXPECTED}")


def read_documents(path: Path, counts: Counter[str] | None = None) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file, every part of one (Pradhan et al. 2012) apart.

    ``.conllu`` is CoNLL-U, with trees; all else CoNLL-2012.  Counts, errors as in `read_trees`.
    """
    format = "conllu" if path.suffix == ".conllu" else "conll2012"
    name = source = path.stem
    begun, sentences = None, []
    for marks, rows in _blocks(path, format, counts):
        for line, kind, value in marks:
            if kind == "sent_id":
                continue
            if sentences:
                yield _annotated_text(path, format, name, source, sentences)
                sentences = []
            if kind == "newdoc":
                name = source = value or path.stem
            elif kind == "end document":
                begun = None
            elif begun:
                raise CorpusError(path, NO_END, line=begun)
            else:
                begun, found = line, _NAME_2012.fullmatch(value)
                if not found:
                    raise CorpusError(path, "expected '#begin document (name); part 000'", line)
                name = found["name"]
                source = name + (f" part {found['part']}" if found["part"] else "")
        if rows:
            sentences.append(rows)
    if begun:
        raise CorpusError(path, NO_END, line=begun)
    if sentences:
        yield _annotated_text(path, format, name, source, sentences)


def _blocks(
    path: Path, format: str, counts: Counter[str] | None
) -> Iterator[tuple[list[tuple[int, str, str]], list[_Row]]]:
    """Yield each sentence, and before it the comments that name something: line, kind, value."""
    columns, expected, word_column = _LAYOUTS[format]
    counts = Counter() if counts is None else counts
    marks, rows = [], []
    for line, text in lines(path):
        comment = text[:1] == "#" and format != "plain"  # there "#" is a word
        mark = _MARK.match(text) if comment else None
        if comment or not text or text.isspace():
            if rows and (mark or not comment):
                yield marks, rows
                marks, rows = [], []
            if mark:
                marks.append((line, mark[1], mark[2].strip()))
            continue
        cells = _cells(text)
        if len(cells) not in columns:
            raise CorpusError(path, f"expected {expected}, found {len(cells)} columns", line)
        if format == "conllu" and _NOT_A_WORD.fullmatch(cells[0]):
            continue
        rows.append(_Row(line, word(cells[word_column], counts), cells))
    if rows or marks:
        yield marks, rows


def _cells(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else list(filter(None, text.split(" ")))


def _tree(path: Path, rows: Sequence[_Row], format: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the heads of a sentence's words (as in `records.Sentence`) and their relations."""
    heads, relations = [], []
    for number, (line, _, cells) in enumerate(rows, 1):
        if format == "plain":
            head, _, relation = cells[1].partition("-")
        else:
            head, relation = cells[6], cells[7].strip()
            if cells[0] != str(number):
                problem = f"expected word {number}, found {quoted(cells[0])}"
                raise CorpusError(path, problem, line)
        if not _NUMBER.fullmatch(head):
            problem = f"the head is {quoted(head)}; expected a whole number (0: root)"
            raise CorpusError(path, problem, line)
        if not relation:
            raise CorpusError(path, "a word without relation", line)
        heads.append(int(head))
        relations.append(relation)
    if wrong := _fault(heads, single_root=format == "conllu"):
        row, problem = rows[wrong[0]], wrong[1]
        raise CorpusError(path, problem.format(quoted(row.word)), row.line)
    return tuple(heads), tuple(relations)


def _fault(heads: Sequence[int], *, single_root: bool) -> tuple[int, str] | None:
    """Return the place of a word at which heads are no tree, and why not; None for a tree."""
    if max(heads) > len(heads):
        place = next(place for place, head in enumerate(heads) if head > len(heads))
        return place, f"the head of {{}} is {heads[place]}; the sentence has {len(heads)} words"
    if 0 not in heads:
        return 0, "the sentence that starts with {} has no root (a word with head 0)"
    if single_root and heads.count(0) > 1:
        second = heads.index(0, heads.index(0) + 1)
        return second, "a second root, {}; a tree of CoNLL-U has one"
    walks = [0] * len(heads)  # the walk to the root that first came through a word, from 1
    for walk in range(1, len(heads) + 1):
        place = walk - 1
        while place >= 0 and not walks[place]:
            walks[place] = walk
            place = heads[place] - 1
        if place >= 0 and walks[place] == walk:
            return place, "the heads of {} run in a cycle and never reach the root"
    return None


def _annotated_text(
    path: Path, format: str, name: str, source: str, sentences: Sequence[list[_Row]]
) -> AnnotatedText:
    rows = list(chain(*sentences))
    words = tuple(row.word for row in rows)
    if format == "conllu":
        found = [_ENTITY.search(row.cells[9]) for row in rows]
        brackets = [entity[1] if entity else "_" for entity in found]
        tags, heads = tuple(row.cells[3] for row in rows), []
        for sentence in sentences:
            first = len(heads)  # a head is its index in the document, -1 for a root
            own, _ = _tree(path, sentence, format)
            heads += [first + head - 1 if head else -1 for head in own]
    else:
        if "[WORD]" in words:
            problem = "a skeleton without words; run the shared task's skeleton2conll on it first"
            raise CorpusError(path, problem, rows[words.index("[WORD]")].line)
        brackets = [row.cells[-1] for row in rows]
        tags, heads = tuple(PENN_TO_UNIVERSAL.get(row.cells[4]) for row in rows), None
    spans = _spans(path, rows, brackets)
    starts = tuple(row is sentence[0] for sentence in sentences for row in sentence)
    return AnnotatedText(name, source, words, spans, tags, heads and tuple(heads), starts)


def _spans(path: Path, rows: Sequence[_Row], brackets: Sequence[str]) -> tuple[Span, ...]:
    """Return a document's mentions, in order, from each word's brackets; chains may cross."""
    spans: list[Span] = []
    opened: dict[int, list[int]] = defaultdict(list)  # chain: first words, innermost last
    for place, cell in enumerate(brackets):
        if cell in ("-", "_"):
            continue
        if _BRACKET.sub("", cell).replace("|", ""):
            advice = "expected brackets with chain numbers such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {advice}", rows[place].line)
        for single, opening, closing in _BRACKET.findall(cell):
            number = int(single or opening or closing)
            if single:
                spans.append((place, place + 1, number))
            elif opening:
                opened[number].append(place)
            elif opened[number]:
                spans.append((opened[number].pop(), place + 1, number))
            else:
                raise CorpusError(path, f"{number}) closes no mention", rows[place].line)
    for number, starts in opened.items():
        if starts:
            raise CorpusError(path, f"({number} is never closed", rows[starts[0]].line)
    return tuple(sorted(spans, key=itemgetter(0, 1)))
