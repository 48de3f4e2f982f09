"""The lines of a dry run and a report about the data."""

import pytest
from toy_corpora import write

from helpers.data.preview import (
    count_used,
    describe_record,
    note_text,
    note_unknown,
)
from helpers.data.wikipedia import SAMPLE, Article, articles

SEGMENT = {"tokens": ["[CLS]", "a", "[SEP]", "[UNK]", "[SEP]"], "title": "Cats", "second": 3}
SENTENCE = {
    "words": ["She", "reads", "books"],
    "heads": [2, 0, 2],
    "relations": ["nsubj", "root", "obj"],
    "source": "x.conllu, sentence 1",
    "inputs": {"input_ids": [101, 100, 5, 6, 102]},
}
DOCUMENT = {
    "words": ["Ann", "lost", "her", "ring", "and", "it"],
    "mentions": [[0, 1, 1, 0], [2, 3, 1, 2], [2, 4, 2, 3], [5, 6, None, 5]],
    "source": "tale-01 (story)",
}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (SEGMENT, "Cats: [CLS] a [SEP] [UNK] [SEP]"),
        (SENTENCE, "x.conllu, sentence 1: She reads books "
         "(nsubj: She > reads; root: reads > none; obj: books > reads)"),
        (DOCUMENT, "tale-01 (story): Ann lost her ring and it (coreference: her > Ann)"),
        ({"tokens": ["a"] * 100}, "text: " + "a " * 60 + "..."),
    ],
)  # fmt: skip
def test_describe_record_writes_text_with_its_annotation(record, text):
    assert describe_record(record) == text


def test_count_used_counts_what_was_read_and_what_is_used():
    segments = count_used([SEGMENT] * 3, {"segments": 20, "segments not sampled": 16})
    assert segments == {"segments": (3, 4)}
    assert count_used([SENTENCE] * 18, {"sentences read": 40}) == {"sentences": (18, 40)}
    documents = count_used([DOCUMENT] * 2, {"documents read": 2, "mentions read": 3799})
    assert documents == {"documents": (2, 2), "mentions": (8, 3799)}


def test_note_unknown_leaves_special_tokens_and_the_first_out():
    special = {"[CLS]", "[SEP]", "[UNK]", 100, 101, 102}
    assert note_unknown([SEGMENT], {"[UNK]", 100}, special).startswith("50% ")
    assert note_unknown([SENTENCE], {"[UNK]", 100}, special).startswith("33% ")
    assert note_unknown([], {"[UNK]"}, special) == ""
    gpt2 = {"tokens": ["<|endoftext|>", "The", "Ġcat"]}  # begins with its unknown token
    assert note_unknown([gpt2], {"<|endoftext|>"}, {"<|endoftext|>"}) == ""


@pytest.mark.parametrize(("known", "is_noted"), [(20, False), (19, True)])
def test_note_unknown_warns_from_a_twentieth(known, is_noted):
    record = {"tokens": ["[CLS]", "[UNK]", *["a"] * known]}
    assert bool(note_unknown([record], {"[UNK]"}, {"[CLS]", "[UNK]"})) == is_noted


WRAPPED = "The keeper counted the birds\non the wire, and said that\nthe road was closed.\n"


def test_note_text_counts_lines_that_end_within_a_sentence(tmp_path):
    (note,) = note_text(articles(write(tmp_path, "a.txt", WRAPPED * 20)))
    assert note.startswith("40 of the first 60 paragraphs")
    assert note_text(articles(write(tmp_path, "a.txt", WRAPPED + "\n" + WRAPPED))) == []


@pytest.mark.parametrize(
    "markup",
    ["<p>A cat.</p>", "A [[cat]].", "A {{cat}}.", "| a | cat |", "## Cats", r"\emph{A}", "A&amp;"],
)
def test_note_text_counts_markup(markup):
    (note,) = note_text([Article("a", ("A cat, 3 < 4 and 5 > 4.",) * 9 + (markup,))])
    assert note.startswith("1 of the first 10 paragraphs")


def test_note_text_is_empty_for_prose():
    assert note_text(articles(SAMPLE)) == note_text([]) == []
