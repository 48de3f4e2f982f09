"""Words of a corpus that a spreadsheet would run as formulas are written as text."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.csv_cells import escape_formulas, unescape_formulas
from helpers.results import read_tables, write_table
from helpers.run import report

FORMULAS = ["=1+1", "+", "-LRB-", "--", "@home", "\tx", "'=x", "''-", '=HYPERLINK("x")']
PLAIN = ["word", "", "'s", "'", "a=b", "3-1", "-0.5", "+1e3", "-inf"]


@pytest.fixture
def table():
    """A table with words that look like formulas, words that do not, and numbers."""
    words = FORMULAS + PLAIN
    numbers = [-(row / 2) for row in range(len(words))]
    return pd.DataFrame({"word": words, "count": range(len(words)), "difference": numbers})


def test_escape_formulas_puts_an_apostrophe_before_formulas_only(table):
    escaped = escape_formulas(table)
    assert escaped["word"].tolist() == [f"'{word}" for word in FORMULAS] + PLAIN
    pd.testing.assert_frame_equal(escaped.drop(columns="word"), table.drop(columns="word"))
    assert table["word"].tolist() == FORMULAS + PLAIN


def test_unescape_formulas_restores_every_cell(table):
    pd.testing.assert_frame_equal(unescape_formulas(escape_formulas(table)), table)
    plain = table.tail(len(PLAIN))
    pd.testing.assert_frame_equal(unescape_formulas(plain), plain)


def test_escape_formulas_keeps_missing_values_and_numbers_of_mixed_columns():
    mixed = pd.DataFrame({"mixed": [-1, None, "-", 0.5]}, dtype=object)
    assert escape_formulas(mixed)["mixed"].tolist() == [-1, None, "'-", 0.5]
    no_formula = mixed.drop(index=2)
    pd.testing.assert_frame_equal(escape_formulas(no_formula), no_formula)


def test_escape_formulas_finds_cells_under_a_repeated_column_name():
    repeated = pd.DataFrame([["=a", "=b"]], columns=["word", "word"])
    assert escape_formulas(repeated).to_numpy().tolist() == [["'=a", "'=b"]]


def test_write_table_and_read_tables_keep_every_word(table, tmp_path):
    written = table[table["word"] != ""]
    write_table(written, tmp_path / "tables", "words")
    lines = (tmp_path / "tables" / "words.csv").read_text(encoding="utf-8").splitlines()
    assert "'+,1,-0.5" in lines
    assert not any(line.startswith(("=", "+,", "--", "-L", "@", "\t")) for line in lines)
    read = read_tables(tmp_path)["words"]
    assert read["word"].tolist() == written["word"].tolist()
    assert read["difference"].tolist() == written["difference"].tolist()


def test_report_table_has_words_without_the_apostrophe(table, tmp_path):
    write_table(table, tmp_path, "words")
    report_table = report._table(tmp_path / "words.csv")
    words = [row[0] for row in report_table["rows"]]
    assert words[: len(FORMULAS)] == FORMULAS
