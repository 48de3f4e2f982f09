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
    return _change_cells(table, _is_formula, lambda cell: f"'{cell}")


def unescape_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Remove the apostrophes that `escape_formulas` has put before cells."""
    return _change_cells(table, _is_escaped, lambda cell: cell[1:])


def _change_cells(
    table: pd.DataFrame, concerns: Callable[[object], bool], change: Callable[[str], str]
) -> pd.DataFrame:
    """Return a table with some of its cells changed; the table itself if there are none."""
    changed = table
    for position in range(table.shape[1]):
        column = table.iloc[:, position]
        if pd.api.types.is_numeric_dtype(column):
            continue
        rows = [row for row, cell in enumerate(column) if concerns(cell)]
        if not rows:
            continue
        if changed is table:
            changed = table.copy()
        for row in rows:
            changed.iat[row, position] = change(column.iat[row])
    return changed


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and bool(FORMULA_START.match(cell)) and not _is_number(cell)


def _is_escaped(cell: object) -> bool:
    return isinstance(cell, str) and bool(ESCAPED_START.match(cell))


def _is_number(text: str) -> bool:
    """Say whether a text is a number, such as "-0.5": a spreadsheet reads it as one."""
    try:
        float(text)
    except ValueError:
        return False
    return True
