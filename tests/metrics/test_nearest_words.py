"""The nearest word of one class, and the tables of section 4.2 that read maps."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from references import MASKS, TO_PARENT, point, random_example, random_treebank, slow_words

from helpers.metrics.dependency_heads import held_out_heads
from helpers.metrics.head_counts import count_heads
from helpers.metrics.heads import head_indices
from helpers.metrics.nearest_words import (
    accuracy_by_distance,
    add_nearest,
    choose_rules,
    judge_words,
    nearest_summary,
    nearest_word,
)

FAR = "heads minus nearest words, far parents"


def test_nearest_word_of_three_words_by_hand():
    tags = ["NOUN", "VERB", "NOUN"]
    assert nearest_word(tags, "VERB", "left").tolist() == [0, 1, 1]
    assert nearest_word(tags, "VERB", "right").tolist() == [1, 1, 2]
    assert nearest_word(tags, "NOUN", "left").tolist() == [0, 0, 0]
    assert nearest_word(tags, "ADV", "left").tolist() == [0, 1, 2]  # none: the word itself
    assert nearest_word([None, "VERB"], "VERB", "right").tolist() == [1, 1]


def slow_nearest(tags, word, rule):
    """Find the nearest word of a rule (class and side), word by word; None if there is none."""
    left, right = range(word - 1, -1, -1), range(word + 1, len(tags))
    side = left if rule[1] == "left" else right
    return next((other for other in side if tags[other] == rule[0]), None)


@pytest.mark.parametrize("mask", MASKS)
def test_rules_and_leads_equal_a_slow_reference(mask):
    treebank = random_treebank(mask)
    held_out = held_out_heads(count_heads(treebank), minimum=3)
    rules = choose_rules(treebank, held_out)
    words = judge_words(treebank, rules)
    for row, head in zip(rules.to_dict("records"), head_indices(rules).T, strict=True):
        questions = slow_words(treebank, row["relation"], row["direction"], *head[1:])
        n_right, leads, far = Counter(), [], []
        chosen = (row["nearest_class"], row["nearest_side"])
        for example, word, query, parents, pick in questions:
            if example.record["split"] == "train":
                for rule in itertools.product(("DET", "NOUN", "VERB"), ("left", "right")):
                    n_right[rule] += slow_nearest(example.record["tags"], word, rule) in parents
                continue
            nearest = slow_nearest(example.record["tags"], word, chosen)
            leads.append((pick in parents) - (nearest in parents))
            distance = min((abs(parent - word) for parent in parents), default=0)
            if nearest is not None and nearest not in parents and distance > 1:
                far.append((pick in parents) - (pick == nearest and pick != query))
        assert n_right[chosen] == max(n_right.values())
        rows = words[words["relation"] == row["relation"]]
        assert 100 * rows["head"].mean() == pytest.approx(row["dev_accuracy"])
        assert rows["head_lead"].tolist() == leads
        assert rows["far_lead"].dropna().sum() == sum(far)
        assert rows["far_lead"].count() == len(far)


@pytest.fixture
def determiners():
    """Determiners with an adjacent parent (train, two of dev) or one beyond a noun (three of dev).

    Head 1-1 finds the parents of all but the last, of which it picks the noun.
    """
    rng = np.random.default_rng(0)
    near = (["the", "house"], ["DET", "NOUN"], 1)
    far = (["the", "stone", "house"], ["DET", "NOUN", "NOUN"], 2)
    sentences = []
    for number, (words, tags, parent) in enumerate([near] * 4 + [far] * 3):
        record = {"words": words, "tags": tags, "pairs": [[0, parent, "det"]]}
        record |= {"split": "train" if number < 2 else "dev", "source": f"article {number}"}
        sentences.append(random_example(rng, "full", record))
        point(sentences[-1], 0, 0, {0: parent if number < 6 else 1})
    return sentences


def test_leads_and_distances_by_hand(determiners):
    held_out = held_out_heads(count_heads(determiners), minimum=1)
    held_out = held_out[held_out["relation"] == "det"].assign(head="1-1", direction=TO_PARENT)
    rules = choose_rules(determiners, held_out)
    assert rules[["nearest_class", "nearest_side"]].to_numpy().tolist() == [["NOUN", "right"]]
    words = judge_words(determiners, rules)
    summary = nearest_summary(words).set_index("quantity")["value"]
    assert summary["mean margin over the nearest word"] == pytest.approx(40)  # 4 and 2 of 5
    assert summary[FAR] == pytest.approx(100 / 3)  # two parents, and the noun once, of three
    table = accuracy_by_distance(words)
    det = table[table["relation"] == "det"].set_index("distance")
    assert det["count"].to_dict() == {"1": 2, "2": 3}
    assert det["head"].tolist() == pytest.approx([100, 200 / 3])
    assert det["nearest"].tolist() == det["offset"].tolist() == [100, 0]
    assert det["head_lead"].tolist() == pytest.approx([0, 200 / 3])
    assert table[table["relation"] == "every relation"]["count"].tolist() == [2, 3]


def test_tables_without_tags_have_heads_and_offsets():
    trees = random_treebank("full")
    without = [replace(tree, record={**tree.record, "tags": None}) for tree in trees]
    held_out = held_out_heads(count_heads(trees), minimum=5)
    rules = choose_rules(without, held_out)
    words = judge_words(without, rules)
    table = accuracy_by_distance(words)
    assert table[["head", "offset"]].notna().all(axis=None)
    assert table[["nearest", "head_lead"]].isna().all(axis=None)
    scores = add_nearest(rules, words)
    assert scores["dev_accuracy"].notna().all() and scores["nearest_accuracy"].isna().all()
    assert nearest_summary(words).empty
