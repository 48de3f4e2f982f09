"""Readers of coreference files: CoNLL-2012, CoNLL-U with ``Entity=``, and text in brackets.

``Entity=`` in the last column of CoNLL-U is read as in CorefUD, GUM and OntoGUM.  Text in brackets
is a notation that people can write::

    ## A comment.
    # tale-01 story
    [Ann]1 lost [[her]1 ring]2, and [a magpie] found [it]2.

A header line names a document and its genre; its text follows, over as many lines as it takes.
``[...]7`` is a mention of chain 7, ``[...]`` a mention that nothing else refers to.  Mentions
nest.  The reader separates words, punctuation and clitics (``'s``, ``n't``) as the Penn Treebank
does.
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

from helpers.data.columns import Format, Row, read_blocks, read_tree
from helpers.data.records import AnnotatedText, Span
from helpers.data.text_files import lines, one_line, plain_name, quoted, word
from helpers.errors import CorpusError

# A mention begins with a bracket, the name of its chain and, in CoNLL-U, a part of a mention with
# gaps ("[1/2]") and attributes; it ends with the name, the part and a bracket.
_BRACKET = re.compile(
    r"\((?P<opened>[^-()|\[\]]+(?:\[\d+/\d+\])?)(?:-[^()|]*)?(?P<single>\)?)"
    r"|(?P<closed>[^-()|\[\]]+(?:\[\d+/\d+\])?)\)"
)
_PIECE = re.compile(
    r"""
    (\[) | (\]([0-9]{1,9})?)          # the end of a mention has its chain
  | ((?:Mr|Mrs|Ms|Dr|St)\.
  | \d+(?:[.,:]\d+)+                 # 1,200  3.5  10:30
  | \w+(?=n't\b) | n't\b | '(?:s|re|ve|ll|d|m)\b
  | \w+(?:-\w+)* | \.{3} | [^\w\s])  # well-known
    """,
    re.VERBOSE,
)


@cache
def universal_tags() -> dict[str, str]:
    """Read the universal tags of Penn Treebank tags (Marcus et al. 1993).

    Tags that are not in the list are left to the tagger.
    """
    path = Path(__file__).with_name("penn_tags.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return {row["penn"]: row["universal"] for row in csv.DictReader(file)}


def read_documents(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a coreference file; each part of a document is one (CoNLL-2012).

    Parameters
    ----------
    path : Path
        A file of CoNLL-U, with trees, if its suffix is ``.conllu``, of brackets for ``.txt``, and
        otherwise of CoNLL-2012 (Pradhan et al. 2012).  In CoNLL-U a mention keeps its words and
        loses its empty nodes, which are not in the text; one of empty nodes only is dropped, and so
        is one with gaps.
    counts : Counter
        Receives the number of words and mentions that were changed or dropped, by reason.

    Raises
    ------
    CorpusError
        With the line, for what breaks the format.
    """
    if plain_name(path).endswith(".txt"):
        yield from read_brackets(path, counts)
        return
    format: Format = "conllu" if plain_name(path).endswith(".conllu") else "conll2012"
    mark = ""
    sentences: list[list[Row]] = []
    for marks, rows in read_blocks(path, format, counts, keep_empty_nodes=True):
        next_mark = marks.get("newdoc", marks.get("begin document"))
        if next_mark is not None:
            if sentences:
                yield _document(path, format, mark, sentences, counts)
                sentences = []
            mark = next_mark
        first_field = marks.get("global.Entity", "eid").partition("-")[0]
        if first_field not in ("eid", "GRP"):  # the name of the chain, in CorefUD and in GUM
            problem = f"# global.Entity begins with {quoted(first_field)}; expected eid or GRP"
            raise CorpusError(path, problem, rows[0].line)
        sentences.append(rows)
    if sentences:
        yield _document(path, format, mark, sentences, counts)


def _document(
    path: Path, format: Format, mark: str, sentences: Sequence[list[Row]], counts: Counter[str]
) -> AnnotatedText:
    """Make a document of its sentences.

    The trees of CoNLL-U give the heads of words; CoNLL-2012 has phrase structure instead.
    """
    name, _, part = mark.removeprefix("(").partition(");")  # (name); part 000
    rows: list[Row] = []
    sentence_starts: list[bool] = []
    heads: list[int] = []  # their indices in the document, -1 for a root
    for sentence in sentences:
        sentence_rows = [row for row in sentence if not row.is_empty_node]
        if format == "conllu":
            sentence_heads, _ = read_tree(path, sentence_rows, format)
            heads += [len(rows) + head - 1 if head else -1 for head in sentence_heads]
        sentence_starts += [row is sentence_rows[0] for row in sentence_rows]
        rows += sentence_rows
    nodes = list(chain.from_iterable(sentences))  # words, and empty nodes between them
    if format == "conllu":
        entity = re.compile(r"(?:^|\|)Entity=([^|]*)")
        brackets = ["".join(entity.findall(row.cells[9])) for row in nodes]
        tags = [row.cells[3] for row in rows]
    else:
        brackets = [row.cells[-1].strip("-_") for row in nodes]
        tags = [universal_tags().get(row.cells[4]) for row in rows]
    words = tuple(row.word for row in rows)
    spans = _read_spans(path, nodes, brackets, counts)
    source = (name or path.stem) + part
    starts = tuple(sentence_starts)
    return AnnotatedText(source, words, spans, tuple(tags), tuple(heads) or None, starts)


def _read_spans(
    path: Path, nodes: Sequence[Row], brackets: Sequence[str], counts: Counter[str]
) -> tuple[Span, ...]:
    """Read the mentions of a document, in order; chains may cross."""
    mentions: list[tuple[int, int, str]] = []
    open_mentions: dict[str, list[tuple[int, Row]]] = defaultdict(list)  # the innermost one last
    n_words = 0
    for node, cell in zip(nodes, brackets, strict=True):
        if _BRACKET.sub("", cell).strip("|"):
            problem = "expected brackets with names of chains such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {problem}", node.line)
        n_before = n_words
        n_words += not node.is_empty_node
        for bracket in _BRACKET.finditer(cell):
            name = bracket["opened"] or bracket["closed"]
            if bracket["opened"]:
                open_mentions[name].append((n_before, node))
                if not bracket["single"]:
                    continue
            if not open_mentions[name]:
                problem = f"{name}) closes no mention; remove it, or open the mention"
                raise CorpusError(path, problem, node.line)
            start, _ = open_mentions[name].pop()
            if name.endswith("]"):
                counts["mentions dropped: with gaps"] += "[1/" in name
            elif start == n_words:
                counts["mentions dropped: of empty nodes only"] += 1
            else:
                mentions.append((start, n_words, name))
    unclosed = list(chain.from_iterable(open_mentions.values()))
    if unclosed:
        problem = "a mention that begins here is never closed in this document; close it"
        raise CorpusError(path, problem, unclosed[0][1].line)
    mentions.sort(key=itemgetter(0, 1))
    numbers = _chain_numbers([name for *_, name in mentions])
    return tuple((start, end, numbers[name]) for start, end, name in mentions)


def _chain_numbers(names: Sequence[str]) -> dict[str, int]:
    """Number chains: by the numbers in their names (3, e3) if these differ, else in order."""
    different_names = list(dict.fromkeys(names))
    matches = [re.fullmatch(r"e?([0-9]{1,9})", name) for name in different_names]
    numbers = [int(match[1]) for match in matches if match]
    if len(set(numbers)) < len(different_names):
        numbers = range(1, len(different_names) + 1)
    return dict(zip(different_names, numbers, strict=True))


def read_brackets(path: Path, counts: Counter[str]) -> Iterator[AnnotatedText]:
    """Yield the documents of a file in bracket notation; invisible words are counted."""
    documents: list[tuple[str, list[tuple[int, str]]]] = []  # the source, numbered lines
    for number, line in lines(path):
        if line.startswith("##") or not line.strip():
            continue
        header = re.fullmatch(r"# (\S+) (\S.*)", line.rstrip())
        if header:
            documents.append((f"{header[1]} ({header[2]})", []))
        elif line.startswith("#") or not documents:
            problem = f"expected a document's header, '# name genre', and not {quoted(line)}"
            raise CorpusError(path, f"{problem} (CoNLL-2012: name the file *_conll)", number)
        else:
            documents[-1][1].append((number, one_line(line)))
    for source, text in documents:
        words, spans = _words_and_spans(path, text, counts)
        yield AnnotatedText(source, words, spans, tags=(None,) * len(words))


def _words_and_spans(
    path: Path, text: list[tuple[int, str]], counts: Counter[str]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """Separate the words of a document and read its mentions, in order."""
    words: list[str] = []
    spans: list[Span] = []
    open_mentions: list[tuple[int, int]] = []  # first word and line
    for number, line in text:
        for opening, _, chain_name, piece in _PIECE.findall(line):
            if opening:
                open_mentions.append((len(words), number))
            elif piece:
                words.append(word(piece, counts))
            else:
                start, _ = open_mentions.pop() if open_mentions else (len(words), number)
                if start == len(words):
                    problem = "']' closes no mention with words; remove it, or put words before it"
                    raise CorpusError(path, problem, number)
                spans.append((start, len(words), int(chain_name) if chain_name else None))
    if open_mentions:
        problem = "'[' is never closed in this document; add its ']'"
        raise CorpusError(path, problem, open_mentions[-1][1])
    return tuple(words), tuple(sorted(spans, key=itemgetter(0, 1)))
