"""Readers of plain text: a file, or a folder of files.

Blank lines separate paragraphs, whose lines are joined.  In a file without a blank line inside,
each line is a paragraph.

A file is a document.  Intervals are drawn over documents, and train and dev consist of different
ones.  Therefore a single file is divided into blocks of its paragraphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, islice
from pathlib import Path

from helpers.data.text_files import lines, one_line, text_paths, visible

MAX_BLOCK = 10  # paragraphs


def documents(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each file of a folder, or of each block of a file.

    A block is a tenth of the file: an even number of paragraphs, from 2 to `MAX_BLOCK`.  ``counts``
    receives the number of paragraphs.
    """
    files = text_paths(path)
    if len(files) > 1:
        for file in files:
            yield file.relative_to(path).as_posix(), list(_paragraphs(file, counts))
        return
    paragraphs = _paragraphs(files[0], counts)
    beginning = list(islice(paragraphs, 10 * MAX_BLOCK))
    size = max(len(beginning) // 20 * 2, 2)
    all_paragraphs = chain(beginning, paragraphs)
    number = 1
    while block := list(islice(all_paragraphs, size)):
        yield f"{files[0].name} {number}", block
        number += 1


def _paragraphs(file: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield the paragraphs of a file; lines of which nothing shows count as blank ones."""
    has_text = (visible(one_line(line)) for _, line in lines(file))
    parts = islice((part for part, _ in groupby(has_text) if part), 2)
    is_paragraph = sum(parts) < 2  # whether each line is one
    pending: list[str] = []
    for _, line in chain(lines(file), [(0, "")]):
        text = one_line(line)
        is_text = visible(text)
        if pending and (is_paragraph or not is_text):
            counts["paragraphs"] += 1
            yield " ".join(pending)
            pending = []
        if is_text:
            pending.append(text)
