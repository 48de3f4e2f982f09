"""The numbers in the prose of pages, and the cells of the committed tables that they come from.

page_numbers.toml has them: ``text`` is a piece of a page with ``{}`` for each number, and each of
``cells`` names a number, in five parts with " | " between them:

    run/table | rows, as for DataFrame.query | column, as for DataFrame.eval | which | format

"which" is the name of a method of pandas that makes one number of the rows; "item" asks for a
single row.  ``waits = true`` says that the committed run does not have the cell yet.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

NUMBERS = Path(__file__).with_name("page_numbers.toml")
NUMBER = r"(-?\d+(?:\.\d+)?%?)"
# What a page has from a table: percentages, and numbers with a decimal point.
FROM_TABLES = re.compile(r"-?\b\d+(?:\.\d+)?%|-?\b\d+\.\d+\b")
NOT_PROSE = re.compile(
    r"```.*?```|<!-- (?:claims|section \d) -->.*?<!-- end -->|`[^`]*`|\]\([^)]*\)|^#.*?$",
    re.DOTALL | re.MULTILINE,
)


read_table = cache(pd.read_csv)


def read_numbers() -> dict[str, Any]:
    """Read the numbers of the pages."""
    return tomllib.loads(NUMBERS.read_text(encoding="utf-8"))


def cell(figures: Path, description: str) -> str:
    """Compute a number and write it as the page does."""
    name, rows, column, which, style = description.split(" | ")
    run, _, table_name = name.partition("/")
    table = read_table(figures / run / "tables" / f"{table_name}.csv")
    values = pd.Series(table.query(rows).eval(column))
    return format(getattr(values, which)(), style)


def pattern(text: str) -> re.Pattern[str]:
    """Compile a piece of a page: any space, also a line's end, and any numbers."""
    words = [NUMBER.join(map(re.escape, word.split("{}"))) for word in text.split()]
    return re.compile(r"\s+".join(words))


def with_numbers(page: str, figures: Path) -> str:
    """Write the numbers of the prose of a page from the tables.

    Raises
    ------
    ValueError
        If a cell cannot be read; the message has the piece of text.
    """
    for number in read_numbers()["numbers"]:
        match = pattern(number["text"]).search(page)
        if not match or number.get("waits"):
            continue
        try:
            texts = [cell(figures, description) for description in number["cells"]]
        except Exception as error:
            raise ValueError(f"{number['text']}: {error!r}") from error
        for group in range(len(texts), 0, -1):  # from behind, so that positions stay
            page = page[: match.start(group)] + texts[group - 1] + page[match.end(group) :]
    return page


def numbers_without_a_cell(page: str) -> list[str]:
    """List the numbers of the prose of a page that page_numbers.toml does not have."""
    numbers = read_numbers()
    texts = [number["text"] for number in numbers["numbers"]]
    for text in [*texts, *numbers["from_elsewhere"]]:
        page = pattern(text).sub("", page)
    return FROM_TABLES.findall(NOT_PROSE.sub("", page))
