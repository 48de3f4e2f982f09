"""Cues are counted as Niven and Kao define them, by hand on a few arguments."""

import pytest

from helpers.studies.argument_cues.arguments import Argument, Arguments
from helpers.studies.argument_cues.cues import ALL, cue_table, cues_by_split, cues_of, words


def argument(name, right, wrong, label, split="train"):
    both = (right, wrong) if label == 0 else (wrong, right)
    return Argument(name, "Go", "It is late.", *both, label, split, negated_claim="Stay")


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
def test_words_of_a_text(text, expected):
    assert words(text) == expected.split()


def row(table, cue):
    (found,) = table[table["cue"] == cue].to_dict("records")
    return found


def test_applicability_productivity_and_coverage_by_hand():
    table = cue_table(FOUR)
    # In a and b the right warrant alone has it, in c the wrong one, in d both have.
    found = row(table, "not")
    assert (found["applicability"], found["arguments"], found["kind"]) == (3, 4, "unigram")
    assert found["productivity"] == pytest.approx(100 * 2 / 3)
    assert found["coverage"] == pytest.approx(75)
    assert found["gain"] == pytest.approx(0.75 * (200 / 3 - 50))
    assert row(table, "is not")["applicability"] == 4  # "cannot" is no "is not"
    assert row(table, "is not")["productivity"] == pytest.approx(75)
    assert "it" not in set(table["cue"])  # in all warrants: applicable to none
    assert table["gain"].is_monotonic_decreasing


def test_every_cue_of_a_naive_count_is_there():
    table = cue_table(FOUR).set_index("cue")
    for cue in {cue for a in FOUR for warrant in a.warrants for cue in cues_of(warrant)}:
        applicable = right = 0
        for a in FOUR:
            there = [cue in cues_of(warrant) for warrant in a.warrants]
            if there[0] != there[1]:
                applicable += 1
                right += there[a.label]
        assert (cue in table.index) == (applicable > 0)
        if applicable:
            assert table.loc[cue, "applicability"] == applicable
            assert table.loc[cue, "productivity"] == pytest.approx(100 * right / applicable)


def test_rare_cues_are_left_out_of_the_table_of_splits():
    many = [argument(str(i), "it is not far", "it is far", i % 2) for i in range(6)]
    rare = [argument(f"r{i}", "hardly", "surely", 0) for i in range(4)]
    counterparts = [one.counterpart() for one in many + rare]
    table = cues_by_split(Arguments("toy", many + rare, counterparts))
    assert set(table["split"]) == {"train", ALL}
    listed = set(table.loc[table["half"] == "original", "cue"])
    assert "not" in listed
    assert "hardly" not in listed  # in four arguments; with their counterparts, in eight
    planted = table[table["cue"] == "not"].groupby("half")["productivity"].agg(set)
    assert planted.to_dict() == {"original": {100}, "adversarial": {0}, "both": {50}}
