"""Cues are counted as Niven and Kao define them, by hand on a few arguments."""

import pytest

from beyond.papers.argument_cues.arguments import Argument, Arguments
from beyond.papers.argument_cues.cues import cue_table, cues_by_split, cues_of, words


def argument(name, right, wrong, label):
    warrants = (right, wrong) if label == 0 else (wrong, right)
    return Argument(name, "Go", "It is late.", *warrants, label, "train", negated_claim="Stay")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("They DON'T mind: 1,000", "they do not mind 1 000"),
        ("we won’t, can't, shan't", "we will not can not shall not"),
        ("It isn't; it cannot be!", "it is not it can not be"),
        ("another knot is nothing", "another knot is nothing"),
        ("state-of-the-art isn't Bob's", "state-of-the-art is not bob's"),
        ("'not' -- n't? dont", "not not dont"),
    ],
)
def test_words_reads_negations_as_not(text, expected):
    assert words(text) == expected.split()
    assert words("") == []


def test_cue_table_counts_every_cue_as_by_hand():
    arguments = [
        argument("a", "it is not far", "it is far", 0),
        argument("b", "it is not dark", "it is dark", 1),
        argument("c", "it is dark", "it isn't dark", 1),
        argument("d", "it is not far, not dark", "it cannot be dark", 0),
    ]
    table = cue_table(arguments).set_index("cue")
    # "not" is only in the right warrant of a and b, only in the wrong one of c, in both of d.
    columns = ["kind", "applicability", "productivity", "coverage", "gain"]
    row_of_not = ["unigram", 3, *map(pytest.approx, (200 / 3, 75, 12.5))]
    assert table.loc["not", columns].tolist() == row_of_not
    assert table["gain"].is_monotonic_decreasing
    counts = {}
    for argument_of_four in arguments:
        first, second = map(cues_of, argument_of_four.warrants)
        for cue in first ^ second:
            counts.setdefault(cue, []).append((cue in second) == argument_of_four.label)
    assert set(table.index) == set(counts)
    for cue, right in counts.items():
        expected = [len(right), pytest.approx(100 * sum(right) / len(right))]
        assert table.loc[cue, ["applicability", "productivity"]].tolist() == expected


def test_cues_by_split_leaves_rare_cues_out():
    frequent = [argument(str(i), "it is not far", "it is far", i % 2) for i in range(6)]
    rare = [argument(f"r{i}", "hardly", "surely", 0) for i in range(4)]
    originals = frequent + rare
    counterparts = [original.counterpart() for original in originals]
    table = cues_by_split(Arguments("toy", originals, counterparts))
    assert set(table["split"]) == {"train", "all"}
    # In four arguments; with counterparts, in eight.
    assert set(table.loc[table["cue"] == "hardly", "half"]) == {"both"}
    planted = table[table["cue"] == "not"].groupby("half")["productivity"].agg(set)
    assert planted.to_dict() == {"original": {100}, "adversarial": {0}, "both": {50}}
