"""Words of a corpus that a spreadsheet would run as formulas are written as text."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.results import ESCAPE, FORMULA, read_tables, write_table
from helpers.run import report

FORMULAS = ["=1+1", "+", "-LRB-", "--", "@home", "\tx", "'=x", "''-", '=HYPERLINK("x")']
PLAIN = ["word", "", "'s", "'", "a=b", "3-1", "-0.5", "+1e3", "-inf"]


@pytest.fixture
def table():
    """A table with words that look like formulas, words that do not, and numbers."""
    words = FORMULAS + PLAIN
    numbers = [-(row / 2) for row in range(len(words))]
    return pd.DataFrame({"word": words, "count": range(len(words)), "difference": numbers})


def escaped(table):
    return table.replace(FORMULA, "'", regex=True)


def test_an_apostrophe_is_put_before_formulas_only(table):
    cells = escaped(table)
    assert cells["word"].tolist() == [f"'{word}" for word in FORMULAS] + PLAIN
    pd.testing.assert_frame_equal(cells.drop(columns="word"), table.drop(columns="word"))


def test_every_cell_is_read_as_it_was(table):
    pd.testing.assert_frame_equal(escaped(table).replace(ESCAPE, "", regex=True), table)
    plain = table.tail(len(PLAIN))
    pd.testing.assert_frame_equal(plain.replace(ESCAPE, "", regex=True), plain)


def test_missing_values_and_numbers_of_mixed_columns_stay():
    mixed = pd.DataFrame({"mixed": [-1, None, "-", 0.5]}, dtype=object)
    assert escaped(mixed)["mixed"].tolist() == [-1, None, "'-", 0.5]


def test_cells_under_a_repeated_column_name_are_escaped():
    repeated = pd.DataFrame([["=a", "=b"]], columns=["word", "word"])
    assert escaped(repeated).to_numpy().tolist() == [["'=a", "'=b"]]


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
