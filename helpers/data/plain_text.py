"""Readers of plain text: a file or a folder, with a paragraph per line or with wrapped lines.

If each line is a paragraph, a blank line starts a document.  If lines are wrapped, or mostly
separated by blank lines, one blank line separates paragraphs; two of them, a Markdown heading or a
rule separate documents, each of two paragraphs at least.  A file is one document or more.

Intervals are drawn over documents, and train and dev consist of different ones.  Therefore a single
document is divided into blocks of its paragraphs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, islice, pairwise
from pathlib import Path

from helpers.data.text_files import lines, one_line, text_paths, visible
from helpers.data.wikitext import SENTENCE_END

LAYOUT_SAMPLE_LINES = 10_000  # enough to tell the layout of a file
WRAP_WIDTHS = range(40, 161)  # in characters
LINES = "a line is a paragraph, a blank line starts a new document"
APART = "a blank line separates paragraphs, two blank lines or a heading separate documents"
WRAPPED = f"lines are wrapped and are joined; {APART}"
_HEADING_OR_RULE = re.compile(r"#{1,6} .*|[-=*_ ]{3,}")
_CODE_OR_TABLE = re.compile(r"^(```|~~~).*?^\1.*?$|^\|.*?$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"[-*+•] |\d{1,3}[.)] ")


def documents(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each document of a text file, or of a folder of them.

    ``counts`` receives the number of paragraphs, and of lines that were dropped or joined.
    """
    file_documents = _file_documents(path, counts)
    beginning = list(islice(file_documents, 2))
    if len(beginning) == 1:
        title, paragraphs = beginning[0]
        beginning = [(title, block) for block in _blocks(paragraphs)]
    for number, (title, paragraphs) in enumerate(chain(beginning, file_documents), 1):
        yield f"{title} {number}", paragraphs


def block_size(paragraphs: list[str]) -> int:
    """Compute the number of paragraphs per block of a single document: a tenth, from 2 to 10."""
    return min(max(len(paragraphs) // 20 * 2, 2), 10)


def _blocks(paragraphs: list[str]) -> list[list[str]]:
    """Divide the paragraphs of a single document into blocks."""
    size = block_size(paragraphs)
    return [paragraphs[start : start + size] for start in range(0, len(paragraphs), size)]


def how_read(path: Path) -> str:
    """Describe the layout in which a text file, or a folder of them, is read."""
    descriptions = sorted(set(map(layout, text_paths(path))))
    beginning = list(islice(_file_documents(path, Counter()), 2))
    if len(beginning) == 1:
        _, paragraphs = beginning[0]
        descriptions.append(
            f"one document: blocks of {block_size(paragraphs)} of its {len(paragraphs)} "
            "paragraphs stand for articles"
        )
    return "; ".join(descriptions)


def layout(file: Path) -> str:
    """Detect the layout of a text file: `LINES`, `APART` or `WRAPPED`.

    Lines are wrapped if most lines with another one below are about as long as the longest, and
    go on there in the middle of a sentence.  Verse and lists begin their lines with capitals.
    """
    text = "\n".join(line.strip() for _, line in islice(lines(file), LAYOUT_SAMPLE_LINES))
    sample = _CODE_OR_TABLE.sub("", text).split("\n")
    run_lengths = _run_lengths(sample)
    n_longer_runs = sum(length > 1 for length in run_lengths)
    if len(run_lengths) > 3 and n_longer_runs < len(run_lengths) / 10:
        return APART
    pairs = [
        (line, below)
        for line, below in pairwise(sample)
        if line and below and not _ITEM.match(below)
    ]
    return WRAPPED if _are_wrapped(pairs) else LINES


def _run_lengths(sample: list[str]) -> list[int]:
    """Count the lines of each run of lines without a blank one between them."""
    return [len(list(run)) for has_text, run in groupby(sample, bool) if has_text]


def _are_wrapped(pairs: list[tuple[str, str]]) -> bool:
    """Tell whether lines, each with the line below, are parts of wrapped paragraphs.

    Lines are weighted by their characters, because the short lines of an address or a list say
    little.
    """
    lengths = sorted(len(line) for line, _ in pairs)
    if not lengths:
        return False
    width = lengths[len(lengths) * 9 // 10]
    if width not in WRAP_WIDTHS:
        return False
    full_characters = 0
    continued_characters = 0
    for line, below in pairs:
        first_word_below = below.split()[0]
        if len(line) + len(first_word_below) >= 0.85 * width:
            full_characters += len(line)
        if not (SENTENCE_END.search(line) or below[0].isupper()):
            continued_characters += len(line)
    total = sum(lengths)
    return full_characters / total >= 0.7 and continued_characters / total >= 0.5


def _file_documents(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the file name and the paragraphs of each document that the layout of a file shows."""
    for file in text_paths(path):
        title = file.name if file == path else file.relative_to(path).as_posix()
        if layout(file) == LINES:
            read = _paragraph_lines
            separating_lines = 1
        else:
            read = _joined_lines
            separating_lines = 2
        min_paragraphs = separating_lines
        paragraphs: list[str] = []
        next_start = 0  # of the document after this one, once this one has enough paragraphs
        for blank_lines, paragraph in read(file, counts):
            is_long_enough = len(paragraphs) - next_start >= min_paragraphs
            if blank_lines >= separating_lines and is_long_enough:
                next_start = len(paragraphs)
            paragraphs.append(paragraph)
            if next_start > 0 and len(paragraphs) - next_start == min_paragraphs:
                yield title, paragraphs[:next_start]
                paragraphs = paragraphs[next_start:]
                next_start = 0
        if paragraphs:
            yield title, paragraphs


def _paragraph_lines(file: Path, counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield each visible line, which is a paragraph, after the number of blank lines before it."""
    blank_lines = 0
    for _, line in lines(file):
        if not line.strip():
            blank_lines += 1
            continue
        counts["paragraphs"] += 1
        paragraph = one_line(line)
        if visible(paragraph):
            yield blank_lines, paragraph
            blank_lines = 0
        else:
            counts["paragraphs dropped: nothing to be seen"] += 1


def _joined_lines(file: Path, counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of wrapped lines, after the number of blank lines before it.

    A heading or a rule counts as two blank lines.
    """
    pending: list[str] = []
    blank_before_paragraph = 0
    blank_lines = 0
    in_code = False
    for _, raw_line in chain(lines(file), [(0, "")]):
        line = one_line(raw_line).lstrip("> ")  # as in an e-mail that is answered
        is_fence = line.startswith(("```", "~~~"))
        is_dropped = is_fence or in_code or line.startswith("|")
        counts["lines dropped: code or table"] += int(is_dropped)
        if is_fence:
            in_code = not in_code
        is_rule = not is_dropped and _HEADING_OR_RULE.fullmatch(line) is not None
        is_text = not is_dropped and not is_rule and visible(line)
        if pending and (not is_text or _ITEM.match(line)):
            counts["paragraphs"] += 1
            counts["lines joined to the one before"] += len(pending) - 1
            yield blank_before_paragraph, " ".join(pending)
            pending = []
            blank_before_paragraph = 0
        if is_rule:
            blank_lines = 2
        elif line or in_code:
            blank_lines = 0
        else:
            blank_lines += 1
        blank_before_paragraph = max(blank_before_paragraph, blank_lines)
        if is_text:
            pending.append(line)
