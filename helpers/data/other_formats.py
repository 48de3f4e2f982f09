"""Files in formats that are not read: they are known by their beginning, and refused by name.

A file of another corpus would otherwise be read as prose, or refused at some line for a reason that
says nothing of the format.
"""

from __future__ import annotations

import re
from pathlib import Path

from helpers.data.text_files import lines
from helpers.errors import CorpusError

EXPECTED = {  # by what a file is read for
    "text": "WikiExtractor's files, or plain text with a blank line between paragraphs",
    "treebank": "CoNLL-U, CoNLL-X (8 or 10 columns) or lines of 'word head-relation'",
    "coreference": "CoNLL-2012 (*_conll), CorefUD or GUM (.conllu with Entity=), brackets (.txt)",
}
TREES = ("treebank",)
TEXT = ("text",)
ANNOTATION = ("treebank", "coreference")
ANY = ("text", "treebank", "coreference")
_NAME = r'"?\w[\w./#-]{0,39}"?'  # of a column
_TABLE = rf"[^\t\n]+\t.*\n[^\t\n]+\t|{_NAME}([,;]){_NAME}(?:\1{_NAME})*\n.*\1"
# The purposes for which a file is refused if it begins so, after any comments, and the sentence.
REFUSALS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (ANY, r'(?:\{\s*(?:".*)?|\[\s*(?:\{.*)?)\n', "JSON; convert it"),
    (TEXT, r"<mediawiki\b", "a MediaWiki dump; scripts/clean_dump.py converts it"),
    (ANY, r"(?i:<(?:\?xml|!DOCTYPE|html|mediawiki)\b)", "XML or HTML; convert it"),
    (TEXT, r"\d{3,}:\d+:.", "the index of a dump; name the dump, not its index"),
    (TEXT, _TABLE, "a table; write its column of texts to a file"),
    (ANNOTATION, r"#\s*global\.columns\b", "CoNLL-U Plus; keep the ten columns of CoNLL-U"),
    (TREES, r"#begin document\b", "CoNLL-2012; convert it"),
    (TREES, r"\(\s*(?:\(|(?:S|TOP|ROOT)\b)", "phrase structure in brackets; convert it"),
    (("coreference",), r"ID\tText\tPronoun\b", "GAP; convert it"),
)


def refuse_other_formats(path: Path, purpose: str) -> None:
    """Raise CorpusError if a file begins as one in another format."""
    beginning = ""  # its comments and the two lines after them, without blank lines
    n_rows = 0
    for _, line in lines(path):
        text = line.strip()
        if text:
            beginning += f"{text}\n"
            n_rows += not text.startswith("#")
        if n_rows == 2:
            break
    for purposes, pattern, sentence in REFUSALS:
        if purpose in purposes and re.match(rf"(?:#.*\n)*?(?:{pattern})", beginning):
            raise CorpusError(path, f"looks like {sentence}; expected {EXPECTED[purpose]}", 1)
