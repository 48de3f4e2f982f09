"""Mentions in a column: brackets with chain numbers on the first and last word.

``(7`` opens a mention of chain 7, ``7)`` closes it, ``(7)`` is a mention of one word.  Mentions of
different chains may cross.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from helpers.data.records import Span
from helpers.data.text_files import quoted
from helpers.errors import CorpusError

# Nine digits at most: no chain has more, int() fails over 4,300, and a search for the bracket
# after a million digits would start again at each of them.
_BRACKET = re.compile(r"\(([0-9]{1,9})\)|\(([0-9]{1,9})(?![0-9])|([0-9]{1,9})\)")


def column_spans(path: Path, lines: Sequence[int], cells: Sequence[str]) -> tuple[Span, ...]:
    """Return the mentions of one document, in order; ``lines`` and ``cells`` have one a word.

    Raises:
        CorpusError: with the line, for anything but brackets, and brackets without a partner.
    """
    spans: list[Span] = []
    opened: dict[int, list[int]] = defaultdict(list)  # chain: first words, innermost last
    for place, (line, cell) in enumerate(zip(lines, cells, strict=True)):
        if cell in ("-", "_"):
            continue
        if _BRACKET.sub("", cell).replace("|", ""):
            advice = "expected brackets with chain numbers such as (3|(4) or 3)"
            raise CorpusError(path, f"coreference {quoted(cell)}; {advice}", line=line)
        for single, opening, closing in _BRACKET.findall(cell):
            chain = int(single or opening or closing)
            if single:
                spans.append(Span(place, place + 1, chain))
            elif opening:
                opened[chain].append(place)
            elif opened[chain]:
                spans.append(Span(opened[chain].pop(), place + 1, chain))
            else:
                raise CorpusError(path, f"{chain}) closes no mention", line=line)
    for chain, starts in opened.items():
        if starts:
            raise CorpusError(path, f"({chain} is never closed", line=lines[starts[0]])
    return tuple(sorted(spans, key=itemgetter(0, 1)))
