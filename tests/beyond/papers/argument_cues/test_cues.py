"""Cues are counted as Niven and Kao define them, by hand on a few arguments."""

import pytest

from beyond.papers.argument_cues.arguments import Argument, Arguments
from beyond.papers.argument_cues.cues import (
    ALL_SPLITS,
    cue_table,
    cues_by_split,
    cues_of,
    words,
)


def argument(name, right, wrong, label, split="train"):
    warrants = (right, wrong) if label == 0 else (wrong, right)
    return Argument(name, "Go", "It is late.", *warrants, label, split, negated_claim="Stay")


FOUR = [
    argument("a", "it is not far", "it is far", 0),
    argument("b", "it is not dark", "it is dark", 1),
    argument("c", "it is dark", "it isn't dark", 1),
    argument("d", "it is not far, not dark", "it cannot be dark", 0),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("They DON'T mind", "they do not mind"),
        ("we won’t, can't, shan't", "we will not can not shall not"),
        ("It isn't; it cannot be!", "it is not it can not be"),
        ("another knot is nothing", "another knot is nothing"),
        ("state-of-the-art isn't Bob's", "state-of-the-art is not bob's"),
        ("'not' -- n't?", "not not"),
        ("50% of 1,000", "50 of 1 000"),
        ("dont", "dont"),
        ("", ""),
    ],
)
def test_words_reads_negations_as_not(text, expected):
    assert words(text) == expected.split()


def test_cue_table_counts_as_by_hand():
    table = cue_table(FOUR).set_index("cue")
    # "not" is only in the right warrant of a and b, only in the wrong one of c, in both of d.
    of_not = table.loc["not"]
    assert (of_not["applicability"], of_not["arguments"], of_not["kind"]) == (3, 4, "unigram")
    assert of_not["productivity"] == pytest.approx(100 * 2 / 3)
    assert of_not["coverage"] == pytest.approx(75)
    assert of_not["gain"] == pytest.approx(0.75 * (200 / 3 - 50))
    assert table.loc["is not", "applicability"] == 4  # "cannot" does not have "is not"
    assert table.loc["is not", "productivity"] == pytest.approx(75)
    assert "it" not in table.index  # in all warrants: applicable to no argument
    assert table["gain"].is_monotonic_decreasing


def naive_count(cue):
    """Count the arguments that a cue is applicable to, and those in which it is right."""
    applicable = right = 0
    for argument in FOUR:
        has_cue = [cue in cues_of(warrant) for warrant in argument.warrants]
        if has_cue[0] != has_cue[1]:
            applicable += 1
            right += has_cue[argument.label]
    return applicable, right


def test_cue_table_has_every_cue_of_a_naive_count():
    table = cue_table(FOUR).set_index("cue")
    cues = set()
    for argument in FOUR:
        cues |= cues_of(argument.warrant0) | cues_of(argument.warrant1)
    for cue in cues:
        applicable, right = naive_count(cue)
        assert (cue in table.index) == (applicable > 0)
        if applicable:
            assert table.loc[cue, "applicability"] == applicable
            assert table.loc[cue, "productivity"] == pytest.approx(100 * right / applicable)


def test_cues_by_split_leaves_rare_cues_out():
    frequent = [argument(str(i), "it is not far", "it is far", i % 2) for i in range(6)]
    rare = [argument(f"r{i}", "hardly", "surely", 0) for i in range(4)]
    originals = frequent + rare
    counterparts = [original.counterpart() for original in originals]
    table = cues_by_split(Arguments("toy", originals, counterparts))
    assert set(table["split"]) == {"train", ALL_SPLITS}
    cues_of_originals = set(table.loc[table["half"] == "original", "cue"])
    assert "not" in cues_of_originals
    assert "hardly" not in cues_of_originals  # in four arguments; with counterparts, in eight
    planted = table[table["cue"] == "not"].groupby("half")["productivity"].agg(set)
    assert planted.to_dict() == {"original": {100}, "adversarial": {0}, "both": {50}}
