"""Articles of Wikipedia in files that other programs made, which mark where an article begins.

WikiExtractor writes files such as ``AA/wiki_00``, in which a paragraph is a line::

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Bridge">
    Bridge

    A bridge is a structure that ...
    </doc>

The WikiText corpora have headings between equals signs, ``= Bridge =`` for an article and
``= = History = =`` for a section, and words with spaces between them (``19 @-@ 20``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helpers.data.prose import prose, unescape
from helpers.data.text_files import lines

_TITLE = re.compile(r'\btitle="([^"]*)"')
_HEADING = re.compile(r"= ([^=].*) =")
_SECTION = re.compile(r"= = .* = =")
_SPLIT_MARK = re.compile(r" @([-.,])@ ")


def has_marked_articles(file: Path) -> bool:
    """Tell whether a text file begins with the mark of an article."""
    first = next((line.strip() for _, line in lines(file) if line.strip()), "")
    return _article_title(first) is not None


def marked_articles(file: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each article and its paragraphs of running prose.

    ``counts`` receives the number of paragraphs that were dropped, by reason.
    """
    title = ""
    texts: list[str] = []
    for _, line in lines(file):
        text = line.strip()
        next_title = _article_title(text)
        if next_title is not None:
            if texts:
                yield title or texts[0], list(prose(texts, counts))
            title = next_title
            texts = []
        elif text and text != "</doc>" and not _SECTION.fullmatch(text):
            texts.append(_SPLIT_MARK.sub(r"\1", unescape(text)))
    if texts:
        yield title or texts[0], list(prose(texts, counts))


def _article_title(text: str) -> str | None:
    """Read the title in the mark of an article, which may be empty; None for any other line."""
    if text.startswith("<doc ") and text.endswith(">"):
        title = _TITLE.search(text)
        return unescape(title[1]) if title else ""
    heading = _HEADING.fullmatch(text)
    return heading[1] if heading else None
