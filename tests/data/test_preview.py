"""The lines of a dry run and a report about the data."""

import pytest
from toy_corpora import write

from helpers.data.preview import (
    count_used,
    describe_record,
    describe_used,
    note_text,
    note_unknown,
    unknown_share,
)
from helpers.data.wikipedia import Article, articles, sample_path

SEGMENT = {"tokens": ["[CLS]", "a", "[SEP]", "[UNK]", "[SEP]"], "title": "Cats", "second": 3}
SENTENCE = {
    "words": ["She", "reads", "books"],
    "heads": [2, 0, 2],
    "relations": ["nsubj", "root", "obj"],
    "split": "dev",
    "source": "x.conllu, sentence 1",
    "offset": 1,
    "inputs": {"input_ids": [101, 100, 5, 6, 102], "groups": [0, 1, 2, 3, 4]},
}
DOCUMENT = {
    "words": ["Ann", "lost", "her", "ring", "and", "it"],
    "mentions": [[0, 1, 1, 0], [2, 3, 1, 2], [2, 4, 2, 3], [5, 6, None, 5]],
    "split": "dev",
    "source": "tale-01 (story)",
}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (SEGMENT, "Cats: [CLS] a [SEP] [UNK] [SEP]"),
        (SENTENCE, "x.conllu, sentence 1: She/nsubj<reads reads/root books/obj<reads"),
        (DOCUMENT, "tale-01 (story): [Ann]1 lost [[her]1 ring]2 and [it]"),
        ({"tokens": ["a"] * 100}, "text: " + "a " * 60 + "..."),
    ],
)
def test_describe_record_writes_text_with_its_annotation(record, text):
    assert describe_record(record) == text


def test_count_used_says_how_much_of_what_was_read_is_used():
    assert count_used([SEGMENT] * 3, {"segments": 20, "segments not sampled": 16}) == {
        "segments": (3, 4)
    }
    report = {"sentences read": 40, "sentences dropped: over the token limit": 22}
    sentences = count_used([SENTENCE] * 18, report)
    assert sentences == {"sentences": (18, 40)}
    assert describe_used(sentences) == "18 of 40 sentences are used"
    documents = count_used([DOCUMENT] * 2, {"documents read": 2, "mentions read": 3799})
    assert documents == {"documents": (2, 2), "mentions": (8, 3799)}
    assert describe_used(documents) == "2 of 2 documents and 8 of 3,799 mentions are used"


def test_unknown_share_leaves_special_tokens_out():
    special = {"[CLS]", "[SEP]", "[UNK]", 100, 101, 102}
    assert unknown_share([SEGMENT], {"[UNK]", 100}, special) == 1 / 2
    assert unknown_share([SENTENCE], {"[UNK]", 100}, special) == 1 / 3
    assert unknown_share([], {"[UNK]"}, special) == 0


def test_unknown_share_leaves_the_beginning_of_a_decoders_text_out():
    """GPT-2 begins a text with its unknown token, and knows every byte."""
    record = {"tokens": ["<|endoftext|>", "The", "Ġcat"]}
    assert unknown_share([record], {"<|endoftext|>"}, {"<|endoftext|>"}) == 0


@pytest.mark.parametrize(("share", "noted"), [(0.0, False), (0.049, False), (0.05, True)])
def test_note_unknown_warns_from_a_twentieth(share, noted):
    assert bool(note_unknown(share, "thai")) == noted


WRAPPED = "The keeper counted the birds\non the wire, and said that\nthe road was closed.\n"


def test_note_text_finds_lines_that_end_within_a_sentence(tmp_path):
    (note,) = note_text(articles(write(tmp_path, "a.txt", WRAPPED * 20)))
    assert note.startswith("40 of the first 60 paragraphs end within a sentence")
    (tmp_path / "a.txt").write_text(WRAPPED + "\n" + WRAPPED)
    assert note_text(articles(tmp_path / "a.txt")) == []


@pytest.mark.parametrize(
    "markup",
    ["<p>A cat.</p>", "A [[cat]].", "A {{cat}}.", "| a | cat |", "## Cats", r"\emph{A}", "A&amp;"],
)  # fmt: skip
def test_note_text_finds_markup(markup):
    (note,) = note_text([Article("a", ("A cat, 3 < 4 and 5 > 4.",) * 9 + (markup,))])
    assert note.startswith("1 of the first 10 paragraphs have markup")


def test_note_text_is_empty_for_prose():
    assert note_text(articles(sample_path())) == []
    assert note_text([Article("a", ("ผู้ดูแลปิดประตูตอนเย็น",) * 9)]) == []
    assert note_text([]) == []
