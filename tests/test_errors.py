"""Errors are one line, whatever they quote."""

from helpers.errors import CorpusError


def test_corpus_error_escapes_what_cannot_be_printed():
    error = CorpusError("a.conllu", "שלום e\u0301 a\nb\x1b \u200d; remove it", 3)
    assert str(error) == "a.conllu:3: שלום e\u0301 a\\nb\\x1b \\u200d; remove it"


def test_corpus_error_keeps_both_ends_of_a_long_message():
    message = str(CorpusError("a.conllu", f"expected a word, found {'x' * 5000}; remove it"))
    assert message.startswith("a.conllu: expected a word, found x")
    assert message.endswith("x; remove it") and len(message) < 320
