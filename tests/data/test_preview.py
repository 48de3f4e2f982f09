"""The lines of a dry run and a report about the data."""

import pytest
from toy_corpora import corpus_of, write

from helpers.data.preview import (
    check_relations,
    count_used,
    describe_record,
    note_text,
    note_unknown,
)
from helpers.data.records import Sentence
from helpers.data.wikipedia import SAMPLE, Article, articles
from helpers.errors import InputError

SEGMENT = {"tokens": ["[CLS]", "a", "[SEP]", "[UNK]", "[SEP]"], "title": "Cats", "second": 3}
SENTENCE = {
    "words": ["She", "reads", "books"],
    "heads": [2, 0, 2],
    "relations": ["nsubj", "root", "obj"],
    "source": "x.conllu, sentence 1",
    "inputs": {"input_ids": [101, 100, 5, 6, 102]},
}
DOCUMENT = {"words": ["Ann", "lost", "it"], "mentions": [[0, 1, 1, 0], [2, 3, 1, 2]]}


def test_describe_record_has_text_and_links():
    assert describe_record(SEGMENT) == "Cats: [CLS] a [SEP] [UNK] [SEP]"
    for link in ("x.conllu, sentence 1: She reads books", "nsubj: She > reads", "reads > none"):
        assert link in describe_record(SENTENCE)
    assert "it > Ann" in describe_record(DOCUMENT)
    assert describe_record({"tokens": ["a"] * 100}).count("a ") == 60


def test_check_relations_refuses_a_treebank_without_a_row():
    tree = Sentence(("a", "b", "c"), (2, 0, 2), ("det", "root", "det"), "dev", "")
    check_relations(corpus_of([tree] * 2), 4)
    with pytest.raises(InputError, match="of toy, 'det', has 4 words; lower --minimum-count to 4"):
        check_relations(corpus_of([tree] * 2), 5)


def test_count_used_counts_what_was_read_and_what_is_used():
    segments = count_used([SEGMENT] * 3, {"segments": 20, "segments not sampled": 16})
    assert segments == {"segments": (3, 4)}
    assert count_used([SENTENCE] * 18, {"sentences read": 40}) == {"sentences": (18, 40)}
    documents = count_used([DOCUMENT] * 2, {"documents read": 2, "mentions read": 3799})
    assert documents == {"documents": (2, 2), "mentions": (4, 3799)}


@pytest.mark.parametrize(("known", "is_noted"), [(20, False), (19, True)])
def test_note_unknown_warns_from_a_twentieth_of_tokens_that_are_not_special(known, is_noted):
    record = {"tokens": ["[UNK]", "[UNK]", "[SEP]", *["a"] * known]}  # the first is left out
    assert bool(note_unknown([record], {"[UNK]"}, {"[SEP]", "[UNK]"})) == is_noted
    assert note_unknown([SENTENCE], {"[UNK]", 100}, {101, 102}).startswith("33% ")
    assert note_unknown([], {"[UNK]"}, set()) == ""


MARKUP = ["<p>A cat.</p>", "A [[cat]].", "| a | cat |", "## Cats", r"\emph{A}", "A&amp;"]


def test_note_text_counts_markup_and_lines_that_begin_within_a_sentence(tmp_path):
    for markup in MARKUP:
        (note,) = note_text([Article("a", ("A cat, 3 < 4 and 5 > 4.",) * 9 + (markup,))])
        assert note.startswith("1 of the first 10 paragraphs")
    for code in (
        "[12:01] A cat.",
        ">seq_1",
        '"A cat.", 1',
        "2024-01-05 cat",
        "F(x) {",
        "Key = [1]",
    ):
        (note,) = note_text([Article("a", ('"Never," said Ann, "at 10:30."',) * 6 + (code,) * 4)])
        assert note.startswith("4 of the first 10 paragraphs begin or end as code")
    wrapped = "The keeper counted the birds\non the wire, and said that\nthe road was closed.\n"
    (note,) = note_text(articles(write(tmp_path, "a.txt", wrapped * 20)))
    assert note.startswith("40 of the first 60 paragraphs")
    assert note_text(articles(SAMPLE)) == note_text([]) == []
