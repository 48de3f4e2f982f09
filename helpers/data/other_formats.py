"""Files in formats that are not read: they are known by their beginning, and refused by name.

A file of another corpus would otherwise be read as prose, or refused at some line for a reason that
says nothing of the format.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from helpers.data.text_files import lines
from helpers.errors import CorpusError

Purpose = Literal["text", "treebank", "coreference"]

EXPECTED: dict[Purpose, str] = {
    "text": "WikiExtractor's files, or plain text with a blank line between paragraphs",
    "treebank": "CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'",
    "coreference": (
        "CoNLL-2012 (*_conll), CorefUD, GUM or OntoGUM (.conllu with Entity=) or brackets (.txt)"
    ),
}
TREES = ("treebank",)
TEXT = ("text",)
ANNOTATION = ("treebank", "coreference")
ANY = ("text", "treebank", "coreference")
_COLUMN_NAME = r'"?\w[\w./#-]{0,39}"?'
# The purposes for which a file is refused if it begins so, after any comments, and the sentence.
REFUSALS: tuple[tuple[tuple[Purpose, ...], str, str], ...] = (
    (ANY, r'(?:\{\s*(?:".*)?|\[\s*(?:\{.*)?)\n', "JSON; convert it"),
    (TEXT, r"<mediawiki\b", "a MediaWiki dump; scripts/clean_dump.py converts it"),
    (ANY, r"(?i:<(?:\?xml|!DOCTYPE|html|mediawiki)\b)", "XML or HTML; convert it"),
    (TEXT, r"\d{3,}:\d+:.", "the index of a dump; name the dump, not its index"),
    (TEXT, r"[^\t\n]+\t.*\n[^\t\n]+\t", "a table; write its column of texts to a file"),
    (
        TEXT,
        rf"{_COLUMN_NAME}([,;]){_COLUMN_NAME}(?:\1{_COLUMN_NAME})*\n.*\1",
        "a table; write its column of texts to a file",
    ),
    (ANNOTATION, r"#\s*global\.columns\b", "CoNLL-U Plus; keep the ten columns of CoNLL-U"),
    (TREES, r"#begin document\b", "CoNLL-2012; convert it"),
    (TREES, r"\(\s*(?:\(|(?:S|TOP|ROOT)\b)", "phrase structure in brackets; convert it"),
    (("coreference",), r"ID\tText\tPronoun\b", "GAP; convert it"),
)


def refuse_other_formats(path: Path, purpose: Purpose) -> None:
    """Raise CorpusError if a file begins as one in another format."""
    beginning = _beginning(path)
    for purposes, pattern, sentence in REFUSALS:
        if purpose in purposes and re.match(rf"(?:#.*\n)*?(?:{pattern})", beginning):
            problem = f"looks like {sentence}; expected {EXPECTED[purpose]}"
            raise CorpusError(path, problem, 1)


def _beginning(path: Path) -> str:
    """Read the comments with which a file begins and the two lines after them, without blanks."""
    beginning = ""
    n_rows = 0
    for _, line in lines(path):
        text = line.strip()
        if text:
            beginning += f"{text}\n"
            n_rows += not text.startswith("#")
        if n_rows == 2:
            break
    return beginning
