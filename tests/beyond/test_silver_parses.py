"""Parses against gold trees, and heads scored with both."""

import numpy as np
import pandas as pd
import pytest

from beyond import silver_parses
from beyond.silver_parses import gold_and_silver, silver_quality
from helpers.data.records import Sentence
from helpers.metrics.heads import DIRECTIONS
from helpers.store.store import Example


@pytest.fixture
def agreement(monkeypatch) -> pd.DataFrame:
    """Agreement about "the cat is on a big mat": UD hangs all on "mat", CLEAR on "is"."""
    words = ("the", "cat", "is", "on", "a", "big", "mat")
    names = ("det", "nsubj", "cop", "case", "det", "flat", "root")
    gold = Sentence(words, (2, 7, 7, 7, 7, 7, 0), names, "dev", "")
    relations = ["det", "nsubj", "ROOT", "prep", "det", "amod", "pobj"]
    parse = gold._replace(heads=[2, 3, 0, 3, 7, 5, 4], relations=relations)
    monkeypatch.setattr(silver_parses, "parse_words", lambda words: [parse] * len(words))
    in_train = gold._replace(split="train")  # is left out
    return silver_quality([gold, in_train], minimum=1).set_index("relation")


def test_silver_quality_counts_words_with_the_same_head(agreement):
    assert agreement.loc["All", "attachment"] == pytest.approx(100 * 2 / 7)  # the, a


def test_silver_quality_leaves_out_words_that_a_copula_moves(agreement):
    """Whatever hangs on "mat" can move with the copula; only the "the" of "the cat" is left."""
    assert agreement.loc["same conventions", ["count", "attachment"]].tolist() == [1, 100]
    assert agreement.loc["det", ["count", "comparable"]].tolist() == [2, 1]


def test_silver_quality_leaves_out_rare_relations_and_other_schemes(monkeypatch):
    words = ("the", "cat", "saw", "the", "dog")
    gold = Sentence(words, (2, 3, 0, 5, 3), ("det", "nsubj", "root", "det", "obj"), "dev", "")
    monkeypatch.setattr(silver_parses, "parse_words", lambda words: [gold])
    assert silver_quality([gold], minimum=2)["relation"].tolist() == [
        "All",
        "same conventions",
        "det",
    ]
    in_clear = gold._replace(relations=("det", "nsubj", "ROOT", "det", "dobj"))
    assert silver_quality([in_clear], minimum=1) is None


def test_silver_quality_finds_inverted_arcs(agreement):
    case = agreement.loc["case"]
    assert case["attachment"] == 0
    assert case["inverted"] == 100
    assert case["silver_relation"] == "prep"
    assert agreement.loc["cop", "inverted"] == 0  # its predicate hangs on the preposition


WORDS = ["she", "saw", "the", "cat"]
GOLD = {"heads": [2, 0, 4, 2], "relations": ["nsubj", "root", "det", "obj"]}
# The parser hangs "the" on "saw", and calls the cat an attribute.
SILVER = {"heads": (2, 0, 2, 2), "relations": ("nsubj", "ROOT", "det", "attr")}


@pytest.fixture
def sentences(monkeypatch) -> list[Example]:
    """Three dev sentences and one of train, in which the only head finds all gold heads."""
    maps = np.zeros((1, 1, 6, 6), np.float16)
    maps[..., np.arange(6), [0, 2, 5, 4, 2, 5]] = 1
    parse = Sentence(tuple(WORDS), *SILVER.values(), "", "")
    monkeypatch.setattr(silver_parses, "parse_words", lambda words: [parse] * len(words))
    examples = []
    for index, split in enumerate(("dev", "train", "dev", "dev")):
        record = {"words": WORDS, **GOLD, "split": split, "source": f"article {index}"}
        examples.append(Example(index, maps, record))
    return examples


def held_out_of(*relations) -> pd.DataFrame:
    """Make held-out rows of the only head."""
    rows = [{"relation": name, "head": "1-1", "direction": DIRECTIONS[0]} for name in relations]
    return pd.DataFrame(rows)


def test_gold_and_silver_scores_the_same_head_with_both_trees(sentences):
    table = gold_and_silver(sentences, held_out_of("All", "nsubj", "det", "obj"))
    assert table["relation"].tolist() == ["nsubj", "det"]  # no word of the parses is a dobj
    det = table.set_index("relation").loc["det"]
    assert det[["gold_count", "silver_count"]].tolist() == [3, 3]
    assert det[["gold", "silver", "difference"]].tolist() == [100, 0, -100]
    nsubj = table.set_index("relation").loc["nsubj"]
    assert nsubj[["silver_relation", "gold", "silver", "difference"]].tolist() == [
        "nsubj", 100, 100, 0,
    ]  # fmt: skip


def test_gold_and_silver_needs_universal_dependencies(sentences):
    assert gold_and_silver(sentences, held_out_of("All", "nsubj", "dobj", "prep")) is None


def test_parse_words_keeps_words_and_gives_one_root():
    she, two, york, empty = silver_parses.parse_words(
        [["She", "saw", "him", "."], ["One", ".", "Two", "."], ["New York", "is", "big"], []]
    )
    assert she[1:3] == ((2, 0, 2, 2), ("nsubj", "root", "dobj", "punct"))
    assert two.heads.count(0) == 1 and len(two.heads) == 4
    assert york.heads == (2, 0, 2) and empty.heads == empty.relations == ()
