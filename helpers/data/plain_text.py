"""Readers of plain text: a file, or a folder of files.

Blank lines separate paragraphs, whose lines are joined.  In a file without a blank line inside,
each line is a paragraph.

A file is a document.  Intervals are drawn over documents, and train and dev consist of different
ones.  Therefore a single file is divided into blocks of its paragraphs.  A file that marks where
articles begin is read as articles (`marked_articles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, islice
from pathlib import Path

from helpers.data.marked_articles import has_marked_articles, marked_articles
from helpers.data.other_formats import refuse_other_formats
from helpers.data.text_files import lines, one_line, text_paths, visible

MAX_BLOCK_PARAGRAPHS = 10


def documents(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each document of a file or a folder.

    These are the articles of a file that marks them, and otherwise each file of a folder, or each
    block of a single file.

    Raises
    ------
    CorpusError
        For a file that begins as one in another format.
    """
    files = text_paths(path)
    for file in files:
        refuse_other_formats(file, "text")
        if has_marked_articles(file):
            yield from marked_articles(file, counts)
        elif len(files) > 1:
            yield file.relative_to(path).as_posix(), list(_paragraphs(file))
        else:
            yield from _file_blocks(file)


def _file_blocks(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each block of a file.

    A block is a tenth of the file: an even number of paragraphs, from 2 to `MAX_BLOCK_PARAGRAPHS`.
    """
    paragraphs = _paragraphs(file)
    beginning = list(islice(paragraphs, 10 * MAX_BLOCK_PARAGRAPHS))
    size = max(len(beginning) // 20 * 2, 2)
    all_paragraphs = chain(beginning, paragraphs)
    number = 1
    while block := list(islice(all_paragraphs, size)):
        yield f"{file.name} {number}", block
        number += 1


def _paragraphs(file: Path) -> Iterator[str]:
    """Yield the paragraphs of a file."""
    has_blank_line = len(list(islice(_blocks(file), 2))) == 2  # between its lines
    for texts in _blocks(file):
        if has_blank_line:
            yield " ".join(texts)
        else:
            yield from texts


def _blocks(file: Path) -> Iterator[Iterator[str]]:
    """Yield the texts of neighbouring lines; lines of which nothing shows count as blank ones."""
    texts = (one_line(line) for _, line in lines(file))
    for has_text, block in groupby(texts, visible):
        if has_text:
            yield block
