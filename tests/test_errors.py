"""Errors are one line, whatever they quote."""

from helpers.errors import CorpusError


def test_corpus_error_escapes_what_cannot_be_printed():
    error = CorpusError("a.conllu", "שלום e\u0301 a\nb\x1b \u200d; remove it", 3)
    assert str(error) == "a.conllu:3: שלום e\u0301 a\\nb\\x1b \\u200d; remove it"
