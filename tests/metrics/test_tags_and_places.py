"""The gain of a head over tags and places: by hand, a slow reference, and planted heads."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from references import HEADS, LAYERS, MASKS, point, random_treebank, slow_words

from helpers.data.links import read_links
from helpers.metrics import tags_and_places
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.tags_and_places import (
    MEAN,
    ParentRule,
    addition_table,
    class_heads,
    count_in_class,
    count_with_rule,
)
from helpers.store.store import Example

RULES = pd.DataFrame(
    {"nearest_class": ["VERB", "NOUN"], "nearest_side": ["left", "right"]}, index=["dobj", "det"]
)


def test_parent_rule_counts_cases_and_parents_by_hand():
    record = {
        "words": ["we", "see", "it"], "tags": ["PRON", "VERB", "PRON"], "heads": [2, 0, 2],
        "relations": ["nsubj", "root", "obj"], "split": "train", "source": "a",
    }  # fmt: skip
    example = Example(0, np.full((1, 1, 3, 3), 1 / 3, np.float16), record, offset=0)
    links = read_links(record)
    log_p = ParentRule([example]).log_probabilities(example, links)
    # "it" (obj) has two places: the verb before it is the parent (1 of 1), "we" is not (0 of 1).
    assert np.exp(log_p[2, :2]) == pytest.approx([0.01 / 2, 1.01 / 2])
    assert np.exp(ParentRule([]).log_probabilities(example, links)) == pytest.approx(0.001)


def slow_place(tags, word, other):
    step = 1 if other > word else -1
    between = [tags[j] for j in range(word + step, other + step, step)]
    return tags[other], step, min(between.count(tags[other]), 4), min(abs(other - word), 3)


def slow_log_p(treebank, relation):
    """Count cases and parents of each place, and return the function that gives log P."""
    cases, parents = Counter(), Counter()
    for example, word, _, golds, _ in slow_words(treebank, relation, DIRECTIONS[0], 0, 0):
        if example.record["split"] == "train":
            for other in set(range(len(example.record["words"]))) - {word}:
                place = slow_place(example.record["tags"], word, other)
                cases[place] += 1
                parents[place] += other in golds

    def log_p(tags, word, other):
        place = slow_place(tags, word, other)
        return np.log((parents[place] + 0.01) / (cases[place] + 1) if cases[place] else 0.001)

    return log_p


def slow_answers(tags, weights, seen, word, rule, log_p):
    """Answer one word in every way; ``weights`` and ``seen`` are those of the word that is read."""
    near = sorted(range(len(tags)), key=lambda j: (abs(j - word), j))
    other_words = [j for j in near if j != word and seen[j]]
    class_words = [j for j in other_words if tags[j] == rule[0]]
    on_side = [j for j in near if j < word] if rule[1] == "left" else [j for j in near if j > word]
    by_rule = {j: log_p(tags, word, j) for j in other_words}
    by_both = {j: by_rule[j] + np.log(weights[j] + 1e-5) for j in other_words}
    return {
        "rule": max(other_words, key=by_rule.get, default=None),
        "with_head": max(other_words, key=by_both.get, default=None),
        "nearest": next((j for j in on_side if tags[j] == rule[0]), None),
        "among": max(class_words, key=weights.__getitem__, default=None),
    }


@pytest.mark.parametrize("mask", MASKS)
def test_counts_with_a_rule_and_in_a_class_equal_a_slow_reference(mask):
    treebank = random_treebank(mask)
    all_counts = {
        ("with_head", "rule"): count_with_rule(treebank, RULES),
        ("among", "nearest"): count_in_class(treebank, RULES),
    }
    everything_seen = random_treebank("full")  # the same trees, whose words all count
    for relation, rule in RULES.iterrows():
        log_p = slow_log_p(everything_seen, relation)
        for number, layer, head in np.ndindex(2, LAYERS, HEADS):
            n_right = Counter()
            questions = slow_words(treebank, relation, DIRECTIONS[number], layer, head)
            for example, word, query, parents, _ in questions:
                maps = example.attention[layer, head], example.record["seen"]
                weights, seen = (part.T if number else part for part in maps)
                row = (weights[query + 1, 1:-1], seen[query + 1, 1:-1])
                answers = slow_answers(example.record["tags"], *row, word, tuple(rule), log_p)
                n_right.update(name for name, answer in answers.items() if answer in parents)
            for (by_head, by_rival), counts in all_counts.items():
                assert counts.visible_size(relation)[number, layer] == len(questions) > 5
                right = counts.by_article(counts.right, relation).sum(axis=0)
                assert right[number, layer, head] == n_right[by_head]
                rival_right = counts.by_article(counts.rival_right, relation).sum(axis=0)
                assert rival_right[number, layer, 0] == n_right[by_rival]


def test_tables_name_a_planted_head_and_no_uniform_one(monkeypatch):
    """Head 1-2 attends to parents; the other_words are uniform, and add nothing to the rule."""
    treebank = random_treebank("full", 60)
    for example in treebank:
        example.stored_attention[:] = 1 / len(example)
        point(example, 0, 1, {word: parent for word, parent, _ in example.record["pairs"]})
    answers = {
        "rule": count_with_rule(treebank, RULES),
        "nearest": count_in_class(treebank, RULES),
    }
    assert class_heads(answers)["relation"].isna().all()  # none has 100 words of train
    monkeypatch.setattr(tags_and_places, "TRAIN_WORDS", 10)
    monkeypatch.setattr(tags_and_places, "DEV_WORDS", 10)
    rows = addition_table(answers).set_index("relation")
    single = rows.loc[["dobj", "det"]]
    assert set(single["head"]) == set(single["class_head"]) == {"1-2"}
    assert rows.loc[MEAN, "added_low"] > 20 and rows.loc[MEAN, "with_head"] > 90
    means = single[["with_head", "rule"]].mean()
    assert rows.loc[MEAN, "added"] == pytest.approx(means["with_head"] - means["rule"])
    heads = class_heads(answers)
    assert heads["direction"][1] == DIRECTIONS[0]
    assert heads["among"][1] == pytest.approx(heads["nearest"][1] + heads["lead"][1])
    assert (heads["lead_low"] > 0).tolist() == [False, True, False, False, False, False]
    for example in treebank:
        example.stored_attention[:] = 1 / len(example)
    uniform = {**answers, "rule": count_with_rule(treebank, RULES)}
    assert (addition_table(uniform)["added"] == 0).all()
