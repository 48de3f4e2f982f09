"""Text cells of CSV files that a spreadsheet would otherwise run as formulas.

Tables hold words of a corpus, such as "=", "-LRB-" or "@home", and a spreadsheet takes a cell that
begins with one of the characters ``= + - @``, a tab or the end of a line for a formula. An
apostrophe before it makes it text. Numbers and all other cells stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

FORMULA_START = re.compile(r"'*[=+\-@\t\r\n]")  # after apostrophes of the text's own
ESCAPED_START = re.compile(r"'+[=+\-@\t\r\n]")


def escape_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before each text cell that a spreadsheet would take for a formula."""
    return _change_text(table, _escaped)


def unescape_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Remove the apostrophes that `escape_formulas` has put before cells."""
    return _change_text(table, lambda text: text[bool(ESCAPED_START.match(text)) :])


def _change_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Copy a table with a function applied to its cells of text."""
    changed = table.copy()
    for position, is_numeric in enumerate(map(pd.api.types.is_numeric_dtype, table.dtypes)):
        if not is_numeric:
            cells = [
                change(cell) if isinstance(cell, str) else cell for cell in table.iloc[:, position]
            ]
            changed.isetitem(position, pd.Series(cells, table.index, table.dtypes.iloc[position]))
    return changed


def _escaped(text: str) -> str:
    """Write a text as a cell; a number, such as "-0.5", is one for a spreadsheet as well."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if FORMULA_START.match(text) else text
    return text
