"""Parses against gold trees, and heads scored with both."""

import numpy as np
import pandas as pd
import pytest

from beyond import silver_parses
from beyond.silver_parses import gold_and_silver, silver_quality
from helpers.data.records import Sentence
from helpers.metrics.heads import DIRECTIONS
from helpers.store.store import Example


def test_silver_quality_of_two_schemes(monkeypatch):
    """Compare "the cat is on a big mat": UD hangs all on "mat", CLEAR on "is"."""
    words = ("the", "cat", "is", "on", "a", "big", "mat")
    names = ("det", "nsubj", "cop", "case", "det", "flat", "root")
    gold = Sentence(words, (2, 7, 7, 7, 7, 7, 0), names, "dev", "")
    relations = ["det", "nsubj", "ROOT", "prep", "det", "amod", "pobj"]
    parse = gold._replace(heads=[2, 3, 0, 3, 7, 5, 4], relations=relations)
    monkeypatch.setattr(silver_parses, "parse_words", lambda words: [parse] * len(words))
    table = silver_quality([gold, gold._replace(split="train")], minimum=1).set_index("relation")
    assert table.loc["All", "attachment"] == pytest.approx(100 * 2 / 7)  # the, a
    # Whatever hangs on "mat" can move with the copula; only the "the" of "the cat" is left.
    assert table.loc["same conventions", ["count", "attachment"]].tolist() == [1, 100]
    assert table.loc["det", ["count", "comparable"]].tolist() == [2, 1]
    columns = ["attachment", "inverted", "silver_relation"]
    assert table.loc["case", columns].tolist() == [0, 100, "prep"]
    assert table.loc["cop", "inverted"] == 0  # its predicate hangs on the preposition
    frequent = silver_quality([gold], minimum=2)["relation"]
    assert frequent.tolist() == ["All", "same conventions", "det"]


WORDS = ["she", "saw", "the", "cat"]
GOLD = {"heads": [2, 0, 4, 2], "relations": ["nsubj", "root", "det", "obj"]}
# The parser hangs "the" on "saw", and calls the cat an attribute.
SILVER = {"heads": (2, 0, 2, 2), "relations": ("nsubj", "ROOT", "det", "attr")}


def test_gold_and_silver_scores_the_same_head_with_both_trees(monkeypatch):
    """Three dev sentences and one of train, in which the only head finds all gold heads."""
    maps = np.zeros((1, 1, 6, 6), np.float16)
    maps[..., np.arange(6), [0, 2, 5, 4, 2, 5]] = 1
    parse = Sentence(tuple(WORDS), *SILVER.values(), "", "")
    monkeypatch.setattr(silver_parses, "parse_words", lambda words: [parse] * len(words))
    examples = []
    for index, split in enumerate(("dev", "train", "dev", "dev")):
        record = {"words": WORDS, **GOLD, "split": split, "source": f"article {index}"}
        examples.append(Example(index, maps, record))
    held_out = pd.DataFrame({"relation": ["All", "nsubj", "det", "obj"], "head": "1-1"})
    held_out["direction"] = DIRECTIONS[0]
    table = gold_and_silver(examples, held_out)
    columns = ["relation", "gold_count", "silver_count", "gold", "silver", "difference"]
    assert table[columns].to_numpy().tolist() == [  # no word of the parses is a dobj
        ["nsubj", 3, 3, 100, 100, 0], ["det", 3, 3, 100, 0, -100],
    ]  # fmt: skip


def test_parse_words_keeps_words_and_gives_one_root():
    she, two, york, empty = silver_parses.parse_words(
        [["She", "saw", "him", "."], ["One", ".", "Two", "."], ["New York", "is", "big"], []]
    )
    assert she[1:3] == ((2, 0, 2, 2), ("nsubj", "root", "dobj", "punct"))
    assert two.heads.count(0) == 1 and len(two.heads) == 4
    assert york.heads == (2, 0, 2) and empty.heads == empty.relations == ()
