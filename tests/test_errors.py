"""Errors are one line, whatever they quote."""

import pytest

from helpers.errors import CorpusError


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [("שלום e\u0301 東京", "שלום e\u0301 東京"), ("a\nb\x1b", r"a\nb\x1b"), ("\u200d", r"\u200d")],
)
def test_corpus_error_escapes_what_cannot_be_printed(quoted, shown):
    error = CorpusError("a.conllu", f"{quoted} is no word; remove it", 3)
    assert str(error) == f"a.conllu:3: {shown} is no word; remove it"


def test_corpus_error_keeps_both_ends_of_a_long_message():
    message = str(CorpusError("a.conllu", f"expected a word, found {'x' * 5000}; remove it"))
    assert message.startswith("a.conllu: expected a word, found x")
    assert message.endswith("x; remove it")
    assert len(message) < 320
    fitting = "x" * 280
    assert str(CorpusError("a", fitting)) == f"a: {fitting}"
