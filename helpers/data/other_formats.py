"""Files in formats that are not read: they are known by their beginning, and refused by name.

A file of another corpus would otherwise be read as prose, or refused at some line for a reason that
says nothing of the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from helpers.data.text_files import lines
from helpers.errors import CorpusError

Purpose = Literal["text", "treebank", "coreference"]

EXPECTED: dict[Purpose, str] = {
    "text": ("WikiExtractor's files, or plain text with a blank line between paragraphs"),
    "treebank": "CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'",
    "coreference": (
        "CoNLL-2012 (*_conll), CorefUD, GUM or OntoGUM (.conllu with Entity=) or brackets (.txt)"
    ),
}


class _OtherFormat(NamedTuple):
    """A format: its name, its first line, the purposes for which it is refused, and a remedy."""

    name: str
    first_line: re.Pattern[str]
    purposes: tuple[Purpose, ...]
    remedy: str = "convert it"


_JSON = re.compile(r'\{\s*(?:".*)?|\[\s*(?:\{.*)?')
_OTHER_FORMATS = (
    _OtherFormat("JSON, as in PreCo", _JSON, ("coreference",)),
    _OtherFormat("JSON", _JSON, ("text",), "write its texts to such a file"),
    _OtherFormat("JSON", _JSON, ("treebank",)),
    _OtherFormat(
        "a MediaWiki dump",
        re.compile(r"<mediawiki\b.*"),
        ("text",),
        "scripts/clean_dump.py converts it",
    ),
    _OtherFormat(
        "XML or HTML",
        re.compile(r"<(?:\?xml|!DOCTYPE|html|mediawiki)\b.*", re.IGNORECASE),
        ("text", "treebank", "coreference"),
    ),
    _OtherFormat(
        "the index of a dump",
        re.compile(r"\d{3,}:\d+:.+"),
        ("text",),
        "name the dump, not its index",
    ),
    _OtherFormat(
        "CoNLL-U Plus",
        re.compile(r"#\s*global\.columns\b.*"),
        ("treebank", "coreference"),
        "keep its first ten columns, if they are those of CoNLL-U",
    ),
    _OtherFormat("CoNLL-2012", re.compile(r"#begin document\b.*"), ("treebank",)),
    _OtherFormat("GAP", re.compile(r"ID\tText\tPronoun\b.*"), ("coreference",)),
    _OtherFormat(
        "phrase structure in brackets",
        re.compile(r"\(\s*(?:\(|(?:S|TOP|ROOT)\b).*"),
        ("treebank",),
    ),
)
_COLUMN_NAME = re.compile(r'"?\w[\w./#-]{0,39}"?')


def refuse_other_formats(path: Path, purpose: Purpose) -> None:
    """Raise CorpusError, with the line, if a file begins as one in another format."""
    for number, line in _beginning(path):
        for format in _OTHER_FORMATS:
            if purpose in format.purposes and format.first_line.fullmatch(line.strip()):
                problem = f"looks like {format.name}; expected {EXPECTED[purpose]}; {format.remedy}"
                raise CorpusError(path, problem, number)
    if purpose == "text" and _is_table([line for _, line in islice(_visible_lines(path), 2)]):
        problem = f"looks like a table; expected {EXPECTED['text']}; write its column of texts so"
        raise CorpusError(path, problem, 1)


def _beginning(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments with which a file begins, and the line after them."""
    for number, line in _visible_lines(path):
        yield number, line
        if not line.startswith("#"):
            return


def _visible_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    return ((number, line) for number, line in lines(path) if line.strip())


def _is_table(first_lines: list[str]) -> bool:
    """Tell whether lines are rows of columns: names between commas, or tabs in each line."""
    if len(first_lines) < 2:
        return False
    header, row = first_lines
    tabs = header.strip().count("\t")
    if tabs and row.strip().count("\t") == tabs:
        return True
    for separator in ",;":
        names = header.strip().split(separator)
        if len(names) > 1 and separator in row and all(map(_COLUMN_NAME.fullmatch, names)):
            return True
    return False
