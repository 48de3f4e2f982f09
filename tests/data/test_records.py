"""Records, their links and their masks: trees, pairs and chains, counted and written by hand."""

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from helpers.data import links
from helpers.data.links import NO_MENTION, describe_record, read_links
from helpers.data.records import (
    Document,
    Mention,
    Visible,
    cluster_of,
    count_used,
    describe_mask,
    is_punctuation,
    roles,
    visible_mask,
    visible_words,
)
from helpers.metrics import reference

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
TREE = {
    "words": ["Ann", "'s", "dog", "saw", "her"],
    "heads": [3, 1, 4, 0, 4],
    "relations": ["poss", "case", "nsubj", "root", "dobj"],
}
DOCUMENT = {  # [Ann]1 lost [[her]1 ring]2 and [it]2 ; [she]1
    "words": ["Ann", "lost", "her", "ring", "and", "it", ";", "she"],
    "mentions": [
        [5, 6, 2, 5], [0, 1, 1, 0], [2, 4, 2, 3], [2, 3, 1, 2], [7, 8, 1, 7], [4, 5, None, 4],
    ],
}  # fmt: skip


def rows_of(made):
    """List relation, word, query and gold words of each link."""
    gold = [row.nonzero()[0].tolist() for row in made.gold]
    return list(zip(made.relation, made.word, made.query, gold, strict=True))


def test_links_of_a_tree_have_a_root_without_gold_and_read_possessors_from_their_mark():
    made = read_links(TREE)
    assert rows_of(made) == [
        ("poss", 0, 1, [2]),
        ("case", 1, 1, [0]),
        ("nsubj", 2, 2, [3]),
        ("root", 3, 3, []),
        ("dobj", 4, 4, [3]),
    ]
    assert made.is_root.tolist() == [False, False, False, True, False]
    assert made.candidates.all() and set(made.mention) == {NO_MENTION}


def test_links_of_pairs_have_all_partners_of_a_label():
    pairs = [[0, 1, "x"], [0, 2, "x"], [0, 2, "y"], [1, 1, "root"], [2, 0, "All"], [2, 1, "Root"]]
    pairs.append([1, 2, "All (label)"])
    assert rows_of(read_links({"words": ["a", "b", "c"], "pairs": pairs})) == [
        ("x", 0, 0, [1, 2]),
        ("y", 0, 0, [2]),
        ("root", 1, 1, []),
        ("All (label)", 2, 2, [0]),  # a name of the program's own
        ("Root (label)", 2, 2, [1]),
        ("All (label) (label)", 1, 1, [2]),
    ]
    assert {reference.ALL, reference.EVERY_RELATION, links.COREFERENCE} == links.RESERVED


def test_links_of_coreference_have_antecedents_among_mentions():
    made = read_links(DOCUMENT)
    assert rows_of(made) == [
        ("coreference", 2, 2, [0]),
        ("coreference", 5, 5, [3]),
        ("coreference", 7, 7, [0, 2]),
    ]
    assert made.mention.tolist() == [1, 4, 5]  # by first word, then by last
    assert made.candidates[0].nonzero()[0].tolist() == [0, 3, 4, 5, 7]  # not itself
    none = read_links({"tokens": ["[CLS]", "a"]})
    assert len(none.word) == len(none.gold) == 0 and none.is_root.tolist() == []


def test_roles_gives_every_position_one_role():
    tokens = ["[CLS]", "a", ",", "b", ".", "[SEP]", "c", ".", "[SEP]"]
    names = {"[CLS]": "cls", "[SEP]": "sep", ",": "punctuation", ".": "punctuation"}
    token_roles = roles(tokens, BERT)
    assert token_roles.kinds() == [names.get(token, "other") for token in tokens]
    assert (sum(mask.astype(int) for mask in token_roles.masks().values()) == 1).all()
    assert roles(["a", "</s>"], {"cls": None, "sep": "</s>"}).cls is None
    marks = roles([".", ",", "Ġ.", "▁,", "...", ";", "!", "-", "##.", "Ġ", "▁"], BERT).punctuation
    assert marks.tolist() == [True] * 4 + [False] * 7


def test_is_punctuation_of_other_scripts():
    for mark in "。，、｡،۔।॥՝።፣":
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(mark)[0][0]
        assert is_punctuation(mark) and is_punctuation(f"▁{mark}") and is_punctuation(byte_level)
        assert not is_punctuation(byte_level[:-1]) and not is_punctuation(mark + mark)
    for word in ("、の", "?", "؟", "¿", "؛", "·", "", "word", "…", "ÃĢ"):
        assert not is_punctuation(word)


def test_cut_keeps_mentions_that_end_before_it():
    spans = [(0, 1, 1, 0), (1, 2, 2, 1), (2, 5, 1, 2), (3, 4, 2, 3), (4, 6, 3, 4)]
    mentions = tuple(Mention(*span) for span in spans)
    shorter, dropped = Document(tuple("abcdef"), ("X",) * 6, mentions, "dev", "d").cut(4)
    assert (shorter.words, len(shorter.tags)) == (tuple("abcd"), 4)
    assert shorter.mentions == (Mention(0, 1, None, 0), Mention(1, 2, 2, 1), Mention(3, 4, 2, 3))
    assert dropped == 2  # 2-5 crosses; 4-6 lies beyond


@pytest.mark.parametrize(
    ("record", "article"),
    [
        ({"title": "Paris, Texas"}, "Paris, Texas"),
        ({"source": "Paris, Texas, paragraph 12, sentence 3"}, "Paris, Texas"),
        ({"source": "a.conllu, document b-1, sentence b-1-0012"}, "a.conllu, document b-1"),
        ({"source": "bn/abc/00/abc_0001 part 003"}, "bn/abc/00/abc_0001"),
        ({"source": "wsj.txt, sentence 12"}, "wsj.txt, sentence 12 7"),
        ({}, " 7"),
    ],
)
def test_cluster_of_names_the_document_or_the_record_itself(record, article):
    assert cluster_of(record, 7) == article


def test_describe_record_has_text_and_links():
    segment = {"tokens": ["[CLS]", *["a"] * 100], "title": "Cats"}
    assert describe_record(segment) == f"Cats: [CLS]{' a' * 59} ..."
    tree = describe_record({**TREE, "source": "x.conllu"})
    assert tree.startswith("x.conllu: Ann 's dog saw her (poss: Ann > dog; ")
    assert "root: saw > none" in tree and "coreference: it > ring" in describe_record(DOCUMENT)


def test_count_used_counts_what_was_read_and_what_is_used():
    segments = count_used([{}] * 3, {"segments": 20, "segments not sampled": 16})
    assert segments == {"segments": (3, 4)}
    assert count_used([TREE] * 18, {"sentences read": 40}) == {"sentences": (18, 40)}
    documents = count_used([DOCUMENT] * 2, {"documents read": 2, "mentions read": 3799})
    assert documents == {"documents": (2, 2), "mentions": (12, 3799)}


MASKS = {
    Visible(False, None): ["1111", "1111", "1111", "1111"],
    Visible(True, None): ["1000", "1100", "1110", "1111"],
    Visible(False, 1): ["1100", "1110", "0111", "0011"],
    Visible(True, 1): ["1000", "1100", "0110", "0011"],
    Visible(False, 2): ["1110", "1111", "1111", "0111"],
}


def mask_of(rows):
    return np.array([[cell == "1" for cell in row] for row in rows])


@pytest.mark.parametrize(("visible", "rows"), MASKS.items())
def test_masks_are_those_that_are_written_out(visible, rows):
    mask = mask_of(rows)
    assert np.array_equal(visible_mask(visible, 4), mask)
    assert describe_mask(mask) == visible
    groups = [0, 1, 1, 2]  # the word of each token: it sees another if any of its tokens does
    expected = np.zeros((3, 3), dtype=bool)
    for query, key in np.argwhere(mask):
        expected[groups[query], groups[key]] = True
    assert np.array_equal(visible_words(mask, groups), expected)


def test_describe_mask_describes_no_other_mask():
    for rows in (["1100", "1100", "0011", "0011"], ["1110", "1111", "1111", "1111"]):
        assert describe_mask(mask_of(rows)) is None
    long_window = visible_mask(Visible(False, 3), 4)  # limits nothing
    assert describe_mask(long_window) == Visible(False, None)
