"""Plain text as people have it: a file or a folder, lines that are paragraphs or wrapped lines.

Where a line is a paragraph, a blank line starts a document.  Where lines are wrapped, or hardly
ever side by side, a blank line separates paragraphs, and two of them, a Markdown heading or a rule
documents of two paragraphs at least.  Each file is a document at least.  Intervals are drawn over
documents, and train and dev differ in them: a single one is read in blocks of its paragraphs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice, pairwise
from pathlib import Path

from helpers.data.text_files import lines, one_line, text_paths, visible
from helpers.data.wikitext import SENTENCE_END

LOOKED_AT = 10_000  # lines that tell how a file is laid out
WIDTHS = range(40, 161)  # characters at which people wrap
LINES = "a line is a paragraph, a blank line starts a new document"
APART = "a blank line separates paragraphs, two blank lines or a heading separate documents"
WRAPPED = f"lines are wrapped and are joined; {APART}"
_HEADING_OR_RULE = re.compile(r"#{1,6} .*|[-=*_ ]{3,}")
_CODE_OR_TABLE = re.compile(r"^(```|~~~).*?^\1.*?$|^\|.*?$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"[-*+•] |\d{1,3}[.)] ")


def documents(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the paragraphs of each document of a text file, or a folder of them.

    ``counts`` receives the paragraphs, and the lines that were dropped or joined.
    """
    found = _of_files(path, counts)
    start = list(islice(found, 2))
    if len(start) == 1:
        ((title, whole),) = start
        size = block(whole)
        start = [(title, whole[first : first + size]) for first in range(0, len(whole), size)]
    for number, (title, paragraphs) in enumerate(chain(start, found), 1):
        yield f"{title} {number}", paragraphs


def block(paragraphs: list[str]) -> int:
    """Return how many paragraphs of the only document stand together: a tenth, from 2 to 10."""
    return min(max(len(paragraphs) // 20 * 2, 2), 10)


def how_read(path: Path) -> str:
    """Say how a text file, or a folder of them, is read."""
    said = sorted(set(map(layout, text_paths(path))))
    found = list(islice(_of_files(path, Counter()), 2))
    if len(found) == 1:
        own = found[0][1]
        said.append(f"one document: blocks of {block(own)} of its {len(own)} paragraphs stand for "
                    "articles")  # fmt: skip
    return "; ".join(said)


def layout(file: Path) -> str:
    """Return how a text file is laid out: `LINES`, `APART` or `WRAPPED`.

    Lines are wrapped where most that have another one below are about as long as the longest, and
    go on there in the middle of a sentence; verse and lists begin their lines with capitals.
    """
    text = "\n".join(line.strip() for _, line in islice(lines(file), LOOKED_AT))
    start = _CODE_OR_TABLE.sub("", text).split("\n")
    sizes = [len(list(group)) for shown, group in groupby(start, bool) if shown]
    if len(sizes) > 3 and sum(size > 1 for size in sizes) < len(sizes) / 10:
        return APART
    pairs = [two for two in pairwise(start) if all(two) and not _ITEM.match(two[1])]
    lengths = sorted(len(line) for line, _ in pairs)
    if not lengths or (width := lengths[len(lengths) * 9 // 10]) not in WIDTHS:
        return LINES

    def share(test: Callable[[str, str], bool]) -> float:
        """Of the characters: the short lines of an address or a list say little."""
        return sum(len(two[0]) for two in pairs if test(*two)) / sum(lengths)

    full = share(lambda line, below: len(line) + len(below.split()[0]) >= 0.85 * width)
    on = share(lambda line, below: not (SENTENCE_END.search(line) or below[0].isupper()))
    return WRAPPED if full >= 0.7 and on >= 0.5 else LINES


def _of_files(path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    for file in text_paths(path):
        title = file.name if file == path else file.relative_to(path).as_posix()
        read, least = (_lines, 1) if layout(file) == LINES else (_joined, 2)
        found: list[str] = []
        begun = 0  # where the latest document begins, once it has enough paragraphs
        for blank, paragraph in read(file, counts):
            if blank >= least and len(found) - begun >= least:
                begun = len(found)
            found.append(paragraph)
            if 0 < begun == len(found) - least:
                yield title, found[:begun]
                found, begun = found[begun:], 0
        if found:
            yield title, found


def _lines(file: Path, counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield each line that shows something, and how many blank ones are before it."""
    blank = 0
    for _, line in lines(file):
        if not line.strip():
            blank += 1
            continue
        counts["paragraphs"] += 1
        if visible(paragraph := one_line(line)):
            yield blank, paragraph
            blank = 0
        else:
            counts["paragraphs dropped: nothing to be seen"] += 1


def _joined(file: Path, counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of wrapped lines likewise; a heading or a rule is two blank lines."""
    pending: list[str] = []
    before = blank = 0
    in_code = False
    for _, raw in chain(lines(file), [(0, "")]):
        line = one_line(raw).lstrip("> ")  # of an answered e-mail
        fence = line.startswith(("```", "~~~"))
        dropped = fence or in_code or line.startswith("|")
        counts["lines dropped: code or table"] += dropped
        in_code ^= fence
        rule = not dropped and _HEADING_OR_RULE.fullmatch(line)
        text = not dropped and not rule and visible(line)
        if pending and (not text or _ITEM.match(line)):
            counts["paragraphs"] += 1
            counts["lines joined to the one before"] += len(pending) - 1
            yield before, " ".join(pending)
            pending, before = [], 0
        blank = 2 if rule else 0 if line or in_code else blank + 1
        before = max(before, blank)
        if text:
            pending.append(line)
