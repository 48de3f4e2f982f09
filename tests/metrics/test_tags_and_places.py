"""What a head adds to tags and places: by hand, a slow reference, a planted effect and a null."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from helpers.data.links import read_links
from helpers.data.records import Visible
from helpers.metrics.heads import DIRECTIONS
from helpers.metrics.tags_and_places import (
    MEAN,
    ParentRule,
    addition_table,
    class_heads,
    count_in_class,
    count_with_rule,
    gain_table,
    places,
)
from helpers.store.store import Example

RULES = pd.DataFrame(
    {"nearest_class": ["VERB", "NOUN"], "nearest_side": ["left", "right"]}, index=["obj", "det"]
)
MASKS = {
    "full": Visible(causal=False, window=None),
    "causal": Visible(causal=True, window=None),
    "window": Visible(causal=False, window=2),
}


def sentence(index, *, split, random, mask="full"):
    """Make a sentence of random tags, trees and maps (one layer, two heads)."""
    n = int(random.integers(4, 9))
    tags = random.choice(["NOUN", "VERB", "DET"], n).tolist()
    heads = [int(random.choice([other for other in range(n) if other != word])) + 1
             for word in range(n)]  # fmt: skip
    heads[0] = 0
    relations = ["root", *random.choice(["obj", "det", "other"], n - 1)]
    maps = random.dirichlet(np.ones(n), (1, 2, n)).astype(np.float16)
    record = {
        "words": [f"w{word}" for word in range(n)], "tags": tags, "heads": heads,
        "relations": relations, "split": split, "source": f"article {index % 7}, paragraph 1",
    }  # fmt: skip
    return Example(index, maps, record, offset=0, visible=[MASKS[mask]])


def treebank(mask="full", size=60):
    random = np.random.default_rng(0)
    splits = ["train", "dev"]
    return [sentence(i, split=splits[i % 2], random=random, mask=mask) for i in range(size)]


def test_places_of_four_words_by_hand():
    numbers = places(["NOUN", "VERB", "NOUN", "NOUN"])
    # From the verb: the noun before; the first noun after, next to it; the second, two away.
    assert len({numbers[1, 0], numbers[1, 2], numbers[1, 3]}) == 3
    # From the first noun, the last is the second noun after, three away; from the verb, two.
    assert numbers[0, 3] != numbers[1, 3]
    # The verb before, two words away or three, is not the same place; far words of a rank are.
    assert numbers[2, 1] != numbers[3, 1]
    far = places(["VERB", "DET", "DET", "DET", "NOUN", "NOUN"])
    assert far[4, 0] == far[5, 0]


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


def count_additions(examples, rules):
    return {"rule": count_with_rule(examples, rules), "nearest": count_in_class(examples, rules)}


def slow_place(tags, word, other):
    step = 1 if other > word else -1
    between = [tags[j] for j in range(word + step, other + step, step)]
    return tags[other], step, min(between.count(tags[other]), 4), min(abs(other - word), 3)


def words_of(record):
    return enumerate(zip(record["heads"], record["relations"], strict=True))


def slow_rule(examples):
    """Count cases and parents of each place, and return the function that gives log P."""
    cases, parents = Counter(), Counter()
    for record in (each.record for each in examples if each.record["split"] == "train"):
        for word, (head, relation) in words_of(record):
            for other in set(range(len(record["words"]))) - {word}:
                key = (relation, *slow_place(record["tags"], word, other))
                cases[key] += 1
                parents[key] += other == head - 1

    def log_p(relation, tags, word, other):
        key = (relation, *slow_place(tags, word, other))
        return np.log((parents[key] + 0.01) / (cases[key] + 1) if cases[key] else 0.001)

    return log_p


def slow_answer(example, word, log_p, direction):
    """Answer one word in every way: what the rule, the heads with it, and among a class find."""
    record, tags = example.record, example.record["tags"]
    head, relation = record["heads"][word] - 1, record["relations"][word]
    others = []
    for other in sorted(range(len(tags)), key=lambda j: (abs(j - word), j)):
        pair = (word, other) if direction == 0 else (other, word)
        if other != word and example.visible_keys[0][pair]:
            weights = example.stored_attention[0, :, *pair].astype(float)
            others.append((other, log_p(relation, tags, word, other), weights))
    of_class = [each for each in others if tags[each[0]] == RULES["nearest_class"][relation]]
    nothing = (-1,)
    answer: dict = {"counts": head in [other for other, *_ in others]}
    word_class, side = RULES.loc[relation]
    steps = range(1, len(tags)) if side == "right" else range(-1, -len(tags), -1)
    inside = [word + step for step in steps if 0 <= word + step < len(tags)]
    nearest = next((other for other in inside if tags[other] == word_class), -1)
    answer["nearest"] = answer["counts"] and nearest == head
    answer["rule"] = max(others, key=lambda each: each[1], default=nothing)[0] == head
    for number in (0, 1):
        both = max(others, key=lambda e: e[1] + np.log(e[2][number] + 1e-5), default=nothing)
        answer["with_head", number] = both[0] == head
        most = max(of_class, key=lambda each: each[2][number], default=nothing)
        answer["among", number] = most[0] == head
    return answer


@pytest.mark.parametrize("mask", MASKS)
def test_count_additions_equals_a_slow_reference(mask):
    examples = treebank(mask)
    counts = count_additions(examples, RULES)
    log_p = slow_rule(examples)
    for direction, relation in np.ndindex(2, 2):
        name = RULES.index[relation]
        answers = [
            slow_answer(example, word, log_p, direction)
            for example in examples
            for word, (_, label) in words_of(example.record) if label == name
        ]  # fmt: skip
        slow = pd.DataFrame(answers).sum()
        for rival, column in (("rule", "with_head"), ("nearest", "among")):
            assert counts[rival].visible_size(name)[direction, 0] == slow["counts"] > 10
            right = counts[rival].by_article(counts[rival].right, name).sum(axis=0)
            assert right[direction, 0].tolist() == [slow[column, 0], slow[column, 1]]
            by_rival = counts[rival].by_article(counts[rival].rival_right, name).sum(axis=0)
            assert by_rival[direction, 0] == slow[rival]


@pytest.fixture
def few_words(monkeypatch):
    monkeypatch.setattr("helpers.metrics.tags_and_places.TRAIN_WORDS", 10)
    monkeypatch.setattr("helpers.metrics.tags_and_places.DEV_WORDS", 10)


def with_maps(examples, *, planted):
    """Make all maps uniform; head 1-2 attends to parents if it is ``planted``."""
    made = []
    for example in examples:
        n = len(example.record["words"])
        maps = np.full((1, 2, n, n), 1 / n, np.float16)
        for word, head in enumerate(example.record["heads"]):
            if head and planted:
                maps[0, 1, word] = np.eye(n)[head - 1]
        made.append(replace(example, stored_attention=maps))
    return made


def test_addition_table_finds_a_planted_head(few_words):
    answers = count_additions(with_maps(treebank(), planted=True), RULES)
    rows = addition_table(answers).set_index("relation")
    assert (rows.loc[["obj", "det"], "head"] == "1-2").all()
    assert rows.loc[MEAN, "added_low"] > 20
    assert rows.loc[MEAN, "with_head"] > 90
    assert rows.loc[MEAN, "added"] == pytest.approx(
        rows.loc[["obj", "det"], "with_head"].mean() - rows.loc[["obj", "det"], "rule"].mean()
    )


def test_addition_table_of_uniform_attention_is_zero(few_words):
    rows = addition_table(count_additions(with_maps(treebank(), planted=False), RULES))
    assert (rows["added"] == 0).all()


def test_gain_table_of_random_maps_has_no_gain_on_dev(few_words):
    """The best of random heads is ahead on train, where it was chosen, and not on dev."""
    counts = count_with_rule(treebank(size=400), RULES)
    row = gain_table(counts, "rule", "added").set_index("relation").loc[MEAN]
    assert row["added_low"] < 0 or row["added"] < 2


def test_class_heads_names_planted_heads_and_no_uniform_one(few_words):
    """Head 1-2 attends to the parent; head 1-1 is uniform, and finds no more than the rule."""
    heads = class_heads(count_additions(with_maps(treebank(), planted=True), RULES))
    assert heads["head"].tolist() == [1, 2]
    assert heads["direction"][1] == DIRECTIONS[0] and heads["lead_low"][1] > 0
    assert heads["among"][1] == pytest.approx(heads["nearest"][1] + heads["lead"][1])
    assert not heads["lead_low"][0] > 0


def test_class_heads_without_a_frequent_relation_are_empty():
    heads = class_heads(count_additions(treebank(size=8), RULES))
    assert len(heads) == 2 and heads["relation"].isna().all()
