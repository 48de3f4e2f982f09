"""The links of trees, pairs and coreference chains, counted by hand."""

from helpers.data import links
from helpers.data.links import NO_MENTION, read_links
from helpers.metrics import reference

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


def rows_of(record):
    """List relation, word, query and gold words of each link."""
    made = read_links(record)
    gold = [row.nonzero()[0].tolist() for row in made.gold]
    return list(zip(made.relation, made.word, made.query, gold, strict=True))


def test_read_links_of_a_tree_have_a_root_without_gold_and_read_possessors_from_their_mark():
    assert rows_of(TREE) == [
        ("poss", 0, 1, [2]),
        ("case", 1, 1, [0]),
        ("nsubj", 2, 2, [3]),
        ("root", 3, 3, []),
        ("dobj", 4, 4, [3]),
    ]
    made = read_links(TREE)
    assert made.is_root.tolist() == [False, False, False, True, False]
    assert made.candidates.all() and set(made.mention) == {NO_MENTION}


def test_read_links_of_pairs_have_all_partners_of_a_label():
    pairs = [[0, 1, "x"], [0, 2, "x"], [0, 2, "y"], [1, 1, "root"], [2, 0, "All"], [2, 1, "Root"]]
    assert rows_of({"words": ["a", "b", "c"], "pairs": pairs}) == [
        ("x", 0, 0, [1, 2]),
        ("y", 0, 0, [2]),
        ("root", 1, 1, []),
        ("All (label)", 2, 2, [0]),  # a name of the program's own
        ("Root (label)", 2, 2, [1]),
    ]


def test_read_links_of_coreference_have_antecedents_among_mentions():
    assert rows_of(DOCUMENT) == [
        ("coreference", 2, 2, [0]),
        ("coreference", 5, 5, [3]),
        ("coreference", 7, 7, [0, 2]),
    ]
    made = read_links(DOCUMENT)
    assert made.mention.tolist() == [1, 4, 5]  # by first word, then by last
    assert made.candidates[0].nonzero()[0].tolist() == [0, 3, 4, 5, 7]  # not itself


def test_read_links_of_a_record_without_annotation_are_none():
    made = read_links({"tokens": ["[CLS]", "a"]})
    assert len(made.word) == len(made.gold) == 0 and made.is_root.tolist() == []


def test_names_of_rows_of_tables_are_reserved():
    assert {reference.ALL, reference.EVERY_RELATION, links.COREFERENCE} == links.RESERVED
