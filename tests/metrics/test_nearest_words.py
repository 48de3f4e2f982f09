"""The nearest word of one class: by hand, and against a slow reference on a gold treebank."""

import os
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.data.columns import read_trees
from helpers.data.visible import Visible
from helpers.metrics.dependency_heads import held_out_heads
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.nearest_words import (
    FAR_PARENTS,
    MEAN_LEAD,
    SHARE_AHEAD,
    accuracy_by_distance,
    add_nearest,
    choose_rules,
    judge_words,
    nearest_summary,
    nearest_word,
)
from helpers.store.store import Example

CORPORA = os.environ.get("CORPORA_DIR")


def example(words, tags, heads, relations, *, split="dev", index=0, source="") -> Example:
    """Make a sentence with uneven random maps of one layer of two heads, and without [CLS]."""
    maps = np.random.default_rng(index).random((1, 2, len(words), len(words)))
    record = {
        "words": list(words),
        "tags": list(tags),
        "heads": list(heads),
        "relations": list(relations),
        "split": split,
        "source": source or f"article {index}, paragraph 1, sentence 1",
    }
    return Example(index, maps.astype(np.float16), record, offset=0)


def point(sentence: Example, head: int, query: int, key: int) -> None:
    """Make a head's word (from 0) attend to one word only."""
    sentence.stored_attention[0, head, query] = 0
    sentence.stored_attention[0, head, query, key] = 1


THREE = (["cats", "chase", "mice"], ["NOUN", "VERB", "NOUN"], [2, 0, 2], ["nsubj", "root", "obj"])


def test_nearest_word_of_three_words_by_hand():
    tags = THREE[1]
    assert nearest_word(tags, "VERB", "left").tolist() == [0, 1, 1]  # mice: chase
    assert nearest_word(tags, "VERB", "right").tolist() == [1, 1, 2]  # cats: chase
    assert nearest_word(tags, "NOUN", "left").tolist() == [0, 0, 0]
    assert nearest_word(tags, "NOUN", "right").tolist() == [2, 2, 2]
    assert nearest_word(tags, "ADV", "left").tolist() == [0, 1, 2]  # none: the word itself
    assert nearest_word([None, "VERB"], "VERB", "right").tolist() == [1, 1]
    assert nearest_word([], "VERB", "left").tolist() == []


def rules_of(treebank, minimum=1) -> pd.DataFrame:
    held_out = held_out_heads(count_heads(treebank), minimum=minimum)
    return choose_rules(treebank, held_out)


def test_choose_rules_of_three_words_by_hand():
    treebank = [example(*THREE, split="train"), example(*THREE, split="dev", index=1)]
    rules = rules_of(treebank).set_index("relation")[["nearest_class", "nearest_side"]]
    assert rules.loc["obj"].tolist() == ["VERB", "left"]
    assert rules.loc["nsubj"].tolist() == ["VERB", "right"]
    scored = add_nearest(rules_of(treebank), judge_words(treebank, rules_of(treebank)))
    scored = scored.set_index("relation")
    assert scored.loc["obj", "nearest_accuracy"] == 100
    # Of all three words, "nearest verb on the left" or "on the right" is right for one.
    assert scored.loc["All", "nearest_accuracy"] == pytest.approx(100 / 3)


def test_choose_rules_without_tags_has_empty_cells():
    untagged = (THREE[0], [], *THREE[2:])
    treebank = [example(*untagged, split="train"), example(*untagged, index=1)]
    rules = rules_of(treebank)
    words = judge_words(treebank, rules)
    table = add_nearest(rules, words)
    assert len(table) == 3
    assert table[["nearest_class", "nearest_side", "nearest_accuracy"]].isna().all(axis=None)
    assert words["nearest"].isna().all()
    by_distance = accuracy_by_distance(words)
    assert by_distance["head"].notna().all() and by_distance["nearest"].isna().all()
    assert nearest_summary(words).empty


def test_rules_of_a_treebank_without_a_frequent_relation_are_empty():
    treebank = [example(*THREE, split="train"), example(*THREE, index=1)]
    rules = rules_of(treebank, minimum=100)
    assert rules.empty
    assert add_nearest(rules, judge_words(treebank, rules)).empty


# "the old cats chase the mice": the nearest noun on the right is the parent of both determiners
FAR = (
    ["the", "stone", "house", "we", "see"],
    ["DET", "NOUN", "NOUN", "PRON", "VERB"],
    [3, 3, 5, 5, 0],
    ["det", "compound", "dobj", "nsubj", "root"],
)
NEAR = (["the", "house"], ["DET", "NOUN"], [2, 0], ["det", "root"])


@pytest.fixture
def det_treebank():
    """Determiners whose nearest noun is the parent (train, two of dev) or not (three of dev).

    Head 1-1 finds the parent of every determiner but the last, of which it picks the nearest noun.
    """
    sentences = [example(*NEAR, split="train", index=0), example(*NEAR, split="train", index=1)]
    sentences += [example(*NEAR, index=index) for index in (2, 3)]
    sentences += [example(*FAR, index=index) for index in (4, 5, 6)]
    for sentence in sentences:
        point(sentence, 0, 0, sentence.record["heads"][0] - 1)
        point(sentence, 1, 0, len(sentence.record["words"]) - 1)
    point(sentences[-1], 0, 0, 1)
    return sentences


def det_rules(treebank):
    rules = rules_of(treebank)
    return rules[rules["relation"] == "det"].assign(head="1-1", direction=DIRECTIONS[0])


def test_nearest_summary_of_far_parents_by_hand(det_treebank):
    rules = det_rules(det_treebank)
    assert rules[["nearest_class", "nearest_side"]].to_numpy().tolist() == [["NOUN", "right"]]
    summary = nearest_summary(judge_words(det_treebank, rules)).set_index("quantity")["value"]
    # Of three words with a parent two words away, the head finds two, and the nearest word once.
    assert summary[FAR_PARENTS] == pytest.approx(100 / 3)


def test_accuracy_by_distance_by_hand(det_treebank):
    rules = det_rules(det_treebank)
    table = accuracy_by_distance(judge_words(det_treebank, rules))
    det = table[table["relation"] == "det"].set_index("distance")
    assert det["count"].to_dict() == {"1": 2, "2": 3}
    assert det["head"].tolist() == pytest.approx([100, 200 / 3])
    assert det["nearest"].tolist() == [100, 0]
    assert det["offset"].tolist() == [100, 0]
    assert det["head_lead"].tolist() == pytest.approx([0, 200 / 3])


def test_accuracy_by_distance_puts_distances_into_four_classes():
    words = pd.DataFrame({"relation": "a", "article": "x", "distance": [0, 1, 2, 3, 5, 6, 40]})
    words = words.assign(head=1.0, offset=0.0, nearest=0.0)
    table = accuracy_by_distance(words).query("relation == 'a'")
    assert dict(zip(table["distance"], table["count"], strict=True)) == {
        "1": 1, "2": 1, "3 to 5": 2, "over 5": 2,
    }  # fmt: skip


def test_nearest_summary_averages_over_relations(det_treebank):
    words = judge_words(det_treebank, det_rules(det_treebank))
    summary = nearest_summary(words).set_index("quantity")["value"]
    assert summary[MEAN_LEAD] == pytest.approx(40)  # head: 4 of 5, nearest noun: 2 of 5
    assert summary[SHARE_AHEAD] == 1


def test_judge_words_under_a_causal_mask_counts_what_can_be_seen():
    """A dependent sees parents on its left only; a parent sees dependents on its left only."""
    treebank = [
        example(*THREE, split="train"),
        *(example(*THREE, split="dev", index=index) for index in (1, 2)),
    ]
    causal = [Visible(causal=True, window=None)]
    treebank = [replace(sentence, visible=causal) for sentence in treebank]
    rules = rules_of(treebank)
    words = judge_words(treebank, rules)
    directions = rules.set_index("relation")["direction"]
    assert directions["obj"] == DIRECTIONS[0]  # "mice" sees "chase"
    assert directions["nsubj"] == DIRECTIONS[1]  # "chase" sees "cats"
    sizes = words["relation"].value_counts()
    held_out = rules.set_index("relation")["dev_count"]
    assert sizes.to_dict() == held_out.to_dict()
    assert sizes["All"] == 4  # of each sentence the root and one other


def slow_rule(trees, relation, rule) -> list[bool]:
    """Apply a rule to the words of a relation, one by one."""
    word_class, side = rule
    right = []
    for tree in trees:
        for word, (parent, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if name == relation:
                before = range(word - 1, -1, -1)
                after = range(word + 1, len(tree.words))
                of_class = (j for j in (before if side == "left" else after)
                            if tree.tags[j] == word_class)  # fmt: skip
                right.append(next(of_class, -9) == parent - 1)
    return right


@pytest.mark.skipif(not CORPORA, reason="CORPORA_DIR is not set")
def test_rules_equal_a_slow_reference_on_a_gold_treebank():
    folder = Path(CORPORA) / "ud_english_ewt"
    (path,) = folder.glob("*dev.conllu*")
    trees = [tree for tree in read_trees(path, Counter()) if len(tree.words) < 40][:600]
    halves = {"train": trees[:400], "dev": trees[400:]}
    treebank = []
    for split, half in halves.items():
        for tree in half:
            index = len(treebank)
            columns = (tree.words, tree.tags, tree.heads, tree.relations)
            treebank.append(example(*columns, split=split, index=index))
    rules = rules_of(treebank, minimum=50)
    scored = add_nearest(rules, judge_words(treebank, rules)).set_index("relation")
    classes = {tag for tree in trees for tag in tree.tags}
    assert {"NOUN", "VERB", "DET"} <= classes
    for relation in ("det", "obj", "nsubj", "case"):
        row = scored.loc[relation]
        chosen = (row["nearest_class"], row["nearest_side"])
        on_train = {}
        for rule in product(classes, ("left", "right")):
            on_train[rule] = np.mean(slow_rule(halves["train"], relation, rule))
        assert on_train[chosen] == max(on_train.values())
        on_dev = 100 * np.mean(slow_rule(halves["dev"], relation, chosen))
        assert row["nearest_accuracy"] == pytest.approx(on_dev)
        margin = row["dev_accuracy"] - row["nearest_accuracy"]
        assert row["nearest_margin"] == pytest.approx(margin)
